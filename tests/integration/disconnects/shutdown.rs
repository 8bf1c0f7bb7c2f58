//! The gateway told to stop: it says so, lets what runs come to its end, and leaves well.

use llmgw_test_kit::raw::{self, Closed, Connection, End};
use llmgw_test_kit::{Engine, Gateway, Signal, chat, wait_for};
use serde_json::json;

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
    let status = rig.gateway.process().wait(WITHIN).expect("it ends");
    assert!(status.success(), "{status}");
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
    let status = rig.gateway.process().wait(WITHIN).expect("it ends");
    assert!(status.success(), "{status}");
}

#[test]
fn a_stream_longer_than_the_drain_time_is_cut_and_never_looks_complete() {
    let mut rig = Rig::with_timeouts("drain: 300ms");
    let mut stream = held(&rig);
    wait_for("a stream", WITHIN, || rig.engine.state().open_requests == 1);
    terminate(&mut rig);
    let (text, end) = rest(&mut stream);
    assert!(matches!(end, End::Cut(_)), "{end:?} {text}");
    let status = rig.gateway.process().wait(WITHIN).expect("it ends");
    assert!(status.success(), "{status}");
    wait_for("an engine let go", WITHIN, || rig.engine.state().open_requests == 0);
}
