//! Bytes and durations as people write them: `64MiB`, `2s`, `1h30m`.
//!
//! Called by configuration, flags and messages. Errors say what would be right. Never rounds silently: what cannot be
//! held exactly is refused.

use std::fmt;
use std::time::Duration;

const BYTE_UNITS: [(&str, u64); 13] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("kB", 1_000),
    ("B", 1),
    ("G", 0),
    ("M", 0),
    ("K", 0),
];

const DURATION_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Why a text is not a quantity; the message ends with what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

/// Reads a size in bytes: `64MiB`, `1.5GiB`, `32KB` (1000), or a plain number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    let (number, unit) = text.split_at(number_len(text));
    let unit = unit.trim_start();
    let scale = match unit {
        "" => 1,
        _ => match BYTE_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((name, 0)) => {
                return Err(UnitError(format!(
                    "{text:?} is not clear: write {number}{name}iB (1024) or {number}{name}B (1000)"
                )));
            }
            Some((_, scale)) => *scale,
            None => return Err(not_bytes(text)),
        },
    };
    scaled(number, scale).ok_or_else(|| not_bytes(text))
}

/// Writes a size with the largest binary unit that holds it exactly: `64MiB`, `1500B`.
pub fn format_bytes(bytes: u64) -> String {
    let (name, scale) =
        BYTE_UNITS[..4].iter().find(|(_, s)| bytes > 0 && bytes.is_multiple_of(*s)).unwrap_or(&("B", 1));
    format!("{}{name}", bytes / scale)
}

/// Reads a duration: `100ms`, `2s`, `5m`, `1.5h`, `1h30m`. A bare `0` is none; any other number needs its unit.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let whole = text.trim();
    if whole == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = whole;
    let mut nanos: u64 = 0;
    let mut last_scale = u64::MAX;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(number_len(rest));
        let unit_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        if unit.is_empty() && number == whole {
            return Err(UnitError(format!("{whole:?} has no unit: write {whole}s for seconds, or ms, m, h")));
        }
        let scale = DURATION_UNITS.iter().find(|(name, _)| *name == unit.trim()).map(|(_, scale)| *scale);
        let part =
            scale.filter(|s| *s < last_scale).and_then(|s| scaled(number, s)).ok_or_else(|| not_duration(whole))?;
        nanos = nanos.checked_add(part).ok_or_else(|| not_duration(whole))?;
        last_scale = scale.unwrap_or(0);
        rest = tail;
    }
    if last_scale == u64::MAX { Err(not_duration(whole)) } else { Ok(Duration::from_nanos(nanos)) }
}

/// Writes a duration with the largest unit that holds it exactly: `5m`, `90s`, `1500ms`, `0s`.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let (name, scale) = DURATION_UNITS.iter().find(|(_, s)| nanos.is_multiple_of(u128::from(*s))).unwrap_or(&("ns", 1));
    format!("{}{name}", nanos / u128::from(*scale))
}

fn number_len(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len())
}

/// `number × scale`, if that is a whole number that fits.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()?.into() };
    let one = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let total = (whole * one + parts) * u128::from(scale);
    if total.is_multiple_of(one) { u64::try_from(total / one).ok() } else { None }
}

fn not_bytes(text: &str) -> UnitError {
    UnitError(format!("{text:?} is not a size: write for example 64MiB, 32KiB or a number of bytes"))
}

fn not_duration(text: &str) -> UnitError {
    UnitError(format!("{text:?} is not a duration: write for example 2s, 5m, 100ms or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64MiB", 64 << 20),
            ("32 KiB", 32 << 10),
            ("1.5GiB", 3 << 29),
            ("2GB", 2_000_000_000),
            ("10B", 10),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_says_what_would_be_right() {
        for text in ["", "MiB", "64mib", "-1", "1.MiB", ".5MiB", "0.3B", "99999999TiB", "64MiBx", "1,5GiB", "٣"] {
            let message = parse_bytes(text).expect_err(text).to_string();
            assert!(message.contains("write for example 64MiB"), "{message}");
        }
        assert_eq!(
            parse_bytes("64M").expect_err("unclear").to_string(),
            "\"64M\" is not clear: write 64MiB (1024) or 64MB (1000)"
        );
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("100ms", 100),
            ("2s", 2_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("2 s", 2_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_duration("7us"), Ok(Duration::from_micros(7)));
    }

    #[test]
    fn a_wrong_duration_says_what_would_be_right() {
        for text in ["", "s", "2sec", "-2s", "1.s", "30m1h", "1s1s", "1s5", "99999999999h", "2S"] {
            let message = parse_duration(text).expect_err(text).to_string();
            assert!(message.contains("write for example 2s"), "{message}");
        }
        assert_eq!(
            parse_duration("30").expect_err("no unit").to_string(),
            "\"30\" has no unit: write 30s for seconds, or ms, m, h"
        );
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same() {
        for bytes in [0, 1, 1023, 1024, 1500, 64 << 20, u64::MAX] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }
        for nanos in [0, 1, 1_500_000, 90_000_000_000, 300_000_000_000, 86_400_000_000_000, u64::MAX] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        assert_eq!(format_bytes(64 << 20), "64MiB");
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_secs(300)), "5m");
    }
}
