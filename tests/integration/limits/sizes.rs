//! Heads and bodies up to their limits, and one beyond.

use std::time::Duration;

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};
use serde_json::json;

use crate::pair::{CHAT, Pair, WITHIN, crc32, error_of, is_full};

const BODY_MAX: usize = 64 * 1024;

fn narrow() -> Pair {
    Pair::with(|_| (), |gateway| gateway.router(&format!("limits: {{ body: {BODY_MAX}, header: 4KiB, headers: 20 }}")))
}

/// A chat request of exactly so many bytes.
fn body_of(bytes: usize) -> Vec<u8> {
    let bare = chat("").json().to_string();
    chat(&"x".repeat(bytes - bare.len())).json().to_string().into_bytes()
}

#[track_caller]
fn refused(connection: &mut Connection, status: u16) {
    let reply = connection.reply().expect("an answer");
    assert_eq!(error_of(&reply).0, status, "{}", reply.text());
    assert_eq!((reply.interim.len(), reply.header("connection")), (0, Some("close")));
    connection.wait_for_close().expect("closed");
}

#[test]
fn heads_beyond_their_limits_are_refused_and_those_at_them_pass() {
    let pair = narrow();
    let line = |bytes: usize| format!("/v1/models?{}", "q".repeat(bytes - "GET /v1/models? HTTP/1.1".len()));
    let with_count = |count: usize| {
        (0..count).fold(Request::bare("GET", "/v1/models", "HTTP/1.1"), |request, at| {
            if at == 0 { request.header("Host", "a") } else { request.header(&format!("X-{at}"), "1") }
        })
    };
    let of_bytes = |bytes: usize| {
        let request = Request::new("GET", "/v1/models");
        let bare = request.clone().header("X", "").bytes().len();
        request.header("X", "x".repeat(bytes - bare))
    };
    let cases = [
        (Request::bare("GET", &line(3_900), "HTTP/1.1").header("Host", "a"), 200),
        (Request::bare("GET", &line(4_200), "HTTP/1.1").header("Host", "a"), 414),
        (with_count(20), 200),
        (with_count(21), 431),
        (with_count(2_000), 431),
        (of_bytes(4_096), 200),
        (of_bytes(4_097), 431),
        (of_bytes(1_000_000), 431),
    ];
    for (at, (request, status)) in cases.into_iter().enumerate() {
        let mut connection = pair.connect();
        let _ = connection.send(&request.bytes());
        if status == 200 {
            assert_eq!(connection.reply().expect("an answer").status, 200, "case {at}");
        } else {
            let reply = connection.reply().unwrap_or_else(|error| panic!("case {at}: {error}"));
            assert_eq!(reply.status, status, "case {at}: {}", reply.text());
            assert_eq!(error_of(&reply).1, "limit_exceeded", "case {at}");
            connection.wait_for_close().expect("closed");
        }
    }
}

/// Trial H15: at the limit and one beyond.
#[test]
fn a_body_at_the_limit_passes_and_one_byte_more_is_refused_before_it_is_read() {
    let pair = narrow();
    let body = body_of(BODY_MAX);
    let reply = pair.post_text(CHAT, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(pair.call_of(&reply).body_crc32, crc32(&body));

    // Not one byte of the body is sent.
    let announce = |length: u64, expects: bool| {
        let request = Request::new("POST", CHAT).header("Content-Length", length.to_string());
        let request = if expects { request.header("Expect", "100-continue") } else { request };
        let mut connection = pair.connect();
        connection.send(&request.bytes()).expect("sent");
        refused(&mut connection, 413);
    };
    std::thread::scope(|scope| {
        for (length, expects) in [(1, false), (1, true), (u64::MAX / 4, false), (u64::MAX / 4, true)] {
            scope.spawn(move || announce(BODY_MAX as u64 + length, expects));
        }
    });
    assert_eq!(pair.engine.calls().len(), 1);
}

/// Trial H15: nobody says how long the body is.
#[test]
fn a_chunked_body_is_held_to_the_same_limit() {
    let pair = narrow();
    let body = body_of(BODY_MAX);
    for piece_bytes in [1_000, 7, BODY_MAX] {
        let request = Request::new("POST", CHAT).header("Connection", "close");
        let reply = pair.send(request.chunked("application/json", body.chunks(piece_bytes)));
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(pair.call_of(&reply).body_crc32, crc32(&body));
    }
    let over = body_of(BODY_MAX + 1);
    for piece_bytes in [1_000, 1, BODY_MAX + 1] {
        let mut connection = pair.connect();
        let _ =
            connection.send(&Request::new("POST", CHAT).chunked("application/json", over.chunks(piece_bytes)).bytes());
        refused(&mut connection, 413);
    }
    // Refused while it still comes: the end of this one never does.
    let mut connection = pair.connect();
    let mut endless = Request::new("POST", CHAT).header("Transfer-Encoding", "chunked").head_bytes();
    endless.extend_from_slice(format!("{:x}\r\n", 1u64 << 40).as_bytes());
    endless.extend_from_slice(&over);
    connection.send(&endless).expect("sent");
    refused(&mut connection, 413);
    assert_eq!(pair.engine.calls().len(), 3);
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let pair = Pair::shared();
    let body = chat("asked first").json().to_string();
    let mut connection = pair.connect();
    for _ in 0..2 {
        let request = Request::new("POST", CHAT)
            .header("Expect", "100-continue")
            .header("Content-Type", "application/json")
            .header("Content-Length", body.len().to_string());
        connection.send(&request.bytes()).expect("sent");
        let interim = connection.head().expect("an interim answer");
        assert_eq!(interim.status, 100);
        connection.send(body.as_bytes()).expect("sent");
        let reply = connection.reply().expect("an answer");
        assert_eq!((reply.status, reply.interim.len()), (200, 0), "{}", reply.text());
        let call = pair.call_of(&reply);
        assert_eq!((call.body_text.as_deref(), call.header("expect")), (Some(body.as_str()), None));
    }
    // One that does not wait needs no interim answer, and one that expects something else is refused.
    let eager = Request::new("POST", CHAT).header("Expect", "100-continue").body("application/json", &body);
    connection.send(&eager.bytes()).expect("sent");
    assert_eq!(connection.reply().expect("an answer").status, 200);
    connection.send(&Request::new("POST", CHAT).header("Expect", "tea").json(&chat("x").json()).bytes()).expect("sent");
    refused(&mut connection, 417);
}

/// Trial H15: many large bodies at once, all of them held because the engine does not answer yet.
#[test]
fn large_bodies_are_held_once_and_let_go() {
    let (url_bytes, at_once) = if is_full() { (4 << 20, 24) } else { (1 << 20, 8) };
    let mut pair = Pair::with(|cfg| cfg.body_held_bytes_max = 1 << 20, |gateway| gateway);
    let images: Vec<_> = (0..8)
        .map(|image| {
            let data = format!("data:image/png;base64,{}", char::from(b'A' + image).to_string().repeat(url_bytes));
            json!({ "type": "image_url", "image_url": { "url": data } })
        })
        .collect();
    let body = json!({ "model": "test-model", "messages": [{ "role": "user", "content": images }] }).to_string();
    let request = Request::new("POST", CHAT).body("application/json", &body).bytes();
    let rss = |pair: &mut Pair| pair.gateway.process().usage().expect("it runs").rss_bytes;
    assert_eq!(pair.post_text(CHAT, &body).status, 200);
    pair.engine.reset();
    let before = rss(&mut pair);

    pair.engine.set_faults(json!({ "blackhole": true }));
    let mut connections: Vec<Connection> =
        (0..at_once).map(|_| pair.connect().patience(Duration::from_secs(60))).collect();
    std::thread::scope(|scope| {
        for connection in &mut connections {
            let request = &request;
            scope.spawn(move || connection.send(request).expect("sent"));
        }
    });
    let calls = pair.engine.wait_for_calls(at_once, Duration::from_secs(60), |call| call.body_bytes > 0);
    let crc = crc32(body.as_bytes());
    assert!(calls.iter().all(|call| call.body_crc32 == crc && call.body_bytes == body.len() as u64));
    let held = rss(&mut pair).saturating_sub(before);
    let bodies = (body.len() * at_once) as u64;
    // Beside the bodies some memory for the connections and what the allocator keeps.
    assert!(held <= bodies + bodies / 5 + (16 << 20), "{held} bytes held for {bodies} bytes of bodies");

    drop(connections);
    wait_for("the memory to be given back", WITHIN, || {
        rss(&mut pair).saturating_sub(before) < bodies / 4 + (16 << 20) && pair.engine.state().open_requests == 0
    });
}
