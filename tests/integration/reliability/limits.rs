//! Which time limits what: comments keep a client's connection awake, and no limit of ours.

use llmgw_test_kit::raw::End;
use llmgw_test_kit::{chat, full_or};
use serde_json::{Value, json};

use crate::streams::rig::{DONE, Rig, event, scripted_as};
use crate::streams::sse;

const PING: &str = ": ping\n\n";

fn pings(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(|_| json!([PING, 50_000]))
}

// S5
#[test]
fn comments_reach_the_client_at_once_and_are_no_first_token() {
    let rig = Rig::with_timeouts("first_token: 20s");
    let script: Vec<Value> = pings(20).chain([json!(event("late")), json!(DONE)]).collect();
    let mut connection = rig.send(scripted_as("chunked", json!(script)));
    let head = connection.head().expect("a head");
    // A client with an idle limit far below the wait hears something all the time.
    connection.set_patience(std::time::Duration::from_secs(5));
    let events = connection.body(&head).events(22).expect("all of it");
    assert_eq!((events[0].as_str(), events.iter().filter(|event| *event == PING).count()), (PING, 20));
    rig.wait_for_ended(1);
    let first_tokens = rig.gateway.metrics().sum("llmgw_ttft_seconds_sum", &[]).expect("a first token");
    assert!(first_tokens >= 0.9, "{first_tokens} s until the first token");
    rig.finish();
}

#[test]
fn comments_do_not_put_off_the_first_token() {
    let rig = Rig::with_timeouts("first_token: 400ms");
    let script: Vec<Value> = pings(400).chain([json!(event("too late")), json!(DONE)]).collect();
    let reply = rig.ask(scripted_as("chunked", json!(script)));
    assert_eq!(sse::last_error(&reply.body)["code"], "first_token_timeout");
    assert!(matches!(reply.end, End::Cut(_)));
    rig.finish();
}

#[test]
fn comments_do_not_put_off_the_next_event() {
    let rig = Rig::with_timeouts("between_events: 400ms");
    let events = [json!(event("one"))].into_iter();
    let script: Vec<Value> = events.chain(pings(400)).chain([json!(DONE)]).collect();
    let reply = rig.ask(scripted_as("chunked", json!(script)));
    assert_eq!(sse::last_error(&reply.body)["code"], "between_events_timeout");
    rig.finish();
}

// H3
#[test]
fn a_slow_engine_is_waited_for_as_long_as_our_own_limits_say() {
    let rig = Rig::with_timeouts(full_or(
        "first_token: 150s, between_events: 60s, total: 10m",
        "first_token: 20s, between_events: 20s",
    ));
    let (first_us, then_us) = full_or((120_000_000, 40_000_000), (700_000, 300_000));
    let whole = json!({ "first_byte_delay_us": first_us });
    let streamed = json!({ "first_byte_delay_us": first_us, "events": 3, "delay_us": then_us });
    for asked in [chat("x").streamed().faults(streamed), chat("x").faults(whole)] {
        let mut connection = rig.send(asked);
        connection.set_patience(std::time::Duration::from_secs(full_or(400, 20)));
        let reply = connection.reply().expect("an answer");
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{}", reply.text());
    }
    rig.finish();
}
