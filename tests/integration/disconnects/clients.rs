//! Clients that leave a running request: its engine is let go at once, wherever the request stands.

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::usage::monotonic_ns;
use llmgw_test_kit::{Chat, chat, wait_for};
use serde_json::{Value, json};

use crate::streams::rig::{Rig, WITHIN};

/// Calls of one round.
const CALLS: usize = 8;
/// What an engine works on for a call that nobody ends. Units: microseconds.
const MINUTE_US: u64 = 60_000_000;

/// How a client goes.
#[derive(Debug, Clone, Copy)]
enum Leave {
    Fin,
    Rst,
}

/// Where a request stands when its client goes.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The engine has not answered anything.
    NoHead,
    /// The stream's head has come, no event.
    NoEvent,
    /// In the middle of its events.
    Midway,
}

fn call(is_streamed: bool, faults: Value) -> Chat {
    let chat = chat("nobody waits for this").faults(faults);
    if is_streamed { chat.streamed() } else { chat }
}

/// Starts the calls, lets each client go, and shows how long each took to be felt by the engine.
#[track_caller]
#[expect(clippy::print_stdout, reason = "a delay is shown, not judged: it depends on what else the machine does")]
fn check_let_go(rig: &Rig, name: &str, chat: &Chat, stage: Stage, leave: Leave) {
    rig.engine.reset();
    let offset = rig.engine.clock_offset_ns();
    let start = |_| match stage {
        Stage::NoHead => rig.send(chat.clone()),
        Stage::NoEvent => {
            let mut connection = rig.send(chat.clone());
            connection.head().expect("a head");
            connection
        }
        Stage::Midway => rig.stream(chat.clone(), 2),
    };
    let connections: Vec<Connection> = (0..CALLS).map(start).collect();
    wait_for("every call at the engine", WITHIN, || rig.engine.state().open_requests == CALLS as u64);
    assert_eq!(rig.gateway.inflight(), CALLS as f64, "{name}");
    let mut left_ns = Vec::new();
    for connection in connections {
        left_ns.push(i128::from(monotonic_ns()));
        match leave {
            Leave::Fin => connection.leave(),
            Leave::Rst => connection.abort().expect("a reset"),
        }
    }
    let calls = rig.engine.wait_for_calls(CALLS, WITHIN, |call| call.client_closed_at_ns.is_some());
    assert_eq!(calls.len(), CALLS, "{name}: no second tries");
    let mut closed_ns: Vec<i128> =
        calls.iter().filter_map(|call| call.client_closed_at_ns).map(|at| i128::from(at) + offset).collect();
    closed_ns.sort_unstable();
    let delays_us: Vec<i128> = closed_ns.iter().zip(&left_ns).map(|(closed, left)| (closed - left) / 1_000).collect();
    let worst = delays_us.iter().max().copied().unwrap_or(0);
    println!("{name}, {leave:?}: felt by the engine after {delays_us:?} us, worst {worst} us, wanted within 5000 us");
    wait_for("nothing left to do at the engine", WITHIN, || rig.engine.state().open_requests == 0);
    rig.wait_until_idle();
}

#[track_caller]
fn check_all(rig: &Rig, name: &str, chat: &Chat, stage: Stage) {
    for leave in [Leave::Fin, Leave::Rst] {
        check_let_go(rig, name, chat, stage, leave);
    }
}

// D1
#[test]
fn clients_that_leave_whole_answers_free_their_engine() {
    let rig = Rig::start();
    let late = call(false, json!({ "first_byte_delay_us": MINUTE_US }));
    check_all(&rig, "8 whole answers of a minute", &late, Stage::NoHead);
    let begun = json!({ "script": ["{\"a\":", ["1}", MINUTE_US]], "content_type": "application/json" });
    check_all(&rig, "8 whole answers that have begun", &call(false, begun), Stage::NoEvent);
    rig.wait_for_ended(4 * CALLS as u64);
    rig.finish();
}

// D1
#[test]
fn clients_that_leave_in_the_middle_of_a_stream_free_their_engine() {
    let rig = Rig::start();
    let flowing = call(true, json!({ "events": 100_000, "delay_us": 2_000 }));
    check_all(&rig, "8 streams that flow", &flowing, Stage::Midway);
    let stalled = call(true, json!({ "events": 1_000, "stall_after_events": 3, "stall_us": MINUTE_US }));
    check_all(&rig, "8 streams that pause", &stalled, Stage::Midway);
    rig.wait_for_ended(4 * CALLS as u64);
    rig.finish();
}

// D2
#[test]
fn clients_that_leave_before_the_first_byte_free_their_engine() {
    let rig = Rig::start();
    check_all(&rig, "8 streams without a head", &call(true, json!({ "blackhole": true })), Stage::NoHead);
    let silent = json!({ "events": 5, "stall_after_events": 0, "stall_us": MINUTE_US });
    check_all(&rig, "8 streams without an event", &call(true, silent), Stage::NoEvent);
    rig.wait_for_ended(4 * CALLS as u64);
    assert_eq!(rig.count("llmgw_requests_total", &[("status", "499")]), 2 * CALLS as u64);
    rig.finish();
}

#[test]
fn a_client_that_only_says_it_will_send_no_more_has_left() {
    let rig = Rig::start();
    let connection = rig.send(call(true, json!({ "blackhole": true })));
    wait_for("the call at the engine", WITHIN, || rig.engine.state().open_requests == 1);
    connection.finish_sending().expect("half closed");
    rig.engine.wait_for_calls(1, WITHIN, |call| call.client_closed_at_ns.is_some());
    rig.finish();
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_request_never_reaches_an_engine() {
    let rig = Rig::start();
    let bytes = crate::streams::rig::request(&chat("half of this"));
    for cut in [10, 60, bytes.len() / 2, bytes.len() - 1] {
        let mut connection = Connection::open(rig.gateway.addr()).expect("a connection");
        connection.send(&bytes[..cut]).expect("sent");
        connection.leave();
    }
    wait_for("no connection", WITHIN, || rig.gateway.metrics().sum("llmgw_client_connections", &[]) == Some(0.0));
    assert!(rig.engine.calls().is_empty());
    rig.finish();
}
