//! Replies have the shape of vLLM's: recorded requests are sent again, and what comes back is compared with the
//! recording.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::support::{Client, config, start};

/// The recorded exchange `name`: the request's bytes; the reply's head and body, chunk framing undone.
fn recorded(name: &str) -> (Vec<u8>, String, Vec<u8>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front/fixtures");
    let read = |ending: &str| std::fs::read(folder.join(format!("{name}.{ending}"))).unwrap();
    let (request, reply) = (read("request"), read("response"));
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(reply[..end].to_vec()).unwrap();
    let mut body = reply[end..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        let mut whole = Vec::new();
        let mut rest = &body[..];
        loop {
            let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if size == 0 {
                break;
            }
            whole.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 2 + size + 2..];
        }
        body = whole;
    }
    (request, head, body)
}

/// Keys and types, without the values; an array is the set of its elements' shapes.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(k, v)| (k.clone(), shape(v))).collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let shapes: BTreeSet<String> = items.iter().map(|item| shape(item).to_string()).collect();
            Value::Array(shapes.into_iter().map(Value::from).collect())
        }
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
    }
}

fn events(body: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let data = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    data.map(|data| match data {
        "[DONE]" => data.to_owned(),
        _ => shape(&serde_json::from_str(data).unwrap()).to_string(),
    })
    .collect()
}

/// Sends the recorded request to an engine set up as the recorded one was.
fn again(name: &str) -> (crate::support::Reply, String, Vec<u8>) {
    let engine = start(llmgw_engine_sim::EngineConfig { max_model_len: 2048, ..config() });
    let (request, head, body) = recorded(name);
    let mut client = Client::connect(&engine);
    client.send(&request);
    let reply = client.reply();
    assert_eq!(reply.head.lines().next(), head.lines().next(), "{name}: {}", reply.text());
    let field = |head: &str, name: &str| {
        head.lines().filter_map(|line| line.split_once(": ")).find(|(own, _)| *own == name).map(|(_, v)| v.to_owned())
    };
    for header in ["content-type", "allow", "transfer-encoding", "server"] {
        assert_eq!(field(&reply.head, header), field(&head, header), "{name}: {header}");
    }
    (reply, head, body)
}

#[test]
fn whole_replies_have_the_recorded_keys_and_types() {
    let names =
        "chat chat-stop completion completion-two-prompts models version tokenize err-unknown-path err-wrong-method";
    for name in names.split(' ') {
        let (reply, _, body) = again(name);
        let mut expected: Value = serde_json::from_slice(&body).unwrap();
        let got = reply.json();
        // The recorded engine served adapters as well, which have no length and a parent.
        if let Some(models) = expected.get_mut("data").and_then(Value::as_array_mut) {
            models.truncate(2);
        }
        assert_eq!(shape(&got), shape(&expected), "{name}");
        for field in ["object", "detail"] {
            assert_eq!(got.get(field), expected.get(field), "{name}");
        }
        assert_eq!(got["choices"][0]["finish_reason"], expected["choices"][0]["finish_reason"], "{name}");
    }
}

#[test]
fn empty_replies_are_empty() {
    for name in ["health", "ping"] {
        let (reply, _, body) = again(name);
        assert_eq!(reply.body(), body, "{name}");
    }
}

#[test]
fn streams_have_the_recorded_events_in_their_order() {
    let names = "chat-stream chat-stream-usage chat-n2-stream-usage chat-continuous-usage chat-stop-stream \
                 completion-stream completion-stream-usage";
    for name in names.split_whitespace() {
        let (reply, _, body) = again(name);
        let (mut got, mut expected) = (events(&reply.body()), events(&body));
        // A stop string comes where the words have it, here on the first one.
        if name.contains("stop") {
            expected.dedup();
            expected.remove(1);
            got.dedup();
        }
        assert_eq!(got, expected, "{name}");
        assert!(reply.chunks.iter().all(|chunk| chunk.ends_with(b"\n\n")), "one event a chunk");
        assert_eq!(reply.chunks.len(), reply.text().matches("data: ").count());
    }
}

#[test]
fn a_forced_tool_call_streams_as_recorded() {
    let (reply, _, body) = again("chat-tool-forced-stream");
    let (mut got, mut expected) = (events(&reply.body()), events(&body));
    // Arguments are as long as they are.
    got.dedup();
    expected.dedup();
    assert_eq!(got, expected);
}

#[test]
fn errors_are_the_recorded_ones() {
    let names = "err-unknown-model err-empty-body err-empty-messages err-no-messages err-messages-string \
                 err-bad-max-tokens err-bad-temperature err-max-tokens-over-context err-content-type \
                 err-malformed-json \
                 chat-max-tokens-0 chat-stream-options-without-stream";
    for name in names.split_whitespace() {
        let (reply, _, body) = again(name);
        assert_eq!(reply.json(), serde_json::from_slice::<Value>(&body).unwrap(), "{name}");
    }
}

#[test]
fn errors_that_count_tokens_are_the_recorded_ones_but_for_the_count() {
    for name in ["err-context-too-long", "err-json-not-object"] {
        let (reply, _, body) = again(name);
        let (got, expected) = (reply.json(), serde_json::from_slice::<Value>(&body).unwrap());
        for field in ["type", "param", "code"] {
            assert_eq!(got["error"][field], expected["error"][field], "{name}");
        }
        let words = |value: &Value| value["error"]["message"].as_str().unwrap()[..60].to_owned();
        assert_eq!(words(&got), words(&expected), "{name}");
    }
}
