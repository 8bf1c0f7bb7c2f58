//! Who is let in, and what becomes of those who are not.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use llmgw_test_kit::raw::{self, Connection, Trust};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};
use rustls::ALL_VERSIONS;

use super::rig::{NAME, Rig, ask};
use crate::pair::error_of;
use crate::streams::rig::{CHAT, WITHIN, finish, finish_expecting};

#[test]
fn a_handshake_that_comes_byte_by_byte_is_a_handshake() {
    let rig = Rig::start();
    let mut session = rig.pair.trusted().session(NAME);
    let mut stream = TcpStream::connect(rig.gateway.addr()).expect("a connection");
    stream.set_nodelay(true).expect("an option");
    while session.is_handshaking() {
        let mut wire = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut wire).expect("memory");
        }
        wire.iter().for_each(|byte| stream.write_all(&[*byte]).expect("sent"));
        if session.is_handshaking() {
            session.read_tls(&mut stream).expect("read");
            session.process_new_packets().expect("TLS");
        }
    }
    let mut within = rustls::Stream::new(&mut session, &mut stream);
    let request = Request::new("POST", CHAT).header("Connection", "close").json(&chat("hello").json()).bytes();
    within.write_all(&request).expect("sent");
    let mut reply = Vec::new();
    within.read_to_end(&mut reply).expect("a reply, and an end in order");
    assert!(reply.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&reply));
    assert_eq!(rig.handshakes("full"), 1);
    finish(rig.gateway);
}

#[test]
fn plain_http_is_answered_in_plain_text_and_the_log_says_so_once() {
    let mut rig = Rig::start();
    for _ in 0..3 {
        let reply = raw::post(rig.gateway.addr(), CHAT, &chat("x").json());
        assert_eq!(error_of(&reply).0, 400);
        assert!(reply.text().contains("this address speaks TLS: use https://"), "{}", reply.text());
    }
    // A body that is still coming does not take the answer away.
    let long = Request::new("POST", CHAT).body("application/json", "x".repeat(300_000));
    assert_eq!(raw::call(rig.gateway.addr(), &long.bytes()).status, 400);
    let said = "clients speak plain HTTP to an address that speaks TLS";
    let lines =
        |rig: &mut Rig| rig.gateway.process().lines().into_iter().filter(|line| line.text.contains(said)).count();
    wait_for("a line in the log", WITHIN, || lines(&mut rig) > 0);
    assert_eq!((rig.handshakes("plain_text"), lines(&mut rig), rig.engine.calls().len()), (4, 1, 0));
    assert_eq!(ask(&mut rig.open(), &chat("hello")).status, 200);
    finish_expecting(rig.gateway, &[said]);
}

#[test]
fn who_leaves_in_the_midst_of_it_is_too_slow_or_speaks_something_else_is_let_go() {
    let rig = Rig::with("client_header: 2s", |builder| builder);
    let mut hello = Vec::new();
    rig.pair.trusted().session(NAME).write_tls(&mut hello).expect("memory");
    let open = || TcpStream::connect(rig.gateway.addr()).expect("a connection");
    // Without a word, with half a word, and after a whole one.
    for part in [0, hello.len() / 2, hello.len()] {
        open().write_all(&hello[..part]).expect("sent");
    }
    wait_for("three that left", WITHIN, || rig.handshakes("client_gone") == 3);
    let mut slow: Vec<TcpStream> = (0..2).map(|_| open()).collect();
    slow[1].write_all(&hello[..hello.len() / 2]).expect("sent");
    wait_for("two that were too slow", WITHIN, || rig.handshakes("too_slow") == 2);
    for stream in &mut slow {
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "it is closed");
    }
    // The words of a server, from a client.
    let (mut other, mut wrong) = (open(), hello.clone());
    wrong[5] = 2;
    other.write_all(&wrong).expect("sent");
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer);
    assert!(answer.len() < 100, "an alert at most: {answer:?}");
    wait_for("one that failed", WITHIN, || rig.handshakes("failed") == 1);
    assert_eq!(ask(&mut rig.open(), &chat("hello")).status, 200);
    wait_for("nobody", WITHIN, || rig.gateway.metrics().sum("llmgw_client_connections", &[]) == Some(0.0));
    finish(rig.gateway);
}

#[test]
fn the_protocol_is_http_1_1_and_who_wants_another_is_refused() {
    let rig = Rig::start();
    let offering = |protocols: &[&str]| {
        let trust = Trust::with(&[&rig.pair.cert()], ALL_VERSIONS, protocols);
        Connection::open_tls(rig.gateway.addr(), &trust, NAME)
    };
    assert_eq!(offering(&["h2", "http/1.1"]).expect("both").protocol().as_deref(), Some("http/1.1"));
    assert_eq!(offering(&[]).expect("none").protocol(), None);
    assert!(offering(&["h2"]).is_err());
    wait_for("one that failed", WITHIN, || rig.handshakes("failed") == 1);
    finish(rig.gateway);
}
