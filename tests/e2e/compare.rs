//! Two runs of the client script, held against each other case by case. Called by the tests of the official client;
//! pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// What one run of the script wrote.
#[derive(Debug, Deserialize)]
pub(crate) struct Results {
    pub(crate) cases: BTreeMap<String, Value>,
    pub(crate) headers: BTreeMap<String, BTreeMap<String, String>>,
}

/// Cases that the gateway answers by itself, for it knows better than the engine or before it.
pub(crate) const ANSWERED_BY_THE_GATEWAY: &[&str] = &["error_unknown_model", "error_malformed"];

/// Raw streams of a client that did not ask for usage.
const STREAMS_WITHOUT_USAGE: &[&str] = &["bytes_streamed", "bytes_streamed_tools", "bytes_completion_streamed"];

/// Who asks an engine for the usage of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// The client alone (`inject_usage: false`): the engine gets the same request both times.
    AsTheClientAsks,
    /// The gateway too. An engine so asked says what it says once a stream (its fingerprint, llama.cpp's timings) in
    /// the usage event, which is withheld; such streams are compared without these.
    Always,
}

/// Where the two runs differ, one sentence a case. Empty: they are equal.
pub(crate) fn differences(direct: &Results, through: &Results, usage: Usage) -> Vec<String> {
    let mut found = Vec::new();
    for (name, expected) in direct.cases.iter().filter(|(name, _)| !ANSWERED_BY_THE_GATEWAY.contains(&name.as_str())) {
        match through.cases.get(name) {
            None => found.push(format!("{name}: not answered through the gateway")),
            Some(got) => {
                let is_moved = usage == Usage::Always && STREAMS_WITHOUT_USAGE.contains(&name.as_str());
                let (mut expected, mut got) = (expected.clone(), got.clone());
                for value in [&mut expected, &mut got] {
                    if let (true, Some(fields)) = (is_moved, value.as_object_mut()) {
                        fields.remove("bytes");
                    }
                }
                found.extend(first_difference(&expected, &got).map(|what| format!("{name}{what}")));
            }
        }
    }
    let more = through.cases.keys().filter(|name| !direct.cases.contains_key(*name));
    found.extend(more.map(|name| format!("{name}: answered through the gateway alone")));
    found
}

/// The first place where two values differ, as a path and both sides.
fn first_difference(expected: &Value, got: &Value) -> Option<String> {
    match (expected, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.filter_map(|key| {
                let pair = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                let is_in_both = a.contains_key(key) == b.contains_key(key);
                let inner = if is_in_both { first_difference(pair.0, pair.1) } else { Some(sides(pair.0, pair.1)) };
                inner.map(|what| format!(".{key}{what}"))
            })
            .next()
        }
        (Value::Array(a), Value::Array(b)) => {
            let inner = a
                .iter()
                .zip(b)
                .enumerate()
                .find_map(|(at, (x, y))| first_difference(x, y).map(|what| format!("[{at}]{what}")));
            inner.or_else(|| (a.len() != b.len()).then(|| format!(": {} entries, not {}", b.len(), a.len())))
        }
        (Value::String(a), Value::String(b)) if a != b => {
            let at = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
            let around = |text: &str| text.bytes().skip(at.saturating_sub(80)).take(240).collect::<Vec<u8>>();
            let shown = [around(a), around(b)].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            Some(format!(": from byte {at} on\n  direct:  …{}\n  through: …{}", shown[0], shown[1]))
        }
        (a, b) => (a != b).then(|| sides(a, b)),
    }
}

fn sides(expected: &Value, got: &Value) -> String {
    format!(": {got}, directly {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(direct: Value, through: Value, expected: &[&str]) {
        let results = |cases: Value| Results {
            cases: serde_json::from_value(cases).expect("a table of cases"),
            headers: BTreeMap::new(),
        };
        let found = differences(&results(direct), &results(through), Usage::Always);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (line, part) in found.iter().zip(expected) {
            assert!(line.contains(part), "{line:?} does not speak of {part:?}");
        }
    }

    #[test]
    fn what_differs_is_found_and_said() {
        check(json!({ "a": [1, { "b": "x" }] }), json!({ "a": [1, { "b": "x" }] }), &[]);
        check(json!({ "a": [1, { "b": "x" }] }), json!({ "a": [1, { "b": "y" }] }), &["a[1].b: from byte 0"]);
        check(json!({ "a": [1, 2] }), json!({ "a": [1] }), &["a: 1 entries, not 2"]);
        check(json!({ "a": { "b": null } }), json!({ "a": {} }), &["a.b: null, directly null"]);
        check(json!({ "a": { "bytes": "data: 1\n\n" } }), json!({ "a": { "bytes": "data: 1\r\n" } }), &["byte 7"]);
        let stream =
            |bytes: &str, rest: &str| json!({ "bytes_streamed": { "bytes": bytes, "bytes_without_extras": rest } });
        check(stream("a,b", "a"), stream("a", "a"), &[]);
        check(stream("a,b", "a"), stream("a,b", "b"), &["bytes_streamed.bytes_without_extras"]);
        check(json!({ "a": 1 }), json!({}), &["a: not answered"]);
        check(json!({}), json!({ "a": 1 }), &["a: answered through the gateway alone"]);
        check(json!({ "error_malformed": 1 }), json!({ "error_malformed": 2 }), &[]);
    }
}
