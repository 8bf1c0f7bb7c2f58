//! Moments as people read them, and spans as they write them.

use std::time::Duration;

use llmgw_kit::clock::Wall;
use llmgw_kit::units::parse_duration;

const DAY_SECONDS: u64 = 86_400;

/// Unix milliseconds as `2026-11-29 20:30:00Z`.
pub(crate) fn moment(ms: i64) -> String {
    let seconds = u64::try_from(ms).unwrap_or_default() / 1000;
    let (year, month, day) = civil(seconds / DAY_SECONDS);
    let second = seconds % DAY_SECONDS;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The day of unix milliseconds, as `2026-11-29`.
pub(crate) fn day(ms: i64) -> String {
    moment(ms).split(' ').next().unwrap_or_default().to_owned()
}

/// Year, month and day of a number of days since 1970. Counts years from March, so that the leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

/// Reads a span in whole seconds: `90d`, `12h`, `1h30m`. For the command line.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let span = parse_duration(text).map_err(|error| error.to_string())?;
    if span.subsec_nanos() > 0 && span < Duration::from_secs(1) {
        return Err("that is shorter than a second".to_owned());
    }
    Ok(span.as_secs())
}

/// A moment as it is written on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Unix milliseconds.
    At(i64),
    /// So many seconds before now.
    Ago(u64),
}

impl Moment {
    /// The moment, by what time it is.
    pub(crate) fn unix_ms(self, now: Wall) -> i64 {
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        match self {
            Self::At(ms) => ms,
            Self::Ago(seconds) => now.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000)),
        }
    }
}

/// Reads a day, which begins in UTC, or a span back from now. For the command line.
pub(crate) fn past(text: &str) -> Result<Moment, String> {
    if let Some(ms) = date(text) {
        return Ok(Moment::At(ms));
    }
    let wrong = |_| format!("{text:?} is no day, as 2026-11-30, and no span back from now, as 36h or 7d");
    seconds(text).map(Moment::Ago).map_err(wrong)
}

/// The first millisecond of a day that is written `2026-11-30`.
fn date(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, '-').map(str::parse::<u64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let is_near = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_near {
        return None;
    }
    // As in `civil`, the other way round.
    let (year_from_march, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    if civil(days) != (year, month, day) {
        return None;
    }
    i64::try_from(days * DAY_SECONDS * 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_999, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_796_083_200_000, "2026-12-01 00:00:00Z"),
            (-5, "1970-01-01 00:00:00Z"),
        ] {
            assert_eq!(moment(ms), text);
        }
    }

    #[test]
    fn spans_are_read_in_days_too() {
        assert_eq!(seconds("90d"), Ok(90 * DAY_SECONDS));
        assert_eq!(seconds("1h30m"), Ok(5400));
        assert_eq!(seconds("0"), Ok(0));
        for wrong in ["", "d", "-1d", "10ms", "soon", "99999999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_day_or_a_span_back_from_now_is_a_moment() {
        for text in ["1970-01-01", "2000-02-29", "2026-03-01", "2026-11-30", "2028-12-31"] {
            match past(text) {
                Ok(Moment::At(ms)) => assert_eq!(day(ms), text),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(past("7d"), Ok(Moment::Ago(7 * DAY_SECONDS)));
        assert_eq!(Moment::Ago(2).unix_ms(Wall(5_000)), 3_000);
        for wrong in ["2026-02-29", "2026-13-01", "2026-1", "2026-11-30-1", "1969-12-31", "yesterday", ""] {
            assert!(past(wrong).is_err(), "{wrong}");
        }
    }
}
