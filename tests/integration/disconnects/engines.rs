//! Engines that are down, come up, and go while they are used.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::{Engine, Gateway, chat, wait_for};
use serde_json::{Value, json};

use crate::streams::rig::{CHAT, WITHIN, builder, finish_expecting, llmgw};

/// What the gateway says in its log of an engine that goes.
const GONE: &[&str] = &["endpoint not ready"];

fn ask(gateway: &Gateway) -> Reply {
    raw::post(gateway.addr(), CHAT, &chat("x").json())
}

/// An address where nobody listens.
fn free_addr() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a port")
}

/// A refusal that names the replica and keeps its address to itself.
#[track_caller]
fn check_names_no_address(reply: &Reply, addr: SocketAddr) -> Value {
    let (text, json) = (reply.text(), reply.json());
    let message = json["error"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("engine-0"), "{text}");
    let whole = format!("{} {text}", String::from_utf8_lossy(&reply.head.bytes));
    assert!(!whole.contains(&addr.port().to_string()) && !whole.contains("127.0.0.1"), "{whole}");
    json
}

#[test]
fn an_engine_that_never_was_there_is_a_503_that_names_it_without_its_address() {
    let addr = free_addr();
    let gateway = builder("").url(&format!("http://{addr}")).not_ready().start(llmgw());
    for target in [gateway.addr(), gateway.admin_addr()] {
        assert_eq!(raw::get(target, "/readyz").status, 503);
        assert_eq!(raw::get(target, "/healthz").status, 200);
    }
    let reply = ask(&gateway);
    assert_eq!(reply.status, 503);
    assert_eq!(check_names_no_address(&reply, addr)["error"]["code"], "no_endpoint");
    assert!(reply.header("retry-after").is_some());
    // It comes.
    let engine = Engine::local_at(addr, |_| ());
    raw::wait_for_ok(gateway.admin_addr(), "/readyz", WITHIN);
    raw::wait_for_ok(gateway.addr(), "/readyz", WITHIN);
    assert_eq!(ask(&gateway).status, 200);
    finish_expecting(gateway, GONE);
    engine.stop();
}

#[test]
fn an_engine_that_goes_is_told_by_name_and_used_again_when_it_is_back() {
    let engine = Engine::local();
    let addr = engine.addr();
    let gateway = builder("").engine(&engine).start(llmgw());
    assert_eq!(ask(&gateway).status, 200);
    engine.stop();
    // Before the gateway has noticed it is an attempt that failed or that found nobody, afterwards no endpoint.
    wait_for("an engine known to be gone", WITHIN, || {
        let reply = ask(&gateway);
        let json = check_names_no_address(&reply, addr);
        let code = json["error"]["code"].as_str().unwrap_or("").to_owned();
        let is_fit = match code.as_str() {
            "engine_unreachable" | "engine_closed" => reply.status == 502,
            "no_endpoint" => reply.status == 503,
            _ => false,
        };
        assert!(is_fit, "{} {}", reply.status, reply.text());
        code == "no_endpoint" && gateway.admin("/readyz").status == 503
    });
    let engine = Engine::local_at(addr, |_| ());
    raw::wait_for_ok(gateway.admin_addr(), "/readyz", WITHIN);
    assert_eq!(ask(&gateway).status, 200);
    assert_eq!(engine.calls().len(), 1);
    finish_expecting(gateway, GONE);
    engine.stop();
}

#[test]
fn an_engine_is_ready_only_when_it_lists_its_model() {
    let engine = Engine::local_with(|cfg| cfg.models = vec!["another".to_owned()]);
    let gateway = builder("").engine(&engine).not_ready().start(llmgw());
    wait_for("a first look", WITHIN, || engine.requests().iter().any(|request| request.target == "/v1/models"));
    assert_eq!((gateway.admin("/readyz").status, ask(&gateway).status), (503, 503));
    engine.configure(&json!({ "models": [llmgw_test_kit::gateway::MODEL] }));
    raw::wait_for_ok(gateway.admin_addr(), "/readyz", WITHIN);
    assert_eq!(ask(&gateway).status, 200);
    finish_expecting(gateway, GONE);
}

#[test]
fn an_engine_that_is_loading_gets_no_traffic_until_it_is_done() {
    let engine = Engine::local();
    engine.set_faults(json!({ "unready_us": 60_000_000, "reach": "all" }));
    let gateway = builder("").engine(&engine).not_ready().start(llmgw());
    wait_for("a first look", WITHIN, || engine.requests().iter().any(|request| request.target == "/health"));
    assert_eq!((gateway.admin("/readyz").status, ask(&gateway).status), (503, 503));
    assert!(engine.calls().is_empty());
    engine.set_faults(json!({}));
    raw::wait_for_ok(gateway.admin_addr(), "/readyz", WITHIN);
    assert_eq!(ask(&gateway).status, 200);
    finish_expecting(gateway, GONE);
}

#[test]
fn one_engine_of_two_is_enough() {
    let (engine, addr) = (Engine::local(), free_addr());
    let gateway = builder("").url(&format!("http://{addr}")).engine(&engine).start(llmgw());
    for _ in 0..10 {
        assert_eq!(ask(&gateway).status, 200);
    }
    assert_eq!(engine.calls().len(), 10);
    finish_expecting(gateway, GONE);
}
