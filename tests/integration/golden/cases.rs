//! The cases: bad requests, engines that fail, and the answer to each.

use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, Signal, chat, raw, wait_for};
use serde_json::json;

use super::{check, seen};
use crate::pair::{CHAT, Pair, WITHIN, llmgw};

fn json(body: &str) -> Vec<u8> {
    Request::new("POST", CHAT).body("application/json", body).bytes()
}

fn head(lines: &str) -> Vec<u8> {
    format!("POST {CHAT} HTTP/1.1\r\nHost: llmgw.test\r\n{lines}\r\n\r\n").into_bytes()
}

/// Asks all at once, since a refused connection lingers a moment; then compares.
#[track_caller]
fn check_all(addr: std::net::SocketAddr, cases: &[(&str, Vec<u8>)]) {
    let mut faults = Vec::new();
    let answers: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = cases.iter().map(|(_, bytes)| scope.spawn(move || seen(addr, bytes))).collect();
        asked.into_iter().map(|one| one.join().expect("a case is answered")).collect()
    });
    for ((name, _), seen) in cases.iter().zip(&answers) {
        check(name, seen, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn a_golden_text_answers_each_body_that_is_not_right() {
    let pair = Pair::with(|_| (), |gateway| gateway.router("limits: { body: 1MiB }"));
    let deep = format!("{{\"model\":\"m\",\"x\":{}", "[".repeat(10_000));
    let cases = [
        ("body-empty", json("")),
        ("body-not-json", json("hello")),
        ("body-cut-off", json(r#"{"model":"test-model","messages":["#)),
        ("body-array", json("[]")),
        ("body-trailing-comma", json(r#"{"model":"test-model",}"#)),
        ("body-trailing-garbage", json(r#"{"model":"test-model"} x"#)),
        ("body-too-deep", json(&deep)),
        ("body-control-character", json("{\"model\":\"test-model\",\"x\":\"a\nb\"}")),
        ("body-bad-escape", json(r#"{"model":"test-model","x":"\q"}"#)),
        (
            "body-not-utf-8",
            Request::new("POST", CHAT).body("application/json", b"{\"model\":\"test-model\",\"x\":\"\xff\"}").bytes(),
        ),
        ("body-byte-order-mark", json("\u{feff}{\"model\":\"test-model\"}")),
        ("body-too-large", head("Content-Type: application/json\r\nContent-Length: 1048577")),
        ("model-missing", json(r#"{"messages":[]}"#)),
        ("model-null", json(r#"{"model":null}"#)),
        ("model-number", json(r#"{"model":7}"#)),
        ("model-empty", json(r#"{"model":""}"#)),
        ("model-twice", json(r#"{"model":"test-model","model":"other"}"#)),
        ("model-unknown", json(r#"{"model":"gpt-4o","messages":[]}"#)),
        ("stream-not-boolean", json(r#"{"model":"test-model","stream":"yes"}"#)),
        ("stream-options-not-object", json(r#"{"model":"test-model","stream":true,"stream_options":7}"#)),
    ];
    check_all(pair.gateway.addr(), &cases);
    assert!(pair.engine.calls().is_empty(), "none of these reaches an engine");
}

#[test]
fn a_golden_text_answers_each_head_that_is_not_right() {
    let pair = Pair::own();
    let cases = [
        ("path-unknown", Request::new("GET", "/v2/chat").bytes()),
        ("method-wrong", Request::new("GET", CHAT).bytes()),
        ("model-path-unknown", Request::new("GET", "/v1/models/nobody").bytes()),
        ("host-missing", format!("POST {CHAT} HTTP/1.1\r\n\r\n").into_bytes()),
        ("host-twice", head("Host: other")),
        ("length-not-a-number", head("Content-Length: +5")),
        ("length-twice", head("Content-Length: 5\r\nContent-Length: 7")),
        ("length-and-chunked", head("Content-Length: 5\r\nTransfer-Encoding: chunked")),
        ("coding-unknown", head("Transfer-Encoding: gzip")),
        ("length-missing", head("Content-Type: application/json")),
        ("header-folded", head("X: y\r\n z")),
        ("header-without-colon", head("nothing")),
        ("header-too-large", head(&format!("X: {}", "y".repeat(40_000)))),
        ("header-too-many", head(&"X: y\r\n".repeat(200))),
        ("target-too-long", Request::new("GET", &format!("/{}", "x".repeat(20_000))).bytes()),
        ("version-unknown", format!("POST {CHAT} HTTP/3.0\r\nHost: llmgw.test\r\n\r\n").into_bytes()),
        ("expect-unknown", head("Expect: more\r\nContent-Length: 2")),
        ("not-http", b"hello\r\n\r\n".to_vec()),
        ("chunk-size-not-a-number", [head("Transfer-Encoding: chunked"), b"zz\r\n".to_vec()].concat()),
    ];
    check_all(pair.gateway.addr(), &cases);
    assert!(pair.engine.calls().is_empty(), "none of these reaches an engine");
}

#[test]
fn a_golden_text_answers_for_each_engine_that_fails() {
    let pair = Pair::with(|_| (), |gateway| gateway.router("timeouts: { first_token: 500ms }").router("retries: 0"));
    let fault = |faults: serde_json::Value| json(&chat("x").faults(faults).json().to_string());
    let cases = [
        ("engine-refuses-key", fault(json!({ "status": 401, "body": "{}" }))),
        ("engine-redirects", fault(json!({ "redirect": "http://elsewhere.test/" }))),
        ("engine-own-error", fault(json!({ "status": 500, "body": "it broke" }))),
        ("engine-silent", fault(json!({ "blackhole": true }))),
        ("engine-not-http", fault(json!({ "framing": "raw", "script": ["SSH-2.0-x\r\n\r\n"] }))),
        ("engine-closes", fault(json!({ "framing": "raw", "script": ["HTTP/1.1 200 OK\r\nConte"] }))),
        ("engine-closes-in-answer", fault(json!({ "body": "x".repeat(100), "close_after_bytes": 50 }))),
    ];
    // One after the other: what one does to the engine's standing is not the next one's business.
    for case in cases {
        check_all(pair.gateway.addr(), &[case]);
    }
}

#[test]
fn a_golden_text_says_that_no_endpoint_is_ready() {
    // Nothing listens there: the port of a listener that is gone.
    let addr = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let gateway = Gateway::builder().url(&format!("http://{addr}")).not_ready().start(llmgw());
    check_all(gateway.addr(), &[("no-endpoint", json(&chat("x").json().to_string()))]);
}

#[test]
fn a_golden_text_says_that_the_gateway_shuts_down() {
    let mut pair = Pair::with(|_| (), |gateway| gateway.router("timeouts: { drain: 100ms }"));
    let (addr, bytes) = (pair.gateway.addr(), json(&chat("x").faults(json!({ "blackhole": true })).json().to_string()));
    let seen = std::thread::scope(|scope| {
        let asked = scope.spawn(|| seen(addr, &bytes));
        wait_for("a request", WITHIN, || pair.engine.state().open_requests == 1);
        pair.gateway.process().signal(Signal::TERM).expect("a signal");
        asked.join().expect("it is answered")
    });
    let mut faults = Vec::new();
    check("shutting-down", &seen, &mut faults);
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn a_golden_text_answers_each_request_that_gets_no_place() {
    let engine = Engine::local();
    let keys = "model: test-model, engine: sim, batch_capacity: 1";
    let endpoint = format!("{{ name: e, url: \"{}\", {keys} }}", engine.url());
    let admission = "admission: { queue_ttl: 3s, queue_capacity_per_band: 1, queue_capacity_total: 1, \
        bands: [{ name: low, priority: 1, saturation_ceiling: 0 }, \
        { name: high, priority: 2, saturation_ceiling: 0 }] }";
    let gateway = Gateway::builder().endpoint(&endpoint).router(admission).start(llmgw());
    let addr = gateway.addr();
    let ask = |band: &str| {
        let request = Request::new("POST", CHAT).header("x-llmgw-band", band);
        request.body("application/json", chat("x").json().to_string()).bytes()
    };
    let waiting = |count: u64| {
        let depth = || gateway.metrics().sum("llmgw_admission_queue_depth", &[]).unwrap_or(0.0) as u64;
        wait_for("requests in the queue", WITHIN, || depth() == count);
    };
    let stalled = chat("held").streamed().faults(json!({ "events": 3, "stall_after_events": 1 })).json();
    let mut held = raw::Connection::open(addr).expect("a connection");
    held.send(&Request::new("POST", CHAT).json(&stalled).bytes()).expect("sent");
    assert_eq!(held.head().expect("a head").status, 200);
    let mut faults = Vec::new();
    check("band-unknown", &seen(addr, &ask("gilt")), &mut faults);
    std::thread::scope(|scope| {
        let displaced = scope.spawn(|| seen(addr, &ask("low")));
        waiting(1);
        check("queue-full", &seen(addr, &ask("low")), &mut faults);
        let late = scope.spawn(|| seen(addr, &ask("high")));
        check("queue-displaced", &displaced.join().expect("an answer"), &mut faults);
        check("queue-ttl", &late.join().expect("an answer"), &mut faults);
    });
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    engine.release();
}
