//! Engines killed, frozen, cut off and brought back while requests come.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use llmgw_test_kit::{Engine, Signal, chat, wait_for};
use serde_json::json;

use super::rig::{Fleet, assert_all_well};
use crate::pair::{WITHIN, error_of};

/// Checks come so seldom that only requests notice what happens.
const UNWATCHED: &str = "scrape_interval: 60s\ntimeouts: { connect: 2s }";

#[test]
fn of_three_engines_one_is_killed_and_no_request_fails() {
    let mut fleet = Fleet::processes(3, UNWATCHED);
    let mut victim = fleet.engines.remove(0);
    let chat = chat("hello").faults(json!({ "first_byte_delay_us": 20_000 }));
    let replies = fleet.load(8, 60, &chat, || {
        victim.wait_for_calls(20, WITHIN, |_| true);
        victim.process().expect("a process").kill().expect("killed");
    });
    assert_all_well(&replies);
    assert!(fleet.count("llmgw_retries_total", &[]) > 0, "somebody was under way there");
    assert!(fleet.count("llmgw_cooldowns_total", &[]) > 0);
}

#[test]
fn with_all_engines_down_a_client_hears_it_at_once_and_of_whom() {
    let mut fleet = Fleet::processes(3, UNWATCHED);
    for engine in &mut fleet.engines {
        engine.process().expect("a process").kill().expect("killed");
    }
    for _ in 0..3 {
        let reply = fleet.ask(&chat("hello"));
        assert_eq!(error_of(&reply), (503, json!("no_endpoint"), json!(null)));
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert!(reply.text().contains("engine-"), "{}", reply.text());
    }
}

/// A listening socket that takes no more connections: what is sent to it is dropped, as by a host that is gone.
struct Hole {
    _listener: socket2::Socket,
    _fill: Vec<TcpStream>,
}

fn dig(addr: SocketAddr) -> Hole {
    let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None).expect("socket");
    socket.set_reuse_address(true).expect("reuse");
    wait_for("the address to be free", WITHIN, || socket.bind(&addr.into()).is_ok());
    socket.listen(0).expect("listen");
    let mut fill = Vec::new();
    // The queue holds one or two; the first that gets no answer shows that it is full.
    while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        fill.push(stream);
        assert!(fill.len() < 16, "a queue of length 0 takes no end of connections");
    }
    Hole { _listener: socket, _fill: fill }
}

#[test]
fn an_engine_behind_a_black_hole_costs_time_and_no_request() {
    let mut fleet = Fleet::processes(3, UNWATCHED);
    let gone = fleet.engines.remove(0);
    let addr = gone.addr();
    gone.stop();
    let _hole = dig(addr);
    assert_all_well(&fleet.load(6, 5, &chat("hello"), || ()));
    let mut holes = Vec::new();
    for engine in fleet.engines.drain(..) {
        let addr = engine.addr();
        engine.stop();
        holes.push(dig(addr));
    }
    let began = Instant::now();
    let reply = fleet.ask(&chat("hello"));
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.json()["error"]["code"], "no_endpoint");
    // The time for a connection, and some for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_frozen_engine_loses_what_was_sent_to_it_and_nothing_after_and_takes_part_again_when_it_thaws() {
    let router = "scrape_interval: 60s\ncooldown_seconds: 1\ntimeouts: { first_token: 500ms }";
    let mut fleet = Fleet::processes(3, router);
    let mut frozen = fleet.engines.remove(0);
    frozen.process().expect("a process").signal(Signal::STOP).expect("frozen");
    let replies = fleet.load(4, 10, &chat("hello"), || ());
    let failed: Vec<_> = replies.iter().filter(|reply| reply.status != 200).collect();
    assert!(failed.len() < replies.len() / 2, "{} of {} failed", failed.len(), replies.len());
    for reply in failed {
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (504, &json!("first_token_timeout")));
    }
    frozen.process().expect("a process").signal(Signal::CONT).expect("thawed");
    frozen.reset();
    wait_for("requests at the thawed engine", WITHIN, || {
        fleet.ask(&chat("hello"));
        frozen.calls().iter().any(|call| call.outcome == "complete")
    });
}

#[test]
fn an_engine_that_was_killed_and_comes_back_gets_requests_again() {
    let mut fleet = Fleet::of(
        (0..2).map(|_| Engine::local()).collect(),
        "scrape_interval: 100ms\ncooldown_seconds: 1",
        |builder| builder,
    );
    let gone = fleet.engines.remove(0);
    let addr = gone.addr();
    gone.stop();
    assert_all_well(&fleet.load(4, 10, &chat("hello"), || ()));
    let back = Engine::local_at(addr, |_| ());
    wait_for("requests at the engine that came back", WITHIN, || {
        assert_eq!(fleet.ask(&chat("hello")).status, 200);
        !back.calls().is_empty()
    });
}
