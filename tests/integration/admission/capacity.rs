//! What an engine runs at once where nobody configured it: what the engine says, and what is taken where it says
//! nothing.

use llmgw_engine_sim::Vocabulary;
use llmgw_test_kit::{Engine, Gateway, wait_for};
use serde_json::json;

use super::rig::{Rig, TWO_BANDS, stalled};
use crate::pair::{WITHIN, llmgw};

/// What an engine of which nothing is known is taken to run.
const START: u64 = 128;

fn rig(engine: Engine, kind: &str, router: &str) -> Rig {
    let endpoint = format!("{{ name: e, url: \"{}\", model: test-model, engine: {kind} }}", engine.url());
    let router = format!("{router}\ntimeouts: {{ settle: 0s }}\nadmission: {{ {TWO_BANDS} }}");
    Rig { gateway: Gateway::builder().endpoint(&endpoint).router(&router).start(llmgw()), engine }
}

#[test]
fn an_engine_that_says_what_it_runs_at_once_is_held_to_it_from_the_first_flood_on() {
    for (kind, vocabulary) in [("llamacpp", Vocabulary::Llamacpp), ("sglang", Vocabulary::Sglang)] {
        let engine = Engine::local_with(|config| {
            config.vocabulary = vocabulary;
            config.batch.max_num_seqs = 4;
        });
        let rig = rig(engine, kind, "scrape_interval: 100ms");
        wait_for("its word", WITHIN, || rig.count("llmgw_endpoint_batch_capacity", &[("replica", "e")]) == 4);
        rig.wait_for_room();
        let flood: Vec<_> = (0..40).map(|_| rig.ask("low", &stalled())).collect();
        rig.wait_until_waiting(36);
        assert_eq!(rig.engine.state().open_requests, 4, "{kind}");
        let mut ended = 0;
        wait_for("all answered", WITHIN, || {
            rig.engine.release();
            ended = flood.iter().filter(|call| call.has_ended()).count();
            ended == 40
        });
        flood.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
        rig.assert_at_rest(4);
    }
}

#[test]
fn the_first_flood_at_an_engine_that_says_nothing_is_held_to_a_start() {
    let engine = Engine::local();
    let rig = rig(engine, "sim", "scrape_interval: 1h");
    let fresh = [("replica", "e")];
    wait_for("a page", WITHIN, || rig.gateway.metrics().sum("llmgw_endpoint_metrics_stale", &fresh) == Some(0.0));
    rig.wait_for_room();
    let held = rig.hold(START);
    let more: Vec<_> = (0..20).map(|_| rig.ask("low", &stalled())).collect();
    rig.wait_until_waiting(20);
    assert_eq!(rig.engine.state().open_requests, START);
    rig.engine.set_faults(json!({}));
    wait_for("all answered", WITHIN, || {
        rig.engine.release();
        held.iter().chain(&more).all(|call| call.has_ended())
    });
}
