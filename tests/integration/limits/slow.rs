//! Clients that take their time: so much and no more.

use std::time::{Duration, Instant};

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{Closed, Connection};
use llmgw_test_kit::request::Request;

use crate::pair::{CHAT, Pair, error_of, is_full};

/// The limit on a head and on a body's progress; idle connections get three times as much.
fn limit() -> Duration {
    Duration::from_millis(if is_full() { 5_000 } else { 400 })
}

fn impatient() -> Pair {
    let (step, idle) = (limit().as_millis(), limit().as_millis() * 3);
    let timeouts = format!("timeouts: {{ client_header: {step}ms, client_body: {step}ms, client_idle: {idle}ms }}");
    Pair::with(|cfg| cfg.max_model_len = 1 << 20, |gateway| gateway.router(&timeouts))
}

/// Sends a byte at each tenth of the limit until the gateway says or ends something.
fn drip(connection: &mut Connection, bytes: &[u8]) {
    for byte in bytes {
        if connection.send(&[*byte]).is_err() || !connection.is_silent_for(limit() / 10) {
            return;
        }
    }
}

#[track_caller]
fn is_timed_out(connection: &mut Connection, began: Instant) {
    let reply = connection.reply().expect("an answer");
    let (status, code, _) = error_of(&reply);
    assert_eq!((status, code.as_str()), (408, Some("limit_exceeded")), "{}", reply.text());
    assert!(began.elapsed() >= limit(), "after {:?}", began.elapsed());
    assert_eq!(reply.header("connection"), Some("close"));
    connection.wait_for_close().expect("closed");
}

#[test]
fn a_head_that_does_not_come_in_time_is_a_408() {
    let pair = impatient();
    for slowly in [false, true] {
        let mut connection = pair.connect();
        let began = Instant::now();
        let head = Request::new("GET", "/v1/models").header("X", "y".repeat(200)).head_bytes();
        if slowly {
            drip(&mut connection, &head);
        } else {
            connection.send(&head[..20]).expect("sent");
        }
        is_timed_out(&mut connection, began);
    }
    assert_eq!(pair.get("/v1/models").status, 200);
}

#[test]
fn a_body_that_does_not_come_in_time_is_a_408_and_no_engine_is_called() {
    let pair = impatient();
    let body = chat(&"x".repeat(300)).json().to_string();
    let length = Request::new("POST", CHAT).header("Content-Length", body.len().to_string()).head_bytes();
    let chunked = Request::new("POST", CHAT).header("Transfer-Encoding", "chunked").head_bytes();
    let chunk = format!("{:x}\r\n{body}", body.len());
    for (head, sent, slowly) in
        [(&length, &body, false), (&length, &body, true), (&chunked, &chunk, false), (&chunked, &chunk, true)]
    {
        let mut connection = pair.connect();
        connection.send(head).expect("sent");
        let began = Instant::now();
        if slowly {
            drip(&mut connection, sent.as_bytes());
        } else {
            connection.send(&sent.as_bytes()[..100]).expect("sent");
        }
        is_timed_out(&mut connection, began);
    }
    assert!(pair.engine.calls().is_empty(), "{:?}", pair.engine.calls());
}

#[test]
fn a_connection_without_a_request_is_closed_without_a_word() {
    let pair = impatient();
    let mut fresh = pair.connect();
    let mut used = pair.connect();
    used.send(&Request::new("POST", CHAT).json(&chat("hello").json()).bytes()).expect("sent");
    assert_eq!(used.reply().expect("an answer").status, 200);
    let began = Instant::now();
    for connection in [&mut fresh, &mut used] {
        assert!(connection.head().is_err(), "nothing is said");
        assert_eq!(connection.wait_for_close().expect("closed"), Closed::Fin);
    }
    assert!(began.elapsed() >= limit() * 2, "after {:?}", began.elapsed());
}

#[test]
fn a_large_body_may_take_longer_than_the_limit_while_it_makes_progress() {
    let pair = impatient();
    let body = chat(&"x".repeat(8 * 64 * 1024)).json().to_string();
    let mut connection = pair.connect();
    let head = Request::new("POST", CHAT).header("Content-Type", "application/json");
    connection.send(&head.header("Content-Length", body.len().to_string()).head_bytes()).expect("sent");
    let began = Instant::now();
    for piece in body.as_bytes().chunks(64 * 1024) {
        connection.send(piece).expect("sent");
        assert!(connection.is_silent_for(limit() / 4) || piece.len() < 64 * 1024, "no answer before the end");
    }
    let reply = connection.reply().expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(began.elapsed() > limit());
}
