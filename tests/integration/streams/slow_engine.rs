//! An engine that reads a large request slowly, played by a relay of bytes before the simulated one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use llmgw_test_kit::raw::{self, Connection};
use llmgw_test_kit::{Engine, chat, wait_for};

use super::rig::{CHAT, WITHIN, builder, finish, llmgw, request};

/// Bytes of one read, and the pause after each, beyond the first megabyte of a connection.
const PIECE: usize = 256 * 1024;
const PAUSE: Duration = Duration::from_millis(5);
const BODY: usize = 24 << 20;

/// Listens before an engine and passes its requests on slowly; its threads end with their connections.
fn slow_before(engine: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(engine) = TcpStream::connect(engine) else { return };
            let (from_engine, to_client) = (engine.try_clone().expect("clone"), client.try_clone().expect("clone"));
            thread::spawn(move || pass(client, engine, PAUSE));
            thread::spawn(move || pass(from_engine, to_client, Duration::ZERO));
        }
    });
    addr
}

fn pass(mut from: TcpStream, mut to: TcpStream, pause: Duration) {
    let mut buffer = vec![0; PIECE];
    let mut total = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        total += read;
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        if total > 1 << 20 {
            thread::sleep(pause);
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_large_request_reaches_a_slow_engine_whole_and_holds_nobody_else_up() {
    let engine = Engine::local_with(|cfg| cfg.max_model_len = 1 << 40);
    let slow = slow_before(engine.addr());
    let other = format!("{{ name: quick, url: \"{}\", model: quick, engine: sim }}", engine.url());
    engine.configure(&serde_json::json!({ "models": [llmgw_test_kit::gateway::MODEL, "quick"] }));
    let gateway = builder("").url(&format!("http://{slow}")).endpoint(&other).start(llmgw());
    wait_for("both endpoints", WITHIN, || gateway.metrics().sum("llmgw_endpoint_ready", &[]) == Some(2.0));

    let large = chat(&"слово ".repeat(BODY / 11)).max_tokens(1);
    let mut connection = Connection::open(gateway.addr()).expect("a connection");
    let sender = {
        let bytes = request(&large);
        thread::spawn(move || {
            connection.send(&bytes).expect("sent");
            connection.reply()
        })
    };
    wait_for("the large request at its engine", WITHIN, || gateway.inflight() == 1.0);
    for _ in 0..10 {
        let reply = raw::post(gateway.addr(), CHAT, &chat("hi").model("quick").json());
        assert_eq!(reply.status, 200);
    }
    let reply = sender.join().expect("no panic").expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let sent = request(&large);
    let body = sent.len() - sent.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") - 4;
    let calls = engine.wait_for_calls(11, WITHIN, |call| call.outcome == "complete");
    assert!(calls.iter().any(|call| call.body_bytes == body as u64), "{body} bytes in one call");
    finish(gateway);
}

#[test]
fn a_client_that_leaves_while_its_request_is_being_sent_frees_the_engine() {
    let engine = Engine::local();
    let slow = slow_before(engine.addr());
    let gateway = builder("").url(&format!("http://{slow}")).start(llmgw());
    let mut connection = Connection::open(gateway.addr()).expect("a connection");
    connection.send(&request(&chat(&"word ".repeat(BODY / 5)))).expect("sent");
    wait_for("the large request at its engine", WITHIN, || gateway.inflight() == 1.0);
    connection.leave();
    wait_for("a free place", WITHIN, || gateway.inflight() == 0.0);
    finish(gateway);
}
