//! Token counts out of an engine's answer, and how several reports become one.
//!
//! Called by the relay for whole bodies and by the stream tap for events. Changes when an engine names its counts
//! otherwise. Never trusts a count: what is no plausible number is left out and counted as absurd.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::reader::{Fault, Kind, Reader, Value};

/// More tokens than any request has, some twenty times the longest context there is: a larger count is a mistake of the
/// engine's, and would poison every sum it enters.
const MOST_TOKENS: u64 = 1 << 28;

/// A year of sound: no request carries more.
const MOST_SECONDS: f64 = 366.0 * 86_400.0;

/// What an engine said of one answer. Units: tokens, but for sound; `None` is not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All prompt tokens, those found in the engine's cache included.
    pub prompt: Option<u64>,
    pub completion: Option<u64>,
    pub total: Option<u64>,
    /// Those of `prompt` that the engine had in its cache.
    pub cached: Option<u64>,
    /// Sound that it heard, in milliseconds: what is counted where there are no tokens to count.
    pub audio_ms: Option<u64>,
}

impl Usage {
    /// Takes in a later report of the same answer: of each count the greatest. Reports are parts (prompt first,
    /// completion last) or running totals; in both a smaller number later on is no news.
    pub fn merge(&mut self, later: &Usage) {
        self.prompt = self.prompt.max(later.prompt);
        self.completion = self.completion.max(later.completion);
        self.total = self.total.max(later.total);
        self.cached = self.cached.max(later.cached);
        self.audio_ms = self.audio_ms.max(later.audio_ms);
    }

    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

/// What was found in one JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub usage: Usage,
    /// Counts, or whole usage values, that were there and made no sense.
    pub absurd_count: u32,
    /// Whether there was usage at the top level, sensible or not, other than null.
    pub(crate) has_usage: bool,
    /// Whether `choices` is an empty array.
    pub(crate) has_no_choices: bool,
    /// Whether the engine says that something failed.
    pub(crate) is_error: bool,
}

/// Reads the usage of a whole answer. Anything but JSON with a usage object gives an empty one.
///
/// Cost: one search for the word `"usage"`; where it is found, one pass over the body, no allocation.
pub fn of_body(body: &[u8]) -> Reading {
    static WORD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
    if WORD.find(body).is_some() { read(body) } else { Reading::default() }
}

/// Reads one JSON object that mentions usage or an error. Where it breaks off or is malformed, that counts as absurd.
pub(crate) fn read(text: &[u8]) -> Reading {
    let mut reading = Reading::default();
    if reading.object(&mut Reader::new(text), text, Level::Top).is_err() {
        reading.absurd_count += 1;
    }
    reading
}

/// Where usage may be: at the top, or one level down in the `response` or `message` that an event carries.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Top,
    Carried,
}

impl Reading {
    fn object(&mut self, reader: &mut Reader<'_>, text: &[u8], level: Level) -> Result<(), Fault> {
        let mut room = [0; 32];
        reader.enter_object()?;
        let mut is_first = true;
        while let Some(key) = reader.next_key(is_first)? {
            is_first = false;
            let next = reader.peek();
            match reader.key_name(key, &mut room) {
                b"usage" if next == Some(b'{') => {
                    self.usage(reader, text)?;
                    self.has_usage |= level == Level::Top;
                }
                b"usage" => {
                    let is_absurd = reader.value()?.kind != Kind::Null;
                    self.absurd_count += u32::from(is_absurd);
                    self.has_usage |= is_absurd && level == Level::Top;
                }
                b"response" | b"message" if level == Level::Top && next == Some(b'{') => {
                    self.object(reader, text, Level::Carried)?;
                }
                b"choices" if level == Level::Top => {
                    let value = reader.value()?;
                    self.has_no_choices = value.kind == Kind::Array && is_hollow(value, text);
                }
                b"error" => self.is_error |= reader.value()?.kind != Kind::Null,
                b"object" | b"type" => {
                    let value = reader.value()?;
                    self.is_error |= level == Level::Top && value.span.of(text) == b"\"error\"";
                }
                _ => {
                    reader.value()?;
                }
            }
        }
        Ok(())
    }

    fn usage(&mut self, reader: &mut Reader<'_>, text: &[u8]) -> Result<(), Fault> {
        let mut room = [0; 32];
        let mut found = Usage::default();
        let (mut beside, mut cache_read) = (0, None);
        reader.enter_object()?;
        let mut is_first = true;
        while let Some(key) = reader.next_key(is_first)? {
            is_first = false;
            match reader.key_name(key, &mut room) {
                b"prompt_tokens" | b"input_tokens" => found.prompt = self.count(reader.value()?, text),
                b"completion_tokens" | b"output_tokens" => found.completion = self.count(reader.value()?, text),
                b"total_tokens" => found.total = self.count(reader.value()?, text),
                b"seconds" => found.audio_ms = self.seconds(reader.value()?, text),
                b"cache_read_input_tokens" => cache_read = self.count_or_null(reader.value()?, text),
                b"cache_creation_input_tokens" => {
                    beside = self.count_or_null(reader.value()?, text).unwrap_or(0);
                }
                b"prompt_tokens_details" | b"input_tokens_details" if reader.peek() == Some(b'{') => {
                    found.cached = self.cached(reader, text)?.or(found.cached);
                }
                _ => {
                    reader.value()?;
                }
            }
        }
        // Where the cache is counted beside the input and not in it (the messages API), the prompt is their sum.
        beside += cache_read.unwrap_or(0);
        found.prompt = found.prompt.map(|prompt| prompt + beside);
        found.cached = found.cached.or(cache_read);
        if found.completion.is_none() {
            // Some judge texts and write none (rerank, score), and give their sum alone.
            found.prompt = found.prompt.or(found.total);
        }
        self.usage.merge(&found);
        Ok(())
    }

    fn cached(&mut self, reader: &mut Reader<'_>, text: &[u8]) -> Result<Option<u64>, Fault> {
        let mut room = [0; 32];
        let mut cached = None;
        reader.enter_object()?;
        let mut is_first = true;
        while let Some(key) = reader.next_key(is_first)? {
            is_first = false;
            let is_cached = reader.key_name(key, &mut room) == b"cached_tokens";
            let value = reader.value()?;
            if is_cached {
                cached = self.count_or_null(value, text);
            }
        }
        Ok(cached)
    }

    fn count(&mut self, value: Value, text: &[u8]) -> Option<u64> {
        let count = value.whole_number(text).filter(|&count| count <= MOST_TOKENS);
        self.absurd_count += u32::from(count.is_none());
        count
    }

    /// A time in seconds, whole or not, as milliseconds.
    fn seconds(&mut self, value: Value, text: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(value.span.of(text)).ok().filter(|_| value.kind == Kind::Number);
        let seconds: Option<f64> = digits.and_then(|digits| digits.parse().ok());
        let seconds = seconds.filter(|seconds| (0.0..=MOST_SECONDS).contains(seconds));
        self.absurd_count += u32::from(seconds.is_none());
        seconds.map(|seconds| (seconds * 1000.0).round() as u64)
    }

    /// Of the finer counts null is usual: the engine does not keep them.
    fn count_or_null(&mut self, value: Value, text: &[u8]) -> Option<u64> {
        if value.kind == Kind::Null { None } else { self.count(value, text) }
    }
}

/// Whether an array has nothing but white space in it.
fn is_hollow(array: Value, text: &[u8]) -> bool {
    let inside = array.span.of(text);
    let inside = inside.get(1..inside.len().saturating_sub(1)).unwrap_or_default();
    inside.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt: u64, completion: u64, total: Option<u64>, cached: Option<u64>) -> Usage {
        Usage { prompt: Some(prompt), completion: Some(completion), total, cached, audio_ms: None }
    }

    #[test]
    fn every_dialect_of_the_engines_is_read() {
        for (body, expected) in [
            (
                r#"{"choices":[{}],"usage":{"prompt_tokens":18,"total_tokens":30,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0}}}"#,
                usage(18, 12, Some(30), Some(0)),
            ),
            (
                r#"{"usage":{"prompt_tokens":18,"completion_tokens":12,"prompt_tokens_details":null,"completion_tokens_details":null}}"#,
                usage(18, 12, None, None),
            ),
            (
                r#"{"usage":{"input_tokens":13,"input_tokens_details":{"x":[],"cached_tokens":4},"output_tokens":5,"total_tokens":18}}"#,
                usage(13, 5, Some(18), Some(4)),
            ),
            (
                r#"{"results":[],"usage":{"total_tokens":56}}"#,
                Usage { prompt: Some(56), total: Some(56), ..Usage::default() },
            ),
            (
                r#"{"text":"so","usage":{"type":"duration","seconds":61}}"#,
                Usage { audio_ms: Some(61_000), ..Usage::default() },
            ),
            (
                r#"{"text":"so","usage":{"seconds":0.4996,"type":"duration"}}"#,
                Usage { audio_ms: Some(500), ..Usage::default() },
            ),
            (
                r#"{"type":"message","usage":{"cache_read_input_tokens":12,"input_tokens":1,"output_tokens":5}}"#,
                usage(13, 5, None, Some(12)),
            ),
            (
                r#"{"type":"response.completed","response":{"usage":{"input_tokens":13,"output_tokens":5}}}"#,
                usage(13, 5, None, None),
            ),
        ] {
            let reading = of_body(body.as_bytes());
            assert_eq!((reading.usage, reading.absurd_count), (expected, 0), "{body}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_is_counted_as_absurd_and_taken_for_none() {
        for seconds in ["-1", "1e12", "\"7\"", "null", "[]"] {
            let reading = of_body(format!(r#"{{"usage":{{"type":"duration","seconds":{seconds}}}}}"#).as_bytes());
            assert_eq!((reading.usage, reading.absurd_count), (Usage::default(), 1), "{seconds}");
        }
    }

    #[test]
    fn usage_elsewhere_is_not_the_answers() {
        for body in [
            r#"{"choices":[{"usage":{"prompt_tokens":1}}]}"#,
            r#"{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1}"}}]}"#,
            r#"{"a":{"response":{"usage":{"prompt_tokens":1}}}}"#,
            r#"{"usage":null}"#,
            r#"{"usage":{}}"#,
            r#"no JSON"#,
            "",
        ] {
            assert_eq!(
                of_body(body.as_bytes()),
                Reading { has_usage: body.contains("{}"), ..Reading::default() },
                "{body}"
            );
        }
    }

    #[test]
    fn parts_and_running_totals_both_merge_to_the_truth() {
        let mut merged = Usage { prompt: Some(100), completion: Some(0), ..Usage::default() };
        merged.merge(&Usage { prompt: Some(0), completion: Some(7), ..Usage::default() });
        assert_eq!(merged, usage(100, 7, None, None));
        let mut running = Usage::default();
        for completion in 1..=7 {
            running.merge(&Usage { completion: Some(completion), ..Usage::default() });
        }
        assert_eq!(running.completion, Some(7));
    }
}
