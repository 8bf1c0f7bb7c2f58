//! Sessions that went to another engine than their own, over whichever core their next request comes.

use std::collections::HashSet;

use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, chat, wait_for};
use serde_json::json;

use crate::pair::{CHAT, WITHIN};
use crate::reliability::rig::Fleet;

fn request(session: &str, chat: &Chat) -> Vec<u8> {
    Request::new("POST", CHAT).header("x-session-id", session).json(&chat.json()).bytes()
}

/// From a connection of its own, so on any core.
#[track_caller]
fn replica(fleet: &Fleet, session: &str) -> String {
    let reply: Reply = raw::call(fleet.gateway.addr(), &request(session, &chat("hello")));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-llmgw-replica").expect("who answered").to_owned()
}

#[test]
fn a_session_that_overflowed_stays_where_it_went_on_every_core_and_others_ask_nobody() {
    let fleet = Fleet::of((0..3).map(|_| llmgw_test_kit::Engine::local()).collect(), "", |builder| builder.cores(3));
    let messages = |outcome: &[(&str, &str)]| fleet.count("llmgw_session_messages_total", outcome);
    for session in (0..20).map(|at| format!("session {at}")) {
        let seen: HashSet<String> = (0..4).map(|_| replica(&fleet, &session)).collect();
        assert_eq!(seen.len(), 1, "{session}");
    }
    assert_eq!(messages(&[]), 0, "ordinary sessions are computed");

    let own = replica(&fleet, "s");
    let held: Vec<Connection> = (1..=2)
        .map(|count| {
            let mut connection = Connection::open(fleet.gateway.addr()).expect("a connection");
            connection.send(&request("s", &chat("x").faults(json!({ "blackhole": true })))).expect("sent");
            let there = || fleet.count("llmgw_endpoint_inflight", &[("replica", &own)]) == count;
            wait_for("a request that stays at the session's own engine", WITHIN, there);
            connection
        })
        .collect();
    let away = replica(&fleet, "s");
    assert_ne!(away, own, "its own engine is full");
    drop(held);
    fleet.wait_until_idle();
    // Its own engine has room again; the other one has the session's cache.
    wait_for("the session's owner to have heard of it", WITHIN, || replica(&fleet, "s") == away);
    for at in 0..40 {
        assert_eq!(replica(&fleet, "s"), away, "request {at}");
    }
    assert!(messages(&[("about", "session"), ("outcome", "found")]) > 0, "some core was not the owner");
    assert_eq!(messages(&[("about", "response")]), 0);

    // The engine that it went to is out: home again, and nobody is asked any more.
    let at: usize = away.strip_prefix("engine-").and_then(|at| at.parse().ok()).expect("a name");
    fleet.engines[at].set_faults(json!({ "status": 503 }));
    wait_for("the session to be home again", WITHIN, || replica(&fleet, "s") == own);
    wait_for("its owner to have forgotten it", WITHIN, || {
        let before = messages(&[]);
        (0..10).for_each(|_| assert_eq!(replica(&fleet, "s"), own));
        messages(&[]) == before
    });
}
