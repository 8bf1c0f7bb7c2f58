//! Connections to engines: reused where that is safe, and never at a client's cost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat, wait_for_some};
use serde_json::{Value, json};

use crate::pair::{CHAT, Pair, WITHIN, error_of, is_full};

/// Every request that the engine saw more than once got an answer only once.
#[track_caller]
fn assert_answered_once(engine: &Engine) {
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for call in engine.calls() {
        let id = call.header("x-request-id").expect("an id").to_owned();
        *answers.entry(id).or_default() += usize::from(call.bytes_written > 0);
    }
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
}

/// Trial H1: the engine closes idle connections at the moment at which requests come.
#[test]
fn an_engine_that_closes_idle_connections_costs_no_client_an_error() {
    let (idle, run) = if is_full() { (1_000, Duration::from_secs(300)) } else { (60, Duration::from_millis(3_500)) };
    let pair = Pair::with(|cfg| (cfg.keep_alive_ms, cfg.recorded_requests_max) = (idle, 100_000), |gateway| gateway);
    let until = Instant::now() + run;
    let ask = |lane: u64| {
        let mut connection = pair.connect();
        let mut round = lane;
        while Instant::now() < until {
            connection.send(&Request::new("POST", CHAT).json(&chat("again").json()).bytes()).expect("sent");
            let reply = connection.reply().expect("an answer");
            assert_eq!(reply.status, 200, "{}", reply.text());
            // From nine tenths to eleven tenths of the engine's limit.
            let pause = Duration::from_micros(idle * (900 + 25 * (round % 9)));
            assert!(connection.is_silent_for(pause));
            round += 1;
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..4).map(|lane| scope.spawn(move || ask(lane))).collect();
        lanes.into_iter().for_each(|lane| lane.join().expect("no error"));
    });
    assert_answered_once(&pair.engine);
}

/// Trial H1: the engine closes without having said so.
#[test]
fn an_engine_that_closes_right_after_its_reply_costs_no_client_an_error() {
    let pair = Pair::with(|cfg| cfg.recorded_requests_max = 100_000, |gateway| gateway);
    pair.engine.set_faults(json!({ "close_after_reply": true }));
    let mut connection = pair.connect();
    let rounds = if is_full() { 5_000 } else { 300 };
    for round in 0..rounds {
        let body = if round % 3 == 0 { chat("again").streamed().json() } else { chat("again").json() };
        connection.send(&Request::new("POST", CHAT).json(&body).bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!(reply.status, 200, "round {round}: {}", reply.text());
    }
    assert_answered_once(&pair.engine);
}

/// Trial H1: the engine closes a connection used before while the request is on its way.
#[test]
fn a_reused_connection_that_closes_before_any_answer_is_replaced_once() {
    let pair = Pair::with(|_| (), |gateway| gateway.cores(1));
    let first = pair.post(CHAT, &chat("first").json());
    let used = pair.call_of(&first).connection;
    pair.engine.set_faults(json!({ "blackhole": true }));
    let mut connection = pair.connect();
    connection.send(&Request::new("POST", CHAT).json(&chat("second").json()).bytes()).expect("sent");
    let seen = pair.engine.wait_for_calls(2, WITHIN, |_| true);
    assert_eq!(seen[1].connection, used, "the connection is reused");
    pair.engine.set_faults(json!({}));
    pair.engine.release();
    let reply = connection.reply().expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let calls = pair.calls_of(&reply);
    let answered: Vec<bool> = calls.iter().map(|call| call.bytes_written > 0).collect();
    assert_eq!(answered, [false, true]);
    assert_ne!(calls[0].connection, calls[1].connection);
}

#[test]
fn a_fresh_connection_that_closes_before_any_answer_is_not_tried_again() {
    let pair = Pair::with(|_| (), |gateway| gateway.cores(1));
    pair.engine.set_faults(json!({ "blackhole": true }));
    let mut connection = pair.connect();
    connection.send(&Request::new("POST", CHAT).json(&chat("only").json()).bytes()).expect("sent");
    pair.engine.wait_for_calls(1, WITHIN, |_| true);
    pair.engine.set_faults(json!({}));
    pair.engine.release();
    let reply = connection.reply().expect("an answer");
    let (status, code, _) = error_of(&reply);
    assert_eq!((status, code.as_str()), (502, Some("engine_closed")));
    assert_eq!(pair.calls_of(&reply).len(), 1);
}

/// Trial H5.
#[test]
fn a_connection_that_is_to_close_is_not_used_again_and_one_with_trailers_is() {
    let pair = Pair::with(|_| (), |gateway| gateway.cores(1));
    let ask = |faults: serde_json::Value, streamed: bool| {
        let body = if streamed { chat("hello").streamed() } else { chat("hello") };
        let request = Request::new("POST", CHAT).header("Connection", "close").header("x-sim", faults.to_string());
        let reply = pair.send(request.json(&body.json()));
        assert_eq!(reply.status, 200, "{}", reply.text());
        (pair.call_of(&reply).connection, reply)
    };
    let (first, _) = ask(json!({}), false);
    let (second, _) = ask(json!({ "connection_close": true }), false);
    assert_eq!(first, second, "the connection is reused");
    let (third, _) = ask(json!({ "connection_close": true }), true);
    assert_ne!(second, third);
    let (fourth, reply) = ask(json!({ "trailers": [["X-Checksum", "1"]], "chunk_extension": ";a=b" }), true);
    assert_ne!(third, fourth);
    assert_eq!(reply.events().last().map(String::as_str), Some("data: [DONE]\n\n"));
    let whole = json!({ "framing": "chunked", "trailers": [["X-Checksum", "1"], ["Connection", "close"]] });
    let (fifth, reply) = ask(whole, false);
    assert_eq!((fourth, reply.json()["object"].as_str()), (fifth, Some("chat.completion")));
    assert_eq!(ask(json!({}), false).0, fifth);
    // The end of the connection is the end of the body: nothing to reuse.
    let (sixth, _) = ask(json!({ "framing": "close" }), false);
    assert_eq!(sixth, fifth);
    assert_ne!(ask(json!({}), false).0, sixth);
}

#[test]
fn the_request_log_says_how_long_connecting_took_where_there_was_a_connection_to_make() {
    let mut pair = Pair::with(|_| (), |gateway| gateway.cores(1).arg("--log-level").arg("debug"));
    for _ in 0..2 {
        assert_eq!(pair.post(CHAT, &chat("x").json()).status, 200);
    }
    let process = pair.gateway.process();
    let lines = wait_for_some("a line for each request", WITHIN, || {
        let lines = process.lines();
        let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(&line.text).ok());
        let lines: Vec<Value> = lines.filter(|line| line["route"] == CHAT).collect();
        (lines.len() == 2).then_some(lines)
    });
    let times: Vec<Option<f64>> = lines.iter().map(|line| line.get("connect_ms").and_then(Value::as_f64)).collect();
    assert!(matches!(times[..], [Some(time), None] if time > 0.0), "{lines:?}");
}
