//! When a request is tried again, where, and how often at most.

use std::collections::HashMap;

use llmgw_test_kit::{chat, full_or, wait_for};
use serde_json::json;

use super::rig::{Fleet, assert_all_well};
use crate::pair::WITHIN;

/// No request was at the same engine twice.
#[track_caller]
pub(super) fn assert_nobody_came_twice(fleet: &Fleet) {
    for engine in &fleet.engines {
        let mut seen: HashMap<String, u32> = HashMap::new();
        for call in engine.calls() {
            *seen.entry(call.header("x-request-id").expect("an id").to_owned()).or_default() += 1;
        }
        assert!(seen.values().all(|&times| times == 1), "{seen:?}");
    }
}

#[test]
fn a_refusal_of_one_engine_is_made_good_by_another() {
    for status in [503, 429] {
        let fleet = Fleet::local(3, "cooldown_seconds: 0");
        fleet.engines[0].set_faults(json!({ "status": status }));
        fleet.engines[1].set_faults(json!({ "status": status }));
        let replies = fleet.load(1, 8, &chat("hello"), || ());
        assert_all_well(&replies);
        assert_nobody_came_twice(&fleet);
        assert_eq!(fleet.engines[2].calls().len(), 8);
        let reason = status.to_string();
        assert!(fleet.count("llmgw_retries_total", &[("reason", &reason)]) > 0);
    }
}

#[test]
fn with_no_retries_configured_the_refusal_is_the_answer() {
    let fleet = Fleet::local(2, "retries: 0\ncooldown_seconds: 0");
    fleet.set_faults(&json!({ "status": 503 }));
    let reply = fleet.ask(&chat("hello"));
    assert_eq!((reply.status, fleet.calls().len()), (503, 1));
}

#[test]
fn a_request_is_tried_at_most_so_often_as_configured_and_each_time_elsewhere() {
    let fleet = Fleet::local(4, "retries: 2");
    fleet.set_faults(&json!({ "status": 503, "retry_after_s": 0 }));
    let reply = fleet.ask(&chat("hello"));
    assert_eq!((reply.status, fleet.calls().len()), (503, 3));
    assert_nobody_came_twice(&fleet);
}

#[test]
fn an_engine_that_says_for_how_long_it_is_busy_is_left_alone() {
    let fleet = Fleet::local(2, "cooldown_seconds: 0");
    fleet.engines[0].set_faults(json!({ "status": 429, "retry_after_s": 60 }));
    // Equals share, so that it is soon asked once; then never again.
    for _ in 0..40 {
        assert_eq!(fleet.ask(&chat("hello")).status, 200);
    }
    assert_eq!(fleet.engines[0].calls().len(), 1);
    assert_eq!(fleet.count("llmgw_endpoint_cooling", &[("replica", "engine-0")]), 1);
    assert_eq!(fleet.breaker(0), 0, "busy is not broken");
}

#[test]
fn when_all_are_busy_the_client_hears_it_from_an_engine() {
    let fleet = Fleet::local(2, "");
    fleet.set_faults(&json!({ "status": 429, "retry_after_s": 7 }));
    for _ in 0..3 {
        let reply = fleet.ask(&chat("hello"));
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("7")), "{}", reply.text());
        // Cooldowns reach the board by way of the core that owns the endpoint.
        wait_for("both cooldowns", WITHIN, || fleet.count("llmgw_endpoint_cooling", &[]) == 2);
    }
    // Two tries of the first request, then one each at the one that comes back first.
    assert_eq!(fleet.calls().len(), 4);
    assert_eq!(fleet.count("llmgw_last_resorts_total", &[]), 2);
}

#[test]
fn other_refusals_and_a_clients_own_mistakes_are_not_tried_again_and_cool_nobody_down() {
    for status in [400, 404, 422, 500, 501] {
        let fleet = Fleet::local(2, "");
        fleet.set_faults(&json!({ "status": status }));
        assert_eq!(fleet.ask(&chat("hello")).status, status);
        assert_eq!(fleet.calls().len(), 1, "{status}");
        assert_eq!(fleet.count("llmgw_cooldowns_total", &[]), 0, "{status}");
    }
}

#[test]
fn nothing_is_tried_again_once_a_byte_went_to_the_client() {
    let fleet = Fleet::local(3, "");
    let reply =
        fleet.ask(&chat("x").streamed().faults(json!({ "events": 20, "close_after_events": 2, "reset": true })));
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("engine_closed") && !reply.text().contains("[DONE]"), "{}", reply.text());
    assert_eq!((fleet.calls().len(), fleet.count("llmgw_retries_total", &[])), (1, 0));
}

// H2
#[test]
fn a_sick_pool_meets_no_more_than_its_traffic_and_a_fifth() {
    for router in ["", "cooldown_seconds: 0"] {
        let fleet = Fleet::local(3, router);
        fleet.set_faults(&json!({ "status": 503 }));
        let each = full_or(500, 60);
        let replies = fleet.load(8, each, &chat("hello"), || ());
        assert!(replies.iter().all(|reply| reply.status == 503));
        // Each of the two cores may add the floor of its budget.
        let (attempts, sent) = (fleet.calls().len(), replies.len());
        assert!(attempts <= sent + sent / 5 + 2 * 10, "{attempts} attempts for {sent} requests");
    }
}
