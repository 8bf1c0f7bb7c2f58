//! When bytes pass: at once, pings included, and no faster than the client reads them.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::{full_or, wait_for, wait_for_some};
use serde_json::{Value, json};

use super::rig::{DONE, Rig, WITHIN, event, request, scripted_as};
use super::sse;

/// What reached the client before the engine went on: it stalls until it is released, so that no clock decides.
#[track_caller]
fn check_passes_before_the_next(rig: &Rig, script: &Value, stall_after: usize, seen: &str) {
    let faults = json!({ "script": script, "stall_after_events": stall_after });
    // The usage event is kept from this client, so that its events go the long way.
    let mut connection = rig.send(chat("x").streamed().faults(faults));
    let head = connection.head().expect("a head before the first event is due");
    let mut body = connection.body(&head);
    let mut text = Vec::new();
    while text.len() < seen.len() {
        text.extend(body.piece().expect("a piece").expect("not the end"));
    }
    assert_eq!(String::from_utf8_lossy(&text), seen);
    rig.engine.release();
    while let Some(piece) = body.piece().expect("a piece") {
        text.extend(piece);
    }
    let whole: String = script.as_array().expect("pieces").iter().filter_map(Value::as_str).collect();
    assert_eq!((String::from_utf8_lossy(&text).into_owned(), body.end()), (whole, End::Complete));
}

pub(crate) fn check_everything_passes_at_once(rig: &Rig) {
    let (one, two) = (event("one"), event("two"));
    let ping = ": ping\n\n";
    check_passes_before_the_next(rig, &json!([ping, one, DONE]), 1, ping);
    check_passes_before_the_next(rig, &json!([ping, ping, one, DONE]), 2, &ping.repeat(2));
    check_passes_before_the_next(rig, &json!([one, ping, two, DONE]), 2, &format!("{one}{ping}"));
    check_passes_before_the_next(rig, &json!([one, two, DONE]), 1, &one);
    check_passes_before_the_next(rig, &json!([format!("{one}{two}"), DONE]), 1, &format!("{one}{two}"));
}

// S5
#[test]
fn events_comments_and_pings_pass_before_the_next_one_comes() {
    let rig = Rig::start();
    check_everything_passes_at_once(&rig);
    rig.finish();
}

#[test]
fn the_head_of_a_stream_passes_before_its_first_event() {
    let rig = Rig::start();
    let faults = json!({ "script": [event("late"), DONE], "stall_after_events": 0 });
    let mut connection = rig.send(chat("x").streamed().faults(faults));
    let head = connection.head().expect("a head");
    assert_eq!(head.status, 200);
    rig.engine.release();
    let events = connection.body(&head).events(2).expect("events");
    assert_eq!(events, [event("late"), DONE.to_owned()]);
    rig.finish();
}

// S5
#[test]
fn pings_are_no_token_and_hold_no_client_up_while_a_long_prompt_is_read() {
    let (ping_us, pings) = full_or((1_000_000, 20), (50_000, 12));
    // Pings come faster than events must; the wait for the first token is longer than all of them.
    let rig =
        Rig::with_timeouts(full_or("between_events: 5s, first_token: 60s", "between_events: 250ms, first_token: 20s"));
    let mut script: Vec<Value> = vec![json!([": ping\n\n", ping_us]); pings];
    // The last wait is longer than the limit between events, which begins with the first.
    script.push(json!([event("first"), full_or(7_000_000, 400_000)]));
    script.push(json!(DONE));
    let reply = rig.ask(scripted_as("chunked", json!(script)));
    assert_eq!(reply.text(), format!("{}{}{DONE}", ": ping\n\n".repeat(pings), event("first")));
    rig.wait_for_ended(1);
    let metrics = rig.gateway.metrics();
    let waited = metrics.sum("llmgw_ttft_seconds_sum", &[]).expect("a first token was timed");
    let pinged = ping_us as f64 * pings as f64 / 1e6;
    assert!(waited >= pinged, "{waited} s to the first token, pings for {pinged} s");
    rig.finish();
}

/// More than every socket buffer on the way together.
const LARGE_MIB: u32 = 64;
/// What may lie in socket buffers and in the gateway when nobody reads at the end. Units: bytes.
const BUFFERED_MAX: u64 = 24 << 20;

/// Waits until the engine has stopped writing, and returns how far it came.
fn stalled_at(rig: &Rig) -> u64 {
    let mut last = 0;
    let mut unchanged = 0;
    wait_for_some("an engine that is held up", WITHIN, || {
        let now = rig.engine.calls().last()?.bytes_written;
        unchanged = if now == last && now > 0 { unchanged + 1 } else { 0 };
        last = now;
        std::thread::sleep(Duration::from_millis(5));
        (unchanged >= 20).then_some(now)
    })
}

pub(crate) fn check_a_client_that_stops_reading(rig: &Rig) {
    for is_streamed in [true, false] {
        let chat = chat("x").faults(json!({ "body_mib": LARGE_MIB }));
        let chat = if is_streamed { chat.streamed() } else { chat };
        let mut connection = Connection::open_narrow(rig.gateway.addr(), 16 * 1024).expect("a connection");
        connection.send(&request(&chat)).expect("sent");
        let head = connection.head().expect("a head");
        let written = stalled_at(rig);
        assert!(written < BUFFERED_MAX, "the engine wrote {written} bytes to a client that does not read");
        let mut total = 0;
        let mut body = connection.body(&head);
        while let Some(piece) = body.piece().expect("more of the body") {
            total += piece.len() as u64;
        }
        assert_eq!(body.end(), End::Complete);
        assert!(total >= u64::from(LARGE_MIB) << 20, "{total}");
    }
}

#[test]
fn an_engine_is_read_no_faster_than_its_client_reads() {
    let rig = Rig::start();
    check_a_client_that_stops_reading(&rig);
    rig.finish();
}

#[test]
fn a_client_that_leaves_without_having_read_frees_the_engine_that_was_held_up() {
    let rig = Rig::start();
    let chat = chat("x").streamed().faults(json!({ "body_mib": LARGE_MIB }));
    let mut connection = Connection::open_narrow(rig.gateway.addr(), 16 * 1024).expect("a connection");
    connection.send(&request(&chat)).expect("sent");
    connection.head().expect("a head");
    stalled_at(&rig);
    connection.abort().expect("reset");
    rig.engine.wait_for_calls(1, WITHIN, |call| call.outcome == "client_closed");
    rig.finish();
}

#[test]
fn one_client_that_does_not_read_holds_nobody_else_up() {
    let rig = Rig::start();
    let large = chat("x").streamed().faults(json!({ "body_mib": LARGE_MIB }));
    let mut slow = Connection::open_narrow(rig.gateway.addr(), 16 * 1024).expect("a connection");
    slow.send(&request(&large)).expect("sent");
    slow.head().expect("a head");
    stalled_at(&rig);
    for _ in 0..20 {
        let reply = rig.ask(chat("quick").streamed());
        assert_eq!(sse::data(&reply.body).last().map(String::as_str), Some("[DONE]"));
    }
    slow.leave();
    wait_for("the slow one to be gone", WITHIN, || rig.gateway.inflight() == 0.0);
    rig.finish();
}

#[test]
fn a_client_that_stops_reading_inside_an_event_is_no_silence_of_the_engine() {
    let limit = Duration::from_secs(3);
    let rig = Rig::with_timeouts("between_events: 3s, first_token: 20s");
    // The second event comes in pieces, more of them than lie between the engine and the client, and the engine holds
    // its end back: when the client has read on, the gateway waits in the middle of an event, and all the time that the
    // client took lies between that event and the one before.
    const PIECE_BYTES: usize = 1 << 20;
    const PIECES: usize = 32;
    let whole = event(&"x".repeat(PIECES * PIECE_BYTES));
    let (begun, held_back) = whole.split_at(PIECES * PIECE_BYTES);
    let pieces = (0..PIECES).map(|at| json!(&begun[at * PIECE_BYTES..(at + 1) * PIECE_BYTES]));
    let mut script = vec![json!(event("one"))];
    script.extend(pieces);
    script.extend([json!(held_back), json!(DONE)]);
    let faults = json!({ "script": script, "stall_after_events": 1 + PIECES });
    let mut connection = Connection::open_narrow(rig.gateway.addr(), 16 * 1024).expect("a connection");
    connection.send(&request(&chat("x").with_usage().faults(faults))).expect("sent");
    let head = connection.head().expect("a head");
    let (mut written, mut since) = (stalled_at(&rig), Instant::now());
    wait_for("a wait beyond the limit", WITHIN + 2 * limit, || {
        let now = stalled_at(&rig);
        if now != written {
            (written, since) = (now, Instant::now());
        }
        since.elapsed() > limit + limit / 4
    });
    assert!(written < begun.len() as u64, "the engine wrote {written} bytes to a client that does not read");
    let mut body = connection.body(&head);
    let mut text = Vec::new();
    while text.len() < event("one").len() + begun.len() {
        text.extend(body.piece().expect("more of the event").expect("not the end"));
    }
    body.set_patience(limit / 10);
    let more = body.piece();
    assert!(
        more.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut),
        "the engine is silent for a moment, and so is the gateway: {more:?}"
    );
    body.set_patience(WITHIN);
    rig.engine.release();
    let rest = body.events(2).expect("the rest");
    assert_eq!(
        (rest.concat(), body.piece().expect("an end"), body.end()),
        (format!("{held_back}{DONE}"), None, End::Complete)
    );
    rig.finish();
}
