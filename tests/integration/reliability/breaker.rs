//! An endpoint that fails is left alone, tried again by one request, and takes part again when that one is answered.

use llmgw_test_kit::{chat, wait_for};
use serde_json::json;

use super::rig::{Fleet, assert_all_well};
use crate::pair::WITHIN;

/// Sends until the first engine's breaker is not closed any more.
#[track_caller]
fn trip(fleet: &Fleet) {
    wait_for("an open breaker", WITHIN, || {
        fleet.ask(&chat("hello"));
        fleet.breaker(0) != 0
    });
}

#[test]
fn a_breaker_opens_half_opens_by_time_and_closes_with_one_answer() {
    let fleet = Fleet::local(2, "cooldown_seconds: 0");
    fleet.engines[0].set_faults(json!({ "status": 500 }));
    trip(&fleet);
    assert_eq!(fleet.engines[0].calls().len(), 5, "five failures in a row open it");
    wait_for("a half-open breaker", WITHIN, || fleet.breaker(0) == 1);
    assert_eq!(fleet.engines[0].calls().len(), 5, "time alone asks nobody");
    fleet.engines[0].set_faults(json!({}));
    wait_for("a closed breaker", WITHIN, || {
        assert_eq!(fleet.ask(&chat("hello")).status, 200);
        fleet.breaker(0) == 0
    });
    let before = fleet.engines[0].calls().len();
    wait_for("its share of requests", WITHIN, || {
        assert_eq!(fleet.ask(&chat("hello")).status, 200);
        fleet.engines[0].calls().len() > before
    });
}

/// Lines of the log that speak of a breaker: which, of whom, why.
fn said(fleet: &mut Fleet) -> Vec<(String, String, String)> {
    let lines = fleet.gateway.process().lines();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(&line.text).ok());
    let word = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let lines = lines.map(|line| (word(&line, "message"), word(&line, "replica"), word(&line, "reason")));
    lines.filter(|(message, ..)| message.contains("breaker")).collect()
}

#[test]
fn the_log_says_once_that_a_breaker_opened_and_once_that_it_closed() {
    let mut fleet = Fleet::local(2, "cooldown_seconds: 0");
    let opened = ("the endpoint's breaker opens", "engine-0", "its requests fail");
    let closed = ("the endpoint's breaker is closed again", "engine-0", "");
    let owned = |line: (&str, &str, &str)| (line.0.to_owned(), line.1.to_owned(), line.2.to_owned());
    for round in 1..=2 {
        fleet.engines[0].set_faults(json!({ "status": 500 }));
        trip(&fleet);
        wait_for("a word on it", WITHIN, || said(&mut fleet).len() == 2 * round - 1);
        let trials = fleet.engines[0].calls().len();
        wait_for("a trial that failed", WITHIN, || {
            fleet.ask(&chat("hello"));
            fleet.engines[0].calls().len() > trials
        });
        fleet.engines[0].set_faults(json!({}));
        wait_for("a closed breaker", WITHIN, || {
            fleet.ask(&chat("hello"));
            fleet.breaker(0) == 0
        });
        wait_for("a word on that", WITHIN, || said(&mut fleet).len() == 2 * round);
        assert_eq!(said(&mut fleet), vec![[owned(opened), owned(closed)]; round].concat());
    }
}

#[test]
fn a_failed_trial_opens_it_for_longer_and_costs_one_request() {
    let fleet = Fleet::local(2, "cooldown_seconds: 0");
    fleet.engines[0].set_faults(json!({ "status": 500 }));
    trip(&fleet);
    wait_for("a half-open breaker", WITHIN, || fleet.breaker(0) == 1);
    // One of these at most is the trial; the others go to the engine that is well.
    let replies = fleet.load(4, 10, &chat("hello"), || ());
    let failed = replies.iter().filter(|reply| reply.status != 200).count();
    assert!(failed <= 1, "{failed} of {} failed", replies.len());
}

// S8
#[test]
fn streams_that_break_open_the_breaker_and_are_not_tried_again() {
    let fleet = Fleet::local(1, "cooldown_seconds: 0");
    let broken = chat("x").streamed().faults(json!({ "events": 20, "close_after_events": 5 }));
    for _ in 0..5 {
        let reply = fleet.ask(&broken);
        assert!(reply.text().contains("engine_closed") && !reply.text().contains("[DONE]"), "{}", reply.text());
    }
    assert_eq!(fleet.calls().len(), 5);
    wait_for("an open breaker", WITHIN, || fleet.breaker(0) != 0);
    assert_eq!(fleet.count("llmgw_broken_streams_total", &[]), 5);
    // The only engine there is: better a try than a refusal.
    assert_all_well(&[fleet.ask(&chat("hello"))]);
}

#[test]
fn an_engine_that_ends_its_streams_with_an_error_of_its_own_is_left_to_the_other() {
    let fleet = Fleet::local(2, "cooldown_seconds: 0");
    fleet.engines[0].set_faults(json!({
        "script": ["data: {\"error\":{\"message\":\"EngineCore died\",\"code\":500}}\n\n", "data: [DONE]\n\n"],
        "framing": "chunked",
    }));
    wait_for("an open breaker", WITHIN, || {
        fleet.ask(&chat("hello").streamed());
        fleet.breaker(0) != 0
    });
    assert_eq!(fleet.engines[0].calls().len(), 5);
}

/// Plan 7.6: three failed scrapes in a row trip the breaker.
#[test]
fn an_engine_whose_metrics_die_is_left_alone_until_they_are_back() {
    let fleet = Fleet::local(2, "scrape_interval: 50ms\ncooldown_seconds: 0");
    let is_stale = |engine: &str| fleet.count("llmgw_endpoint_metrics_stale", &[("replica", engine)]);
    wait_for("a page of each", WITHIN, || {
        let shown = fleet.gateway.metrics();
        ["engine-0", "engine-1"].iter().all(|name| shown.sum("llmgw_endpoint_running", &[("replica", name)]).is_some())
    });
    // A path that an engine does not know says nothing of the engine.
    fleet.engines[0].configure(&json!({ "metrics_status": 404 }));
    wait_for("no page", WITHIN, || is_stale("engine-0") == 1);
    let pages = || {
        let of_metrics = |call: &llmgw_test_kit::engine::Recorded| call.target == "/metrics";
        fleet.engines[0].requests().iter().filter(|call| of_metrics(call)).count()
    };
    let before = pages();
    wait_for("five more scrapes", WITHIN, || pages() >= before + 5);
    assert_eq!(fleet.breaker(0), 0);
    fleet.engines[0].configure(&json!({ "metrics_status": null }));
    wait_for("the page again", WITHIN, || is_stale("engine-0") == 0);

    let before = pages();
    fleet.engines[0].configure(&json!({ "metrics_status": 500 }));
    wait_for("an open breaker", WITHIN, || fleet.breaker(0) == 2);
    assert!(pages() >= before + 3, "three failures in a row, no fewer");
    let before = fleet.engines[0].calls().len();
    let replies = fleet.load(2, 20, &chat("hello"), || ());
    assert_all_well(&replies);
    assert_eq!(fleet.engines[0].calls().len(), before, "its API lives, and nobody asks it");
    assert_eq!(fleet.breaker(1), 0);

    fleet.engines[0].configure(&json!({ "metrics_status": null }));
    wait_for("a half-open breaker", WITHIN, || fleet.breaker(0) == 1);
    wait_for("a closed breaker", WITHIN, || {
        assert_eq!(fleet.ask(&chat("hello")).status, 200);
        fleet.breaker(0) == 0
    });
    wait_for("its share of requests", WITHIN, || {
        fleet.ask(&chat("hello"));
        fleet.engines[0].calls().len() > before + 1
    });
}
