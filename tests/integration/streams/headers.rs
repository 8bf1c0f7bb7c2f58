//! Heads of streams: lengths, encodings and the words that keep proxies from buffering.

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{self, End};
use serde_json::{Value, json};

use super::rig::{CHAT, DONE, Rig, event, scripted_as, usage_event};

// S10
#[test]
fn a_length_does_not_outlive_what_is_taken_out_of_the_stream() {
    let rig = Rig::start();
    let script = json!([event("a"), event("b"), usage_event(3, 2), DONE]);
    let reply = rig.ask(scripted_as("length", script));
    let expected = [&event("a"), &event("b"), DONE].concat();
    assert_eq!((reply.text(), reply.end), (expected.clone(), End::Complete));
    let length = reply.header("content-length").map(str::to_owned);
    assert!(length.is_none_or(|length| length == expected.len().to_string()));
    rig.wait_for_ended(1);
    assert_eq!(rig.tokens(), (3, 2));
    rig.finish();
}

fn answers() -> [(&'static str, Value); 2] {
    let stream = json!([event("a"), usage_event(3, 2), DONE]);
    let whole =
        json!({ "id": "c", "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 2 } }).to_string();
    [("stream", json!({ "script": stream })), ("whole", json!({ "body": whole }))]
}

// S11
#[test]
fn an_engine_is_asked_not_to_compress_and_its_usage_is_read() {
    let rig = Rig::start();
    for (kind, mut faults) in answers() {
        faults["gzip"] = json!("accepted");
        let chat = if kind == "stream" { chat("x").streamed() } else { chat("x") }.faults(faults);
        let request = llmgw_test_kit::request::Request::new("POST", CHAT).header("Accept-Encoding", "gzip, br");
        let reply = raw::call(rig.gateway.addr(), &request.header("Connection", "close").json(&chat.json()).bytes());
        assert_eq!((reply.status, reply.header("content-encoding")), (200, None), "{kind}");
        assert!(reply.text().contains("choices"), "{kind}");
    }
    for call in rig.engine.calls() {
        assert_eq!(call.header("accept-encoding"), Some("identity"));
    }
    rig.wait_for_ended(2);
    assert_eq!(rig.tokens(), (6, 4));
    rig.finish();
}

// S11
#[test]
fn what_an_engine_compresses_all_the_same_passes_with_its_header() {
    let rig = Rig::start();
    for (kind, mut faults) in answers() {
        faults["gzip"] = json!("forced");
        let chat = if kind == "stream" { chat("x").streamed() } else { chat("x") }.faults(faults);
        let direct = raw::post(rig.engine.addr(), CHAT, &chat.json());
        let reply = rig.ask(chat);
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{kind}");
        assert_eq!(reply.header("content-encoding"), Some("gzip"), "{kind}");
        assert_eq!(reply.body, direct.body, "{kind}");
    }
    rig.wait_for_ended(2);
    // What cannot be read is said to be missing, and guessed at.
    let (prompt, completion) = rig.tokens();
    assert_eq!(rig.usage_absent(), (2, 0));
    assert!((4..400).contains(&prompt) && (2..400).contains(&completion), "{prompt} and {completion}");
    rig.finish();
}

// S13
#[test]
fn proxies_in_front_are_told_not_to_buffer_a_stream() {
    let rig = Rig::start();
    let script = json!([event("a"), DONE]);
    let reply = rig.ask(scripted_as("chunked", script.clone()));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")));
    // What the engine itself says stays.
    let own = json!([["Cache-Control", "no-store"], ["X-Accel-Buffering", "yes"], ["X-Own", "kept"]]);
    let reply = rig.ask(chat("x").streamed().faults(json!({ "script": script, "headers": own })));
    for (name, value) in [("cache-control", "no-store"), ("x-accel-buffering", "yes"), ("x-own", "kept")] {
        assert_eq!(reply.head.all(name).collect::<Vec<_>>(), [value], "{name}");
    }
    // A whole answer is no stream.
    let reply = rig.ask(chat("x"));
    assert_eq!((reply.header("x-accel-buffering"), reply.header("cache-control")), (None, None));
    rig.finish();
}
