//! Traces of real traffic, read: when requests came, how long they were, what they shared. Pure.
//!
//! Two forms are known: Mooncake's JSON lines and Azure's CSV (`bench/data` holds an excerpt of each). Neither has
//! text: prompts are made up, with equal blocks where the trace says that they were equal.

use std::time::Duration;

use serde::Deserialize;

use crate::prompt::words;

/// Tokens of one block of a Mooncake trace.
const BLOCK_TOKENS: u64 = 512;
/// A longer prompt is cut: no model of that time took more.
const TOKENS_MAX: u64 = 1 << 20;

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Since the first.
    pub at: Duration,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// An id for each block of the prompt; empty where the trace has none.
    pub blocks: Vec<u64>,
}

#[derive(Deserialize)]
struct Mooncake {
    timestamp: u64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

/// Reads a trace of either form; entries come out in the order of their times, the first at 0.
///
/// Errors: a line that is neither, with its number.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let is_heading = |line: &str| line.starts_with("TIMESTAMP");
    let entries = lines.filter(|(_, line)| !is_heading(line)).map(|(idx, line)| {
        let entry = if line.trim_start().starts_with('{') { mooncake(line) } else { azure(line) };
        entry.map_err(|what| format!("line {}: {what}", idx + 1))
    });
    let mut entries = entries.collect::<Result<Vec<_>, String>>()?;
    entries.sort_by_key(|entry| entry.at);
    let first = entries.first().map_or(Duration::ZERO, |entry| entry.at);
    entries.iter_mut().for_each(|entry| entry.at -= first);
    Ok(entries)
}

fn mooncake(line: &str) -> Result<Entry, String> {
    let read: Mooncake = serde_json::from_str(line).map_err(|error| error.to_string())?;
    Ok(Entry {
        at: Duration::from_millis(read.timestamp),
        input_tokens: read.input_length.min(TOKENS_MAX),
        output_tokens: read.output_length.min(TOKENS_MAX),
        blocks: read.hash_ids,
    })
}

/// `2023-11-16 18:15:46.6805900,374,44`.
fn azure(line: &str) -> Result<Entry, String> {
    let mut fields = line.trim().split(',');
    let mut next = |what: &str| fields.next().ok_or_else(|| format!("{what} is missing"));
    let time = next("the time")?;
    let at = moment(time).ok_or_else(|| format!("{time:?} is no time"))?;
    let mut tokens = |what: &str| -> Result<u64, String> {
        let text = next(what)?;
        let count: u64 = text.trim().parse().map_err(|_| format!("{what}: {text:?} is no number"))?;
        Ok(count.min(TOKENS_MAX))
    };
    Ok(Entry {
        at,
        input_tokens: tokens("ContextTokens")?,
        output_tokens: tokens("GeneratedTokens")?,
        blocks: Vec::new(),
    })
}

/// Time since a day far back; only differences are used.
fn moment(text: &str) -> Option<Duration> {
    let (date, clock) = text.trim().split_once(' ')?;
    let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..3000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that a leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    let mut parts = clock.split(':');
    let (hours, minutes) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
    let seconds: f64 = parts.next()?.parse().ok()?;
    if hours > 23 || minutes > 59 || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    Some(Duration::from_secs(days * 86_400 + hours * 3600 + minutes * 60) + Duration::from_secs_f64(seconds))
}

impl Entry {
    /// A prompt as long as the trace's, by so many bytes a token. Equal blocks are equal text; without blocks every
    /// prompt is its own.
    #[must_use]
    pub fn prompt(&self, number: u64, bytes_per_token: f64) -> String {
        let bytes = (self.input_tokens as f64 * bytes_per_token) as usize;
        if self.blocks.is_empty() {
            return words(bytes, number.wrapping_add(1 << 40));
        }
        let block_bytes = (BLOCK_TOKENS as f64 * bytes_per_token) as usize;
        let mut text = String::with_capacity(bytes + block_bytes);
        for id in &self.blocks {
            text.push_str(&words(block_bytes, *id));
        }
        if text.len() < bytes {
            text.push_str(&words(bytes - text.len(), number.wrapping_add(1 << 40)));
        }
        text.truncate(bytes);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_excerpts_are_read_whole() {
        let cases = [
            (include_str!("../../data/mooncake_conversation.jsonl"), 600, true),
            (include_str!("../../data/azure_2023_conv.csv"), 1000, false),
            (include_str!("../../data/azure_2023_code.csv"), 1000, false),
        ];
        for (text, count, has_blocks) in cases {
            let entries = parse(text).expect("an excerpt");
            assert_eq!(entries.len(), count);
            assert_eq!(entries[0].at, Duration::ZERO);
            assert!(entries.is_sorted_by_key(|entry| entry.at) && entries[count - 1].at > Duration::from_secs(10));
            assert!(entries.iter().all(|entry| entry.blocks.is_empty() != has_blocks && entry.input_tokens > 0));
        }
    }

    #[test]
    fn a_day_and_a_leap_day_lie_between_times() {
        let between = |from: &str, to: &str| moment(to).expect(to) - moment(from).expect(from);
        let half = Duration::from_millis(500);
        assert_eq!(between("2023-11-16 23:59:59.5", "2023-11-17 00:00:00.0000000"), half);
        assert_eq!(between("2024-02-28 12:00:00", "2024-03-01 12:00:00"), Duration::from_secs(2 * 86_400));
        assert_eq!(between("2023-12-31 00:00:00", "2024-01-01 00:00:00"), Duration::from_secs(86_400));
    }

    #[test]
    fn a_broken_line_is_named() {
        let cases = [
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374",
                "line 2: GeneratedTokens is missing",
            ),
            ("2023-11-16,1,2", "line 1: \"2023-11-16\" is no time"),
            ("2023-11-16 18:15:46,x,2", "line 1: ContextTokens: \"x\" is no number"),
            ("{\"timestamp\":1}", "line 1: missing field"),
        ];
        for (text, expected) in cases {
            let message = parse(text).expect_err(text);
            assert!(message.starts_with(expected), "{message}");
        }
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn equal_blocks_are_equal_text_and_the_length_is_the_traces() {
        let entry = |blocks: &[u64], input_tokens| Entry {
            at: Duration::ZERO,
            input_tokens,
            output_tokens: 1,
            blocks: blocks.to_vec(),
        };
        let (one, two) = (entry(&[7, 8], 900).prompt(1, 4.0), entry(&[7, 9], 1000).prompt(2, 4.0));
        assert_eq!((one.len(), two.len()), (3600, 4000));
        assert_eq!(one[..2048], two[..2048]);
        assert_ne!(one[2048..2100], two[2048..2100]);
        assert_ne!(entry(&[], 10).prompt(1, 4.0), entry(&[], 10).prompt(2, 4.0));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-0-9:., {}\"a-z\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
