//! Engines that break a stream off: the client is told inside the stream, and never sees a proper end.

use llmgw_test_kit::raw::{Closed, End};
use llmgw_test_kit::{Chat, chat};
use serde_json::{Value, json};

use super::rig::{DONE, Rig, event, scripted_as, usage_event};
use super::sse;

/// A broken stream ends with an error event of this code behind the events that came, without a proper end; the request
/// is counted as broken and was sent once.
#[track_caller]
fn check_broken(rig: &Rig, name: &str, chat: Chat, events: usize, code: &str) {
    let (broken, calls) = (rig.count("llmgw_broken_streams_total", &[]), rig.engine.calls().len());
    let reply = rig.ask(chat);
    assert_eq!(reply.status, 200, "{name}");
    let error = sse::last_error(&reply.body);
    assert_eq!(error["code"], code, "{name}: {error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("engine-0")), "{name}: {error}");
    assert!(!error["message"].as_str().unwrap_or("").contains("127.0.0.1"), "{name}: {error}");
    assert_eq!(sse::data(&reply.body).len(), events + 1, "{name}: {}", reply.text());
    assert!(!reply.text().contains("[DONE]"), "{name}");
    assert!(matches!(reply.end, End::Cut(Closed::Fin)), "{name}: {:?}", reply.end);
    rig.wait_until_idle();
    assert_eq!(rig.count("llmgw_broken_streams_total", &[]), broken + 1, "{name}");
    assert_eq!(rig.engine.calls().len(), calls + 1, "{name}: no second try once a stream has begun");
}

fn five_events() -> Vec<String> {
    (1..=5).map(|number| event(&format!("word {number}"))).collect()
}

fn with(mut faults: Value, more: Value) -> Chat {
    let (faults_of, more) = (faults.as_object_mut().expect("an object"), more);
    faults_of.extend(more.as_object().expect("an object").clone());
    chat("scripted").streamed().faults(faults)
}

pub(crate) fn check_engines_that_break_off(rig: &Rig) {
    let script = || json!({ "script": five_events() });
    let more = five_events().concat().len() as u64 + 100;
    let cases = [
        ("the connection closes where its end is the body's", with(script(), json!({ "framing": "close" }))),
        ("the connection closes inside a chunked body", with(script(), json!({ "close_after_events": 5 }))),
        ("the chunked body ends without the end marker", with(script(), json!({}))),
        ("a body with a length ends without the end marker", with(script(), json!({ "framing": "length" }))),
        ("the body is shorter than its length", with(script(), json!({ "content_length": more, "framing": "length" }))),
    ];
    for (name, chat) in cases {
        check_broken(rig, name, chat, 5, "engine_closed");
    }
}

// S8
#[test]
fn a_stream_that_breaks_off_ends_with_an_error_event_and_no_proper_end() {
    let rig = Rig::start();
    check_engines_that_break_off(&rig);
    rig.finish();
}

// S8. What was on its way when a connection is reset may be lost, so that only the end is certain.
#[test]
fn a_stream_that_is_reset_ends_with_an_error_event_and_no_proper_end() {
    let rig = Rig::start();
    for framing in ["chunked", "close", "length"] {
        let mut script: Vec<Value> = five_events().into_iter().map(|text| json!([text, 1_000])).collect();
        // A pause before the reset, in which the events are read.
        script.push(json!([": last\n\n", 100_000]));
        script.push(json!(DONE));
        let faults = json!({ "script": script, "framing": framing, "close_after_events": 6, "reset": true });
        let reply = rig.ask(chat("scripted").streamed().faults(faults));
        assert_eq!(sse::last_error(&reply.body)["code"], "engine_closed", "{framing}");
        assert_eq!(sse::data(&reply.body).len(), 6, "{framing}: {}", reply.text());
        assert!(matches!(reply.end, End::Cut(_)), "{framing}: {:?}", reply.end);
    }
    rig.wait_until_idle();
    assert_eq!((rig.count("llmgw_broken_streams_total", &[]), rig.engine.calls().len()), (3, 3));
    rig.finish();
}

// S8
#[test]
fn the_error_event_can_be_read_wherever_inside_an_event_the_engine_stops() {
    let rig = Rig::start();
    for end in ["\n\n", "\r\n\r\n", "\r\r"] {
        let whole = event("first").replace("\n\n", end);
        let cut = event("second").replace("\n\n", end);
        for at in (0..cut.len()).step_by(3).chain(cut.len() - 4..=cut.len()) {
            let script = json!([whole, cut[..at].to_owned()]);
            // One that wants the usage event and one from whom it is kept, since the latter is relayed event by event.
            for chat in [scripted_as("close", script.clone()).with_usage(), scripted_as("close", script)] {
                let reply = rig.ask(chat);
                let events = sse::data(&reply.body);
                assert_eq!(sse::last_error(&reply.body)["code"], "engine_closed", "{end:?}, {at} bytes");
                assert!(events.len() >= 2 && events[0].contains("first"), "{end:?}, {at} bytes: {events:?}");
            }
        }
    }
    rig.finish();
}

#[test]
fn a_stream_that_ends_right_after_its_head_is_an_error_too() {
    let rig = Rig::start();
    for framing in ["chunked", "close", "length"] {
        let reply = rig.ask(scripted_as(framing, json!([])));
        match reply.status {
            200 => assert_eq!(sse::last_error(&reply.body)["code"], "engine_closed", "{framing}"),
            status => assert_eq!((status, &reply.json()["error"]["code"]), (502, &json!("engine_closed")), "{framing}"),
        }
    }
    rig.finish();
}

#[test]
fn a_chunk_size_that_is_no_number_breaks_the_stream_off_as_malformed() {
    let rig = Rig::start();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let first = event("first");
    let chunk = format!("{:x}\r\n{first}\r\n", first.len());
    let chat = scripted_as("raw", json!([head, chunk, ["zz\r\n", 20_000]]));
    check_broken(&rig, "a bad chunk size", chat, 1, "engine_malformed");
    rig.finish();
}

#[test]
fn a_whole_answer_that_breaks_off_is_not_ended_properly_either() {
    let rig = Rig::start();
    let text = "x".repeat(300_000);
    let cases = [
        ("short of its length", json!({ "body": text, "close_after_bytes": 200_000 })),
        ("inside its chunks", json!({ "body": text, "framing": "chunked", "close_after_bytes": 200_000 })),
        ("reset", json!({ "body": text, "close_after_bytes": 200_000, "reset": true })),
    ];
    for (name, faults) in cases {
        let reply = rig.ask(chat("whole").faults(faults));
        let is_cut = matches!(reply.end, End::Cut(_));
        assert!(reply.status == 502 || (reply.status == 200 && is_cut), "{name}: {} {:?}", reply.status, reply.end);
    }
    rig.finish();
}

#[test]
fn usage_that_came_before_the_break_is_counted() {
    let rig = Rig::start();
    let script = json!([event("a"), usage_event(9, 2)]);
    check_broken(&rig, "without an end marker", scripted_as("chunked", script), 1, "engine_closed");
    rig.wait_for_ended(1);
    assert_eq!(rig.tokens(), (9, 2));
    rig.finish();
}
