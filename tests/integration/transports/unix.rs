//! Engines behind UNIX sockets.

use llmgw_test_kit::raw;
use llmgw_test_kit::{Engine, chat};

use super::relay;
use crate::pair::{CHAT, WITHIN, llmgw};
use crate::streams::rig::{builder, finish_expecting};

#[test]
fn an_engine_whose_socket_comes_later_is_not_ready_until_then() {
    let (engine, folder) = (Engine::local(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("engine.sock");
    let gateway = builder("").url(&format!("unix:{}", path.display())).not_ready().start(llmgw());
    let reply = raw::post(gateway.addr(), CHAT, &chat("x").json());
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &"no_endpoint".into()));
    assert!(!reply.text().contains("engine.sock"), "{}", reply.text());
    relay::unix(&path, engine.addr());
    raw::wait_for_ok(gateway.admin_addr(), "/readyz", WITHIN);
    assert_eq!(raw::post(gateway.addr(), CHAT, &chat("x").json()).status, 200);
    finish_expecting(gateway, &["endpoint not ready"]);
}
