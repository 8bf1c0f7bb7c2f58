//! The gateway told to stop: it says so, lets what runs come to its end, and leaves well.

use llmgw_test_kit::raw::{self, Closed, Connection, End};
use llmgw_test_kit::{Engine, Gateway, Signal, chat, wait_for};
use serde_json::json;

use crate::pair::error_of;
use crate::streams::rig::{DONE, Rig, WITHIN, llmgw, request};
use crate::streams::sse;

fn terminate(rig: &mut Rig) {
    rig.gateway.process().signal(Signal::TERM).expect("a signal");
}

/// A stream whose engine waits for a release after its second event.
fn held(rig: &Rig) -> Connection {
    let faults = json!({ "events": 5, "stall_after_events": 2 });
    let mut connection = rig.send(chat("x").streamed().faults(faults));
    let head = connection.head().expect("a head");
    assert_eq!(head.status, 200);
    connection
}

/// Reads what is left of a chunked stream.
fn rest(connection: &mut Connection) -> (String, End) {
    let head = raw_chunked_head();
    let mut body = connection.body(&head);
    let mut bytes = Vec::new();
    while let Some(piece) = body.piece().expect("more of the stream") {
        bytes.extend(piece);
    }
    (String::from_utf8(bytes).expect("UTF-8"), body.end())
}

fn raw_chunked_head() -> raw::Head {
    let headers = vec![("transfer-encoding".to_owned(), "chunked".to_owned())];
    raw::Head { version: "HTTP/1.1".to_owned(), status: 200, reason: String::new(), headers, bytes: Vec::new() }
}

#[test]
fn running_streams_come_to_their_end_and_the_gateway_ends_well() {
    let mut rig = Rig::start();
    let mut streams: Vec<Connection> = (0..4).map(|_| held(&rig)).collect();
    wait_for("four streams", WITHIN, || rig.engine.state().open_requests == 4);
    terminate(&mut rig);
    wait_for("a closed door", WITHIN, || Connection::open(rig.gateway.addr()).is_err());
    rig.engine.release();
    for stream in &mut streams {
        let (text, end) = rest(stream);
        assert!(text.ends_with(DONE), "{text}");
        assert_eq!((end, sse::data(text.as_bytes()).len()), (End::Complete, 7));
        assert_eq!(stream.wait_for_close().expect("an end"), Closed::Fin);
    }
    assert_ends_well(&mut rig);
}

// D6
#[test]
fn readiness_goes_first_and_the_door_stays_open_for_the_settle_time() {
    let engine = Engine::local();
    let builder = Gateway::builder().cores(1).router("timeouts: { settle: 20s }");
    let gateway = builder.engine(&engine).start(llmgw());
    let mut rig = Rig { engine, gateway };
    let mut kept = Connection::open(rig.gateway.addr()).expect("a connection");
    kept.send(&request(&chat("before"))).expect("sent");
    assert_eq!(kept.reply().expect("a reply").header("connection"), None);
    terminate(&mut rig);
    wait_for("readiness withdrawn", WITHIN, || rig.gateway.admin("/readyz").status == 503);
    assert_eq!(raw::get(rig.gateway.addr(), "/readyz").status, 503);
    assert_eq!(rig.gateway.admin("/healthz").status, 200);
    // New connections and kept ones are still served; replies announce the end.
    assert_eq!(rig.ask(chat("after").streamed()).status, 200);
    kept.send(&request(&chat("after"))).expect("sent");
    let reply = kept.reply().expect("a reply");
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert_eq!(kept.wait_for_close().expect("an end"), Closed::Fin);
    // A second signal skips the wait.
    terminate(&mut rig);
    assert_ends_well(&mut rig);
}

/// A stream that was cut on the way out: what came of it, then the error event, then no proper end.
#[track_caller]
fn assert_told(mut stream: Connection) {
    let (text, end) = rest(&mut stream);
    assert!(matches!(end, End::Cut(Closed::Fin)), "{end:?} {text}");
    assert_eq!(sse::last_error(text.as_bytes())["code"], "shutting_down", "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
    // The role, a token, the error.
    assert_eq!(sse::data(text.as_bytes()).len(), 3, "{text}");
}

/// A whole answer that was not begun: a refusal that says why and that another try is worth it.
#[track_caller]
fn assert_refused(mut asked: Connection) {
    let reply = asked.reply().expect("a reply");
    assert_eq!(error_of(&reply), (503, json!("shutting_down"), json!(null)), "{}", reply.text());
    let header = |name| reply.header(name).map(str::to_owned);
    assert_eq!((header("retry-after"), header("connection")), (Some("1".to_owned()), Some("close".to_owned())));
    assert_eq!(asked.wait_for_close().expect("an end"), Closed::Fin);
}

/// A request whose body has not come whole.
fn half_sent(rig: &Rig) -> Connection {
    let bytes = request(&chat("never to be sent whole"));
    let mut connection = Connection::open(rig.gateway.addr()).expect("a connection");
    connection.send(&bytes[..bytes.len() - 10]).expect("sent");
    connection
}

#[track_caller]
fn assert_ends_well(rig: &mut Rig) {
    let status = rig.gateway.process().wait(WITHIN).expect("it ends");
    assert!(status.success(), "{status}");
}

/// Requests in every state, which all want more time than there is.
struct Running {
    streams: Vec<Connection>,
    silent: Connection,
    whole: Connection,
    half_sent: Connection,
    begun: Connection,
}

fn start_all(rig: &Rig) -> Running {
    let streams = (0..3).map(|_| held(rig)).collect();
    let silent = rig.send(chat("x").streamed().faults(json!({ "blackhole": true })));
    let whole = rig.send(chat("x").faults(json!({ "blackhole": true })));
    let long = "x".repeat(40_000);
    let script = json!([&long[..20_000], [&long[20_000..], 60_000_000]]);
    let mut begun = rig.send(chat("x").faults(json!({ "script": script, "framing": "length" })));
    assert_eq!(begun.head().expect("a head").status, 200);
    let half_sent = half_sent(rig);
    wait_for("six requests at the engine", WITHIN, || rig.engine.state().open_requests == 6);
    wait_for("seven here", WITHIN, || rig.count("llmgw_requests_in_flight", &[]) == 7);
    Running { streams, silent, whole, half_sent, begun }
}

#[track_caller]
fn assert_all_told(rig: &mut Rig, running: Running) {
    let Running { streams, silent, whole, half_sent, mut begun } = running;
    streams.into_iter().for_each(assert_told);
    [silent, whole, half_sent].into_iter().for_each(assert_refused);
    // Only its missing end can tell.
    assert!(begun.wait_for_close().is_ok());
    assert_ends_well(rig);
    wait_for("an engine let go", WITHIN, || rig.engine.state().open_requests == 0);
    wait_for("seven lines in the log", WITHIN, || {
        let lines = rig.gateway.process().lines();
        lines.iter().filter(|line| line.text.contains("\"reason\":\"shutting_down\"")).count() == 7
    });
}

#[test]
fn what_runs_longer_than_the_drain_time_is_told_so_and_never_looks_complete() {
    let mut rig = Rig::with_timeouts("drain: 300ms");
    let running = start_all(&rig);
    terminate(&mut rig);
    assert_all_told(&mut rig, running);
}

#[test]
fn a_second_signal_cuts_at_once_whether_it_comes_while_settling_or_draining() {
    for settle in ["settle: 600s, drain: 600s", "settle: 0s, drain: 600s"] {
        let engine = Engine::local();
        let builder = Gateway::builder().cores(2).router(&format!("timeouts: {{ {settle} }}"));
        let gateway = builder.engine(&engine).start(llmgw());
        let mut rig = Rig { engine, gateway };
        let running = start_all(&rig);
        terminate(&mut rig);
        if settle.starts_with("settle: 0s") {
            wait_for("a closed door", WITHIN, || Connection::open(rig.gateway.addr()).is_err());
        } else {
            wait_for("readiness withdrawn", WITHIN, || rig.gateway.admin("/readyz").status == 503);
        }
        assert_eq!(rig.engine.state().open_requests, 6, "one signal cuts nothing");
        terminate(&mut rig);
        assert_all_told(&mut rig, running);
    }
}

#[test]
fn a_client_that_does_not_read_keeps_nobody_from_ending() {
    let mut rig = Rig::with_timeouts("drain: 200ms");
    let stalled = rig.send(chat("x").streamed().faults(json!({ "body_mib": 64 })));
    wait_for("a stream", WITHIN, || rig.engine.state().open_requests == 1);
    terminate(&mut rig);
    assert_ends_well(&mut rig);
    drop(stalled);
}
