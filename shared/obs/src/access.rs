//! One line about one request, written by the side runtime from what a core recorded.
//!
//! JSON has the shape of the other log lines (`log`), so that one reader takes both. Nothing is written for what was
//! not measured: a reply that was not streamed has no time to first token, and none is made up.

use std::io::Write as _;
use std::time::Duration;

use crate::log::Format;
use crate::stamp::Stamp;

/// What happened to a request. Times in microseconds from its arrival; `at_unix_ms` is the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessLine<'a> {
    pub at_unix_ms: u64,
    pub request_id: &'a str,
    pub method: &'a str,
    /// The route that was taken, not what the client wrote.
    pub route: &'a str,
    pub status: u16,
    /// Why it failed, in the words of the errors' table.
    pub reason: Option<&'a str>,
    pub model: Option<&'a str>,
    pub pool: Option<&'a str>,
    pub replica: Option<&'a str>,
    pub node: Option<&'a str>,
    pub key_id: Option<&'a str>,
    pub project_id: Option<&'a str>,
    pub is_streamed: bool,
    pub attempt_count: u32,
    pub body_us: Option<u64>,
    pub queue_us: Option<u64>,
    pub route_us: Option<u64>,
    /// How long connecting to the engine took; none on a connection used before.
    pub connect_us: Option<u64>,
    pub first_byte_us: Option<u64>,
    pub first_token_us: Option<u64>,
    pub duration_us: u64,
    pub overhead_us: Option<u64>,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    /// Sound that the engine counted, in milliseconds.
    pub audio_ms: Option<u64>,
    pub sent_bytes: u64,
}

impl AccessLine<'_> {
    /// Appends the line, its newline included.
    pub fn write(&self, format: Format, out: &mut Vec<u8>) {
        match format {
            Format::Json => put(out, format_args!("{{\"timestamp\":\"{}\",\"level\":\"INFO\"", Stamp(self.at_unix_ms))),
            Format::Text => put(out, format_args!("{}  INFO", Stamp(self.at_unix_ms))),
        }
        let mut line = Line { format, out };
        match format {
            Format::Json => {
                line.text("message", Some("request"));
                line.text("target", Some("llmgw::access"));
            }
            Format::Text => line.out.extend_from_slice(b" llmgw::access: request"),
        }
        line.text("request_id", Some(self.request_id));
        line.text("method", Some(self.method));
        line.text("route", Some(self.route));
        line.number("status", Some(self.status.into()));
        line.text("reason", self.reason);
        line.text("model", self.model);
        line.text("pool", self.pool);
        line.text("replica", self.replica);
        line.text("node", self.node);
        line.text("key_id", self.key_id);
        line.text("project_id", self.project_id);
        line.raw("is_streamed", format_args!("{}", self.is_streamed));
        line.number("attempt_count", Some(self.attempt_count.into()));
        line.millis("body_ms", self.body_us);
        line.millis("queue_ms", self.queue_us);
        line.millis("route_ms", self.route_us);
        line.millis("connect_ms", self.connect_us);
        line.millis("first_byte_ms", self.first_byte_us);
        line.millis("first_token_ms", self.first_token_us);
        line.millis("duration_ms", Some(self.duration_us));
        line.number("overhead_us", self.overhead_us);
        line.number("prompt_tokens", self.prompt_tokens);
        line.number("cached_tokens", self.cached_tokens);
        line.number("completion_tokens", self.completion_tokens);
        line.thousandths("audio_seconds", self.audio_ms);
        line.number("sent_bytes", Some(self.sent_bytes));
        line.out.extend_from_slice(if format == Format::Json { b"}\n" } else { b"\n" });
    }
}

struct Line<'out> {
    format: Format,
    out: &'out mut Vec<u8>,
}

impl Line<'_> {
    fn raw(&mut self, name: &str, value: std::fmt::Arguments<'_>) {
        match self.format {
            Format::Json => put(self.out, format_args!(",\"{name}\":{value}")),
            Format::Text => put(self.out, format_args!(" {name}={value}")),
        }
    }

    /// JSON's quoting in both formats: a peer's newline starts no line of its own.
    fn text(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.raw(name, format_args!(""));
        let _ = serde_json::to_writer(&mut *self.out, value);
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        let Some(value) = value else { return };
        self.raw(name, format_args!("{value}"));
    }

    fn millis(&mut self, name: &str, micros: Option<u64>) {
        self.thousandths(name, micros);
    }

    fn thousandths(&mut self, name: &str, value: Option<u64>) {
        let Some(value) = value else { return };
        self.raw(name, format_args!("{}.{:03}", value / 1000, value % 1000));
    }
}

/// Writing to a `Vec` cannot fail.
fn put(out: &mut Vec<u8>, args: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(args);
}

/// Time per output token after the first; `None` where there is none to speak of (no second token).
pub fn time_per_token(first_token: Duration, last_token: Duration, completion_tokens: u64) -> Option<Duration> {
    let intervals = completion_tokens.checked_sub(1).filter(|intervals| *intervals > 0)?;
    let nanos = last_token.saturating_sub(first_token).as_nanos() / u128::from(intervals);
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &AccessLine<'_>, format: Format) -> String {
        let mut out = Vec::new();
        line.write(format, &mut out);
        String::from_utf8(out).expect("text")
    }

    const LINE: AccessLine<'_> = AccessLine {
        at_unix_ms: 0,
        request_id: "r-1",
        method: "POST",
        route: "/v1/chat/completions",
        status: 200,
        reason: None,
        model: Some("org/m:7b@q4"),
        pool: None,
        replica: Some("a\"\n\\\u{1}é"),
        node: None,
        key_id: None,
        project_id: None,
        is_streamed: true,
        attempt_count: 1,
        body_us: Some(90),
        queue_us: None,
        route_us: Some(101),
        connect_us: Some(1_250),
        first_byte_us: Some(11_000),
        first_token_us: Some(12_045),
        duration_us: 2_400_000_001,
        overhead_us: Some(80),
        prompt_tokens: Some(7),
        cached_tokens: None,
        completion_tokens: Some(u64::MAX),
        audio_ms: Some(61_500),
        sent_bytes: 99,
    };

    #[test]
    fn a_line_is_one_object_whatever_the_names_hold() {
        let text = written(&LINE, Format::Json);
        assert_eq!(text.find('\n'), Some(text.len() - 1));
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["timestamp"], "1970-01-01T00:00:00.000Z");
        assert_eq!((&json["request_id"], &json["model"]), (&"r-1".into(), &"org/m:7b@q4".into()));
        assert_eq!(json["replica"], "a\"\n\\\u{1}é");
        assert_eq!((&json["body_ms"], &json["route_ms"]), (&0.09.into(), &0.101.into()));
        assert_eq!((&json["connect_ms"], &json["audio_seconds"]), (&1.25.into(), &61.5.into()));
        assert_eq!((&json["first_byte_ms"], &json["first_token_ms"]), (&11.0.into(), &12.045.into()));
        assert_eq!(json["duration_ms"], 2_400_000.001);
        assert_eq!(json["completion_tokens"], u64::MAX);
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let text = written(
            &AccessLine { first_token_us: None, body_us: None, connect_us: None, audio_ms: None, ..LINE },
            Format::Json,
        );
        for absent in
            ["reason", "pool", "node", "body_ms", "queue_ms", "connect_ms", "first_token_ms", "cached_tokens", "audio"]
        {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
    }

    #[test]
    fn a_name_starts_no_line_of_its_own_in_text_either() {
        let text = written(&LINE, Format::Text);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("request_id=\"r-1\"") && text.contains("duration_ms=2400000.001"), "{text}");
    }

    #[test]
    fn replies_of_none_or_one_token_have_no_time_per_token() {
        let time = |last, tokens| time_per_token(Duration::from_secs(1), Duration::from_secs(last), tokens);
        assert_eq!((time(1, 0), time(1, 1), time(5, 1)), (None, None, None));
        assert_eq!(time(2401, 2401), Some(Duration::from_secs(1)));
        assert_eq!(time(0, 2), Some(Duration::ZERO), "clocks that disagree do not go below zero");
    }
}
