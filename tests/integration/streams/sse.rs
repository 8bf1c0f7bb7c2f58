//! A stream read the way an event-stream client reads it: by the rules of the standard, and nothing more lenient.

use serde_json::Value;

/// The data of every event that the standard dispatches: what is not ended by an empty line is lost.
pub(crate) fn data(body: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(body).expect("a stream is UTF-8");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    for line in text.split_inclusive('\n') {
        // A line without its end is not a line yet.
        let Some(line) = line.strip_suffix('\n') else { break };
        if line.is_empty() {
            if !lines.is_empty() {
                events.push(lines.join("\n"));
            }
            lines.clear();
        } else if let Some(value) = line.strip_prefix("data:") {
            lines.push(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    events
}

/// The error that a broken stream ends with; panics when its last event is none.
#[track_caller]
pub(crate) fn last_error(body: &[u8]) -> Value {
    let events = data(body);
    let last = events.last().expect("at least one event");
    let json: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"));
    assert!(json["error"]["message"].is_string(), "{json}");
    json["error"].clone()
}
