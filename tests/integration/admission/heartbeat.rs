//! What a stream is sent while it waits, and that whatever comes of it afterwards is told within it.

use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Signal, chat};
use serde_json::{Value, json};

use super::rig::{Rig, TWO_BANDS, request};
use crate::pair::{WITHIN, error_of};
use crate::streams::sse;

const COMMENT: &str = ": waiting for a place\n\n";

fn rig(keys: &str) -> Rig {
    Rig::start(1, &format!("heartbeat: 100ms, {keys} {TWO_BANDS}"))
}

/// A stream that waits and has been told so.
#[track_caller]
fn told(rig: &Rig, request: Request) -> Told {
    let mut connection = Connection::open(rig.gateway.addr()).expect("a connection").patience(WITHIN);
    connection.send(&request.bytes()).expect("sent");
    let head = connection.head().expect("a head while it waits");
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!((head.header("cache-control"), head.header("x-accel-buffering")), (Some("no-cache"), Some("no")));
    assert!(head.header("x-request-id").is_some());
    assert_eq!((head.header("x-llmgw-replica"), head.header("x-llmgw-queue-ms")), (None, None), "not known yet");
    assert_eq!(rig.waiting(), 1);
    Told { connection, head }
}

struct Told {
    connection: Connection,
    head: llmgw_test_kit::raw::Head,
}

impl Told {
    #[track_caller]
    fn rest(mut self) -> (String, End) {
        let mut body = self.connection.body(&self.head);
        let mut bytes = Vec::new();
        while let Some(piece) = body.piece().expect("in time") {
            bytes.extend_from_slice(&piece);
        }
        let end = body.end();
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.starts_with(COMMENT), "{text}");
        assert!(!text.contains("HTTP/1.1"), "one head and no second: {text}");
        (text, end)
    }

    /// The error that its stream ended with.
    #[track_caller]
    fn error(self) -> Value {
        let (text, end) = self.rest();
        assert!(matches!(end, End::Cut(_)), "{end:?}: a broken stream has no proper end");
        assert!(!text.contains("[DONE]"), "{text}");
        sse::last_error(text.as_bytes())
    }
}

fn stream(name: &str) -> Request {
    of(&chat(name))
}

fn of(chat: &Chat) -> Request {
    request("low").json(&chat.clone().streamed().json())
}

#[test]
fn a_stream_that_waits_is_told_so_and_then_has_its_answer() {
    let rig = rig("");
    let held = rig.hold(1);
    let mut waits = told(&rig, stream("waits"));
    let mut body = waits.connection.body(&waits.head);
    assert_eq!(body.events(3).expect("comments"), [COMMENT; 3]);
    rig.engine.release();
    let mut bytes = Vec::new();
    while let Some(piece) = body.piece().expect("in time") {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(body.end(), End::Complete);
    let events = sse::data(&bytes);
    assert!(events.len() > 1 && events.last().is_some_and(|last| last == "[DONE]"), "{events:?}");
    assert!(events.iter().all(|event| !event.contains("error")), "{events:?}");
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    assert!(rig.count("llmgw_admission_heartbeats_total", &[]) >= 3);
    rig.assert_at_rest(1);
}

#[test]
fn only_streams_are_sent_anything_and_only_where_that_is_wanted() {
    for (keys, chat) in [("heartbeat: 100ms,", chat("whole")), ("", chat("stream").streamed())] {
        let rig = Rig::start(1, &format!("{keys} queue_ttl: 500ms, {TWO_BANDS}"));
        let held = rig.hold(1);
        let reply = rig.ask("low", &chat).reply();
        assert_eq!(error_of(&reply), (504, json!("ttl"), json!(null)));
        assert_eq!(rig.count("llmgw_admission_heartbeats_total", &[]), 0);
        rig.engine.release();
        held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    }
}

#[test]
fn a_refusal_after_a_heartbeat_is_an_event_that_ends_the_stream() {
    let rig = rig("queue_ttl: 400ms, queue_capacity_total: 1,");
    let held = rig.hold(1);
    let error = told(&rig, stream("too late")).error();
    assert_eq!((&error["code"], &error["type"]), (&json!("ttl"), &json!("server_error")));
    let displaced = told(&rig, stream("displaced"));
    let higher = rig.ask("high", &chat("higher"));
    assert_eq!(displaced.error()["code"], "displaced");
    assert_eq!(higher.reply().status, 504);
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    assert_eq!((rig.rejected("ttl"), rig.rejected("displaced")), (2, 1));
    rig.assert_at_rest(1);
}

#[test]
fn what_the_engine_says_after_a_heartbeat_is_told_within_the_stream() {
    let rig = rig("");
    let own = "{\n  \"error\": {\"message\": \"too\\nlong\", \"type\": \"BadRequestError\", \"code\": 400}\n}\n";
    for (faults, message, code) in [
        (json!({ "status": 400, "body": own }), "too\nlong", json!(400)),
        (json!({ "status": 422, "body": "no words" }), "no words", json!(null)),
        (json!({ "status": 401 }), "replica e refused this gateway's key with status 401", json!("engine_auth")),
        (
            json!({ "status": 200, "body": "{\"choices\":[]}" }),
            "replica e: the answer is no stream of events, which was asked for",
            json!("engine_malformed"),
        ),
    ] {
        let held = rig.hold(1);
        let waits = told(&rig, of(&chat("waits").faults(faults.clone())));
        rig.engine.release();
        let error = waits.error();
        assert_eq!((&error["message"], &error["code"]), (&json!(message), &code), "{faults}");
        held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    }
    rig.assert_at_rest(1);
}

#[test]
fn an_error_after_a_heartbeat_has_the_shape_of_its_route() {
    let rig = rig("queue_ttl: 300ms,");
    let held = rig.hold(1);
    let body = json!({ "model": "test-model", "max_tokens": 4, "stream": true,
        "messages": [{ "role": "user", "content": "hi" }] });
    let request = Request::new("POST", "/v1/messages").header("Connection", "close").header("x-llmgw-band", "low");
    let (text, _) = told(&rig, request.json(&body)).rest();
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(last.starts_with("event: error\ndata: {\"type\":\"error\""), "{last}");
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
}

#[test]
fn a_client_that_leaves_after_a_heartbeat_leaves_the_queue() {
    let rig = rig("");
    let held = rig.hold(1);
    told(&rig, stream("gone")).connection.leave();
    rig.wait_until_waiting(0);
    assert_eq!(rig.rejected("client_gone"), 1);
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    assert!(rig.prompts().is_empty());
    rig.assert_at_rest(1);
}

#[test]
fn a_gateway_that_ends_tells_it_within_the_stream() {
    let mut rig = rig("");
    let held = rig.hold(1);
    let waits = told(&rig, stream("waits"));
    rig.gateway.process().signal(Signal::TERM).expect("a signal");
    assert_eq!(waits.error()["code"], "shutting_down");
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    assert!(rig.gateway.process().wait(WITHIN).expect("an end").success());
}
