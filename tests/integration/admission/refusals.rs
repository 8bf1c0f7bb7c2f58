//! Who gets no place is told so at once, with what it was and when to come again.

use llmgw_test_kit::chat;
use llmgw_test_kit::request::Request;
use serde_json::json;

use super::rig::{Rig, TWO_BANDS};
use crate::pair::error_of;

// S17, L9
#[test]
fn a_full_queue_refuses_before_anything_of_a_stream_was_sent() {
    let rig = Rig::start(1, &format!("queue_capacity_per_band: 1, {TWO_BANDS}"));
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat("waits"));
    rig.wait_until_waiting(1);
    let reply = rig.ask("low", &chat("too many").streamed()).reply();
    assert_eq!(error_of(&reply), (503, json!("full"), json!(null)));
    assert_eq!((reply.header("retry-after"), reply.header("content-type")), (Some("1"), Some("application/json")));
    assert!(
        reply.json()["error"]["message"].as_str().is_some_and(|text| text.contains("band low")),
        "{}",
        reply.text()
    );
    let higher = rig.ask("high", &chat("another band's queue"));
    rig.wait_until_waiting(2);
    rig.engine.release();
    held.into_iter().chain([waits, higher]).for_each(|call| assert_eq!(call.reply().status, 200));
    assert_eq!(rig.rejected("full"), 1);
    rig.assert_at_rest(1);
}

#[test]
fn a_queue_is_full_by_bytes_too() {
    let rig = Rig::start(1, &format!("queue_bytes_max: 10KiB, {TWO_BANDS}"));
    let held = rig.hold(1);
    let waits = rig.ask("low", &chat(&"x".repeat(6 << 10)));
    rig.wait_until_waiting(1);
    let reply = rig.ask("low", &chat(&"x".repeat(6 << 10))).reply();
    assert_eq!(error_of(&reply), (503, json!("full"), json!(null)));
    let small = rig.ask("low", &chat("small"));
    rig.wait_until_waiting(2);
    rig.engine.release();
    held.into_iter().chain([waits, small]).for_each(|call| assert_eq!(call.reply().status, 200));
}

// L9
#[test]
fn a_request_that_waited_its_time_is_told_so_and_reaches_no_engine() {
    let rig = Rig::start(1, &format!("queue_ttl: 200ms, {TWO_BANDS}"));
    let held = rig.hold(1);
    let reply = rig.ask("low", &chat("in vain")).reply();
    assert_eq!(error_of(&reply), (504, json!("ttl"), json!(null)));
    assert!(reply.header("retry-after").is_some());
    let waited = reply.header("x-llmgw-queue-ms").and_then(|ms| ms.parse::<u64>().ok());
    assert!(waited.is_some_and(|ms| ms >= 200), "{waited:?}");
    assert!(rig.prompts().is_empty());
    assert_eq!((rig.rejected("ttl"), rig.waiting()), (1, 0));
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    rig.assert_at_rest(1);
}

#[test]
fn refusals_have_the_shape_of_their_route() {
    let rig = Rig::start(1, &format!("queue_capacity_per_band: 0, {TWO_BANDS}"));
    let held = rig.hold(1);
    let body = json!({ "model": "test-model", "max_tokens": 4, "messages": [{ "role": "user", "content": "hi" }] });
    let request = Request::new("POST", "/v1/messages").header("Connection", "close");
    let reply = rig.send(request.header("x-llmgw-band", "low").json(&body)).reply();
    assert_eq!((reply.status, reply.json()["type"].as_str()), (503, Some("error")), "{}", reply.text());
    assert!(reply.json()["error"]["type"].is_string());
    // What takes no place in a batch waits for none.
    let count = request_to("/tokenize").json(&json!({ "model": "test-model", "prompt": "hi" }));
    assert_ne!(rig.send(count).reply().status, 503);
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

fn request_to(path: &str) -> Request {
    Request::new("POST", path).header("Connection", "close")
}
