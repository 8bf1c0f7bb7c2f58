//! Answers that break before anything of them went to the client are made good elsewhere; what went to it is not
//! unsaid.

use llmgw_test_kit::raw::End;
use llmgw_test_kit::{chat, full_or, wait_for};
use serde_json::{Value, json};

use super::retries::assert_nobody_came_twice;
use super::rig::{Fleet, assert_all_well};
use crate::pair::WITHIN;

/// As many bytes of an answer as are held until it is whole.
const HELD: usize = 16 * 1024;

/// Half of the body at once, a part of the rest a moment later, then the end of the connection.
fn later(body: &str, framing: &str, is_reset: bool) -> Value {
    let (first, rest) = body.split_at(body.len() / 2);
    let (second, third) = rest.split_at(rest.len() / 2);
    let script = json!([first, [second, 50_000], third]);
    json!({ "script": script, "framing": framing, "close_after_events": 2, "reset": is_reset })
}

/// Whole answers that end too soon, before a byte of theirs could have gone to the client.
fn broken() -> Vec<(&'static str, Value)> {
    let (short, held) = ("x".repeat(2_000), "x".repeat(HELD));
    vec![
        ("closes after the head of an answer with a length", json!({ "body": short, "close_after_bytes": 0 })),
        ("resets after it", json!({ "body": short, "close_after_bytes": 0, "reset": true })),
        (
            "closes after the head of a chunked answer",
            json!({ "body": short, "framing": "chunked", "close_after_bytes": 0 }),
        ),
        ("closes short of its length", json!({ "body": short, "close_after_bytes": 1_999 })),
        ("resets short of its length", json!({ "body": short, "close_after_bytes": 1_999, "reset": true })),
        ("closes later, short of its length", later(&short, "length", false)),
        ("closes short of the longest answer that is held", json!({ "body": held, "close_after_bytes": HELD - 1 })),
        ("closes later, short of that", later(&held, "length", false)),
    ]
}

// H1, S8
#[test]
fn an_answer_that_breaks_before_its_first_byte_went_out_comes_from_another_engine() {
    for (name, faults) in broken() {
        let fleet = Fleet::local(2, "cooldown_seconds: 0");
        fleet.engines[0].set_faults(faults);
        // Which engine a request tries first is drawn, among equals, and what was read of them makes one the better for
        // a while: so not a count of requests but the broken answers say when it was enough.
        wait_for("two broken answers", WITHIN, || {
            let reply = fleet.ask(&chat("hello"));
            assert_eq!(reply.header("x-llmgw-replica"), Some("engine-1"), "{name}");
            assert_all_well(&[reply]);
            fleet.engines[0].calls().len() >= 2
        });
        assert_nobody_came_twice(&fleet);
        let (tried, retried) = (fleet.engines[0].calls().len(), fleet.count("llmgw_retries_total", &[]));
        assert_eq!(tried as u64, retried, "{name}: every broken answer is made good");
        assert_eq!(fleet.count("llmgw_retries_total", &[("reason", "closed")]), retried, "{name}");
        fleet.wait_until_idle();
    }
}

#[test]
fn with_nobody_to_make_it_good_the_client_hears_of_the_break_before_any_of_the_answer() {
    for (name, faults) in broken() {
        let fleet = Fleet::local(2, "cooldown_seconds: 0");
        fleet.set_faults(&faults);
        let reply = fleet.ask(&chat("hello"));
        assert_eq!((reply.status, reply.end), (502, End::Complete), "{name}: {}", reply.text());
        assert_eq!(reply.json()["error"]["code"], "engine_closed", "{name}");
        assert_eq!(fleet.calls().len(), 2, "{name}");
        assert_nobody_came_twice(&fleet);
    }
}

#[test]
fn what_went_to_the_client_is_not_asked_for_again_and_the_connection_breaks_in_sight() {
    let long = "x".repeat(HELD + 1);
    for (name, faults) in [
        ("longer than what is held", later(&long, "length", false)),
        ("longer than that, and reset", later(&long, "length", true)),
        ("without a length", later("not much", "chunked", false)),
        ("without a length, and reset", later("not much", "chunked", true)),
    ] {
        let fleet = Fleet::local(2, "cooldown_seconds: 0");
        fleet.set_faults(&faults);
        let reply = fleet.ask(&chat("hello"));
        assert!(matches!(reply.end, End::Cut(_)), "{name}: {} {:?}", reply.status, reply.end);
        assert_eq!((reply.status, fleet.calls().len()), (200, 1), "{name}");
        assert_eq!(fleet.count("llmgw_retries_total", &[]), 0, "{name}");
    }
}

// H2
#[test]
fn engines_that_all_break_meet_no_more_than_their_traffic_and_a_fifth() {
    let fleet = Fleet::local(3, "cooldown_seconds: 0");
    fleet.set_faults(&json!({ "body": "x".repeat(100), "close_after_bytes": 50 }));
    let replies = fleet.load(8, full_or(500, 60), &chat("hello"), || ());
    assert!(replies.iter().all(|reply| reply.status == 502));
    // Each of the two cores may add the floor of its budget.
    let (attempts, sent) = (fleet.calls().len(), replies.len());
    assert!(attempts <= sent + sent / 5 + 2 * 10, "{attempts} attempts for {sent} requests");
    fleet.wait_until_idle();
}
