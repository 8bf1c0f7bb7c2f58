//! Time limits towards engines: each ends a request with an error that names it.

use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::{Chat, chat, full_or};
use serde_json::{Value, json};

use super::rig::{DONE, Rig, WITHIN, event, request, scripted_as};
use super::sse;

const PING: &str = ": ping\n\n";
/// Far longer than any limit here; an engine that waits so long would fail the test by its length. Units: microseconds.
const LONG_US: u64 = 600_000_000;

fn limits(first_token: u64, between_events: u64, total: u64) -> Rig {
    let ms = |scaled: u64| scaled * full_or(10, 1);
    Rig::with_timeouts(&format!(
        "first_token: {}ms, between_events: {}ms, total: {}ms",
        ms(first_token),
        ms(between_events),
        ms(total)
    ))
}

/// A request that ends with a 504 of this code.
#[track_caller]
fn check_refused(rig: &Rig, name: &str, chat: Chat, code: &str) {
    let reply = rig.ask(chat);
    assert_eq!(reply.status, 504, "{name}: {}", reply.text());
    let error = &reply.json()["error"];
    assert_eq!(error["code"], code, "{name}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("engine-0")), "{name}: {error}");
    check_let_go(rig, name);
}

/// A stream that began and ends with an error event of this code.
#[track_caller]
fn check_broken_off(rig: &Rig, name: &str, chat: Chat, code: &str) {
    let reply = rig.ask(chat);
    assert_eq!(reply.status, 200, "{name}: {}", reply.text());
    assert_eq!(sse::last_error(&reply.body)["code"], code, "{name}");
    assert!(matches!(reply.end, End::Cut(_)), "{name}: {:?}", reply.end);
    check_let_go(rig, name);
}

/// The engine was let go.
#[track_caller]
fn check_let_go(rig: &Rig, name: &str) {
    let calls = rig.engine.wait_for_calls(1, WITHIN, |call| call.outcome == "client_closed");
    assert_eq!(calls.len(), 1, "{name}: one try");
    rig.engine.reset();
    rig.wait_until_idle();
}

fn pieces(script: Value) -> Chat {
    scripted_as("chunked", script)
}

#[test]
fn no_first_byte_in_time_is_a_504_that_names_the_limit() {
    let rig = limits(200, 60_000, 60_000);
    check_refused(&rig, "a whole answer", chat("x").faults(json!({ "blackhole": true })), "first_token_timeout");
    check_refused(&rig, "a stream", chat("x").streamed().faults(json!({ "blackhole": true })), "first_token_timeout");
    rig.finish();
}

#[test]
fn no_first_event_in_time_breaks_off_a_stream_whose_head_has_gone_out() {
    let rig = limits(300, 60_000, 60_000);
    let silent = chat("x").streamed().faults(json!({ "script": [[event("late"), LONG_US]] }));
    check_broken_off(&rig, "silence after the head", silent, "first_token_timeout");
    rig.finish();
}

#[test]
fn a_pause_between_events_breaks_the_stream_off() {
    let rig = limits(60_000, 200, 60_000);
    check_broken_off(
        &rig,
        "silence after an event",
        pieces(json!([event("one"), [event("late"), LONG_US]])),
        "between_events_timeout",
    );
    let part = event("cut here");
    check_broken_off(
        &rig,
        "silence inside an event",
        pieces(json!([event("one"), part[..20], ["", LONG_US]])),
        "between_events_timeout",
    );
    rig.finish();
}

#[test]
fn a_pause_inside_a_whole_answer_never_looks_like_its_end() {
    let rig = limits(60_000, 200, 60_000);
    let script = json!(["{\"a\":", ["1}", LONG_US]]);
    let chat = chat("x").faults(json!({ "script": script, "content_type": "application/json" }));
    let reply = rig.ask(chat);
    assert!(matches!(reply.end, End::Cut(_)), "{} {:?} {}", reply.status, reply.end, reply.text());
    rig.finish();
}

#[test]
fn the_whole_time_ends_requests_that_no_other_limit_ends() {
    let rig = limits(60_000, 60_000, 400);
    check_refused(&rig, "no head", chat("x").faults(json!({ "blackhole": true })), "total_timeout");
    let script: Vec<Value> = vec![json!([event("on and on"), 20_000 * full_or(10, 1)]); 1_000];
    check_broken_off(&rig, "a stream without an end", pieces(json!(script)), "total_timeout");
    let pings: Vec<Value> = vec![json!([PING, 20_000 * full_or(10, 1)]); 1_000];
    check_broken_off(&rig, "pings without an end", pieces(json!(pings)), "total_timeout");
    rig.finish();
}

#[test]
fn an_answer_that_keeps_within_the_limits_is_not_cut() {
    let rig = limits(2_000, 1_000, 60_000);
    let pause = 300_000 * full_or(10, 1);
    let script: Vec<Value> = (0..5).map(|_| json!([event("slow"), pause])).chain([json!(DONE)]).collect();
    let reply = rig.ask(pieces(json!(script)));
    assert_eq!((reply.end, sse::data(&reply.body).len()), (End::Complete, 6), "{}", reply.text());
    rig.finish();
}

#[test]
fn a_client_that_does_not_read_holds_its_engine_no_longer_than_the_whole_time() {
    let rig = limits(60_000, 60_000, 1_000);
    for is_streamed in [true, false] {
        let chat = chat("x").faults(json!({ "body_mib": 64 }));
        let chat = if is_streamed { chat.streamed() } else { chat };
        let mut connection = Connection::open_narrow(rig.gateway.addr(), 16 * 1024).expect("a connection");
        connection.send(&request(&chat)).expect("sent");
        connection.head().expect("a head");
        check_let_go(&rig, "a client that does not read");
    }
    rig.finish();
}

#[test]
fn an_error_whose_body_never_ends_is_told_as_far_as_it_came() {
    let rig = limits(60_000, 200, 60_000);
    let script = json!(["{\"detail\":\"out of ", ["memory\"}", LONG_US]]);
    for chat in [chat("x"), chat("x").streamed()] {
        let reply =
            rig.ask(chat.faults(json!({ "script": script, "status": 500, "content_type": "application/json" })));
        assert_eq!(reply.status, 500);
        assert_eq!(reply.json()["error"]["message"], "{\"detail\":\"out of");
        check_let_go(&rig, "an error without an end");
    }
    rig.finish();
}
