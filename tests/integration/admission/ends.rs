//! Clients and gateways that leave while requests wait, and what is left of them: nothing.

use std::thread::sleep;

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::{Signal, chat, full_or, wait_for};
use serde_json::json;

use super::rig::{A_WHILE, Rig, TWO_BANDS, stalled};
use crate::pair::{WITHIN, error_of};

// D2, the queued half
#[test]
fn a_client_that_leaves_frees_its_turn_at_once_and_reaches_no_engine() {
    let rig = Rig::start(1, TWO_BANDS);
    let held = rig.hold(1);
    let gone = rig.open("high", &chat("gone"));
    rig.wait_until_waiting(1);
    let stays = rig.ask("low", &chat("stays"));
    rig.wait_until_waiting(2);
    gone.leave();
    rig.wait_until_waiting(1);
    assert_eq!(rig.rejected("client_gone"), 1);
    rig.engine.release();
    held.into_iter().chain([stays]).for_each(|call| assert_eq!(call.reply().status, 200));
    assert_eq!(rig.prompts(), ["stays"]);
    rig.assert_at_rest(1);
}

// D5
#[test]
fn a_gateway_that_ends_refuses_those_that_wait_and_finishes_those_that_run() {
    let (running, queued) = full_or((20, 50), (2, 5));
    let mut rig = Rig::start(running, TWO_BANDS);
    let held = rig.hold(running.into());
    let waiting: Vec<_> = (0..queued).map(|_| rig.ask("low", &chat("waits"))).collect();
    rig.wait_until_waiting(queued);
    rig.gateway.process().signal(Signal::TERM).expect("a signal");
    for call in waiting {
        let reply = call.reply();
        assert_eq!(error_of(&reply), (503, json!("shutting_down"), json!(null)));
        assert!(reply.header("retry-after").is_some());
    }
    assert!(held.iter().all(|call| !call.has_ended()), "what runs goes on");
    wait_for("a closed door", WITHIN, || Connection::open(rig.gateway.addr()).is_err());
    rig.engine.release();
    held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    let status = rig.gateway.process().wait(WITHIN).expect("an end");
    assert!(status.success(), "{status}");
    assert!(rig.prompts().is_empty());
}

// R10
#[test]
fn after_endings_of_every_kind_every_place_is_free() {
    let rounds = if crate::pair::is_full() { 2000 } else { 25 };
    let rig = Rig::start(4, &format!("queue_ttl: 100ms, queue_capacity_per_band: 8, {TWO_BANDS}"));
    for round in 0..rounds {
        let held: Vec<_> = (0..4).map(|_| rig.ask("low", &stalled())).collect();
        let mut leaving: Vec<Connection> = (0..6).map(|_| rig.open("low", &chat("leaves"))).collect();
        let calls: Vec<_> = (0..12)
            .map(|at| match at % 4 {
                0 => rig.ask("high", &chat("fails").faults(json!({ "close_after_bytes": 1 }))),
                1 => rig.ask("low", &chat("busy").faults(json!({ "status": 400 }))),
                2 => rig.ask("high", &chat("streams").streamed()),
                _ => rig.ask("low", &chat("ends")),
            })
            .collect();
        if round % 2 == 0 {
            sleep(A_WHILE);
        }
        leaving.drain(..).for_each(Connection::leave);
        // Some may come to the engine after it let go of the others.
        let mut ended = 0;
        wait_for("all answered", WITHIN, || {
            rig.engine.release();
            ended = held.iter().chain(&calls).filter(|call| call.has_ended()).count();
            ended == 16
        });
    }
    // An engine that failed is let cool down.
    wait_for("the engine back", WITHIN * 3, || rig.ask("high", &chat("back")).reply().status == 200);
    rig.assert_at_rest(4);
    wait_for("the last to be counted down", WITHIN, || rig.count("llmgw_requests_in_flight", &[]) == 0);
}
