//! The tool against a server that misbehaves on purpose: every fault must show in the report, none may be hidden.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use llmgw_load::client::Pool;
use llmgw_load::closed::{self, Closed, Ends};
use llmgw_load::open::{self, Open};
use llmgw_load::progress::Progress;
use llmgw_load::prompt::{Chat, Delivery};
use llmgw_load::report::Report;
use llmgw_load::streams::{self, Reference, Streams, StreamsReport};
use llmgw_load::target::Target;

const WITHIN: Duration = Duration::from_secs(10);
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Serves connections for as long as the test runs: answers call number `n` (from 0) as told, and closes when told so.
fn server(answer: impl Fn(usize) -> (Vec<u8>, After) + Send + Sync + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    let answer = Arc::new(answer);
    let calls = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, calls) = (Arc::clone(&answer), Arc::clone(&calls));
            std::thread::spawn(move || serve(stream, &*answer, &calls));
        }
    });
    target(addr)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Keep,
    Close,
    Reset,
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(usize) -> (Vec<u8>, After), calls: &AtomicUsize) {
    while read_request(&mut stream) {
        let (bytes, after) = answer(calls.fetch_add(1, Ordering::Relaxed));
        if stream.write_all(&bytes).is_err() || after == After::Close {
            return;
        }
        if after == After::Reset {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            return;
        }
    }
}

fn read_request(stream: &mut TcpStream) -> bool {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => received.extend_from_slice(&buffer[..read]),
            _ => return false,
        }
        let text = String::from_utf8_lossy(&received);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            return true;
        }
    }
}

fn target(addr: SocketAddr) -> Target {
    Target::parse(&format!("http://{addr}/v1/chat/completions")).expect("a URL")
}

fn refused() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    target(listener.local_addr().expect("bound"))
}

fn chunked(pieces: &[&str], is_ended: bool) -> Vec<u8> {
    let mut text =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for piece in pieces {
        text.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
    }
    if is_ended {
        text.push_str("0\r\n\r\n");
    }
    text.into_bytes()
}

fn event(id: usize, word: &str) -> String {
    format!("data: {{\"id\":\"chatcmpl-{id}\",\"created\":17{id},\"word\":\"{word}\"}}\n\n")
}

fn good_stream(id: usize) -> Vec<u8> {
    chunked(&[&event(id, "a"), &event(id, "b"), "data: [DONE]\n\n"], true)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

fn plan(target: Target) -> Streams {
    let request = Chat { delivery: Delivery::Streamed, ..Chat::default() }.bytes(&target);
    Streams {
        target,
        request,
        stream_count: 8,
        ramp: Duration::ZERO,
        within: WITHIN,
        reference: None,
        event_count_min: 2,
        together_min: Duration::ZERO,
        pid: None,
        admin: None,
        gauge_within: WITHIN,
    }
}

fn run(target: Target) -> StreamsReport {
    block_on(streams::run(plan(target), Progress::Silent))
}

/// Eight streams of which number 3 is bad: the report names the fault, counts one, and is not good.
fn check(bad: impl Fn() -> (Vec<u8>, After) + Send + Sync + 'static, fault: &str) {
    let report = run(server(move |call| if call == 3 { bad() } else { (good_stream(call), After::Keep) }));
    assert_eq!(report.good_count, 7, "{fault}: {:?}", report.bad);
    assert_eq!(report.bad.get(fault), Some(&1), "{fault}: {:?}", report.bad);
    assert!(report.faults().iter().any(|line| line.contains(fault)), "{:?}", report.faults());
}

#[test]
fn good_streams_are_good_whatever_their_ids() {
    let report = run(server(|call| (good_stream(call), After::Keep)));
    assert_eq!((report.good_count, report.event_count), (8, 16), "{:?}", report.bad);
    assert_eq!(report.faults(), Vec::<String>::new());
}

#[test]
fn every_fault_of_a_stream_is_named() {
    let cut = |pieces: &[&str], is_ended| chunked(pieces, is_ended);
    let (a, b, done) = (event(1, "a"), event(1, "b"), "data: [DONE]\n\n");
    let bytes = cut(&[&a, &b], false);
    check(move || (bytes.clone(), After::Close), "short");
    let bytes = cut(&[&a, &b, done], false);
    check(move || (bytes.clone(), After::Close), "short");
    let bytes = cut(&[&a, &b], true);
    check(move || (bytes.clone(), After::Keep), "no_done");
    let bytes = cut(&[&a, done], true);
    check(move || (bytes.clone(), After::Keep), "short_stream");
    let bytes = cut(&[&a, &event(1, "B"), done], true);
    check(move || (bytes.clone(), After::Keep), "wrong_bytes");
    let bytes = cut(&[&a, &b, &event(1, "c"), done], true);
    check(move || (bytes.clone(), After::Keep), "wrong_bytes");
    let bytes = cut(&[&a, "data: {\"error\":{\"message\":\"x\"}}\n\n", done], true);
    check(move || (bytes.clone(), After::Keep), "error_event");
    check(|| (b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n".to_vec(), After::Keep), "status 503");
    check(|| (Vec::new(), After::Close), "closed_before_reply");
    check(|| (Vec::new(), After::Reset), "closed_before_reply");
    check(|| (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(), After::Keep), "bad_http");
}

#[test]
fn a_refused_connection_is_a_fault_of_every_loop() {
    let report = run(refused());
    assert_eq!((report.good_count, report.bad.get("refused")), (0, Some(&8)));
    let report = block_on(closed::run(closed_plan(refused(), 5), Progress::Silent));
    assert_eq!(report.endings, "refused × 5");
    assert!(report.faults().iter().any(|fault| fault == "no call succeeded"));
    let report = open_run(refused(), 5);
    assert_eq!(report.endings, "refused × 5");
    assert!(!report.faults().is_empty());
}

#[test]
fn a_reference_tells_wrong_bytes_even_when_all_streams_agree() {
    let right = block_on(async {
        let direct = server(|call| (good_stream(call), After::Keep));
        let request = plan(direct.clone()).request;
        streams::reference(&direct, &request, WITHIN).await.expect("a reference")
    });
    assert_eq!(right.event_count, 2);
    let wrong = |call| (chunked(&[&event(call, "a"), &event(call, "X"), "data: [DONE]\n\n"], true), After::Keep);
    let plan = Streams { reference: Some(right), ..plan(server(wrong)) };
    let report = block_on(streams::run(plan, Progress::Silent));
    assert_eq!((report.good_count, report.bad.get("wrong_bytes")), (0, Some(&8)));
}

#[test]
fn a_bad_reference_is_an_error_and_not_a_reference() {
    let target = server(|_| (chunked(&[&event(0, "a")], true), After::Keep));
    let request = plan(target.clone()).request;
    let error = block_on(streams::reference(&target, &request, WITHIN)).expect_err("no end");
    assert!(error.contains("no_done"), "{error}");
}

#[test]
fn streams_that_were_never_all_open_fail_the_bar() {
    let plan = Streams {
        together_min: Duration::from_secs(5),
        reference: Some(Reference { event_count: 2, hash: 0 }),
        ..plan(server(|call| (good_stream(call), After::Keep)))
    };
    let report = block_on(streams::run(plan, Progress::Silent));
    assert!(report.faults().iter().any(|fault| fault.contains("open together")), "{:?}", report.faults());
}

#[test]
fn a_gauge_that_misses_streams_or_stays_up_is_a_fault() {
    let page = "llmgw_endpoint_inflight{replica=\"a\"} 3\nllmgw_endpoint_inflight{replica=\"b\"} 1\n";
    let stuck = server(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
        ([head.as_bytes(), page.as_bytes()].concat(), After::Keep)
    });
    let plan = Streams {
        together_min: Duration::from_nanos(1),
        admin: Some(stuck),
        gauge_within: Duration::ZERO,
        ..plan(server(|call| (good_stream(call), After::Keep)))
    };
    let report = block_on(streams::run(plan, Progress::Silent));
    assert!(report.faults().iter().any(|fault| fault.contains("is 4 when all streams have ended")), "{report:?}");
}

fn closed_plan(target: Target, calls: u64) -> Closed {
    let requests = vec![Chat::default().bytes(&target)];
    let ends = Ends::AfterCalls(calls);
    Closed { target, requests, connection_count: 2, ends, warm_up: Duration::ZERO, within: WITHIN, pid: None }
}

fn open_run(target: Target, calls: u32) -> llmgw_load::open::OpenReport {
    let plan = Open {
        requests: vec![Chat::default().bytes(&target)],
        calls_per_second: 500.0,
        time: Duration::from_millis(2) * calls,
        warm_up_count: 0,
        open_max: 100,
        pid: None,
        is_over: std::rc::Rc::default(),
    };
    block_on(async { open::run(plan, &Pool::new(target, WITHIN), Progress::Silent).await.expect("a timer") })
}

#[test]
fn a_closed_loop_counts_every_ending() {
    let target = server(|call| match call {
        3 => (b"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n".to_vec(), After::Keep),
        5 => (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok".to_vec(), After::Close),
        _ => (OK.as_bytes().to_vec(), After::Keep),
    });
    let report = block_on(closed::run(closed_plan(target, 10), Progress::Silent));
    assert_eq!((report.call_count, report.endings.as_str()), (10, "200 × 8, 429 × 1, short × 1"));
    assert_eq!(report.latency.count, 8);
    assert!(report.faults()[0].starts_with("2 calls without a complete 200"));
}

#[test]
fn a_kept_connection_that_was_closed_is_repeated_and_told() {
    let target = server(|call| (OK.as_bytes().to_vec(), if call % 2 == 0 { After::Close } else { After::Keep }));
    let mut plan = closed_plan(target, 6);
    plan.connection_count = 1;
    let report = block_on(closed::run(plan, Progress::Silent));
    assert_eq!(report.endings, "200 × 6");
    assert!(report.stale_count > 0);
}

#[test]
fn an_open_loop_counts_the_wait_of_those_behind_a_stall() {
    // One place, one slow answer: whoever was due meanwhile has waited, though the server was quick to answer it.
    let target = server(|call| {
        if call == 0 {
            std::thread::sleep(Duration::from_millis(60));
        }
        (OK.as_bytes().to_vec(), After::Keep)
    });
    let plan = Open {
        requests: vec![Chat::default().bytes(&target)],
        calls_per_second: 500.0,
        time: Duration::from_millis(40),
        warm_up_count: 0,
        open_max: 1,
        pid: None,
        is_over: std::rc::Rc::default(),
    };
    let report =
        block_on(async { open::run(plan, &Pool::new(target, WITHIN), Progress::Silent).await.expect("a timer") });
    assert_eq!((report.call_count, report.open_peak_count), (20, 1));
    assert!(report.latency.p50_us > 15_000.0, "{:?}", report.latency);
}
