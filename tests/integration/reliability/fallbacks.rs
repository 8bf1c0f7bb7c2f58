//! A model that nobody can serve is stood in for by those that its configuration names.

use llmgw_test_kit::{Engine, chat, wait_for};
use serde_json::json;

use super::rig::Fleet;
use crate::pair::{WITHIN, error_of, llmgw};
use llmgw_test_kit::Gateway;

/// Engine 0 serves `large`, engine 1 `small`; `large` falls back to `small`, which the engine calls by another name.
fn fleet() -> Fleet {
    let named = |name: &str| {
        let name = name.to_owned();
        Engine::local_with(move |config| config.models = vec![name])
    };
    let engines = vec![named("large"), named("little")];
    let endpoint = |at: usize, models: &str| {
        format!("{{ name: engine-{at}, url: \"{}\", {models}, engine: sim }}", engines[at].url())
    };
    let gateway = Gateway::builder()
        .endpoint(&endpoint(0, "model: large"))
        .endpoint(&endpoint(1, "models: [{ name: small, served_as: little }]"))
        .top("models: [{ name: large, fallbacks: [small] }]")
        .router("scrape_interval: 100ms\ncooldown_seconds: 60\ntimeouts: { settle: 0s }")
        .start(llmgw());
    wait_for("both engines", WITHIN, || gateway.metrics().sum("llmgw_endpoint_ready", &[]) == Some(2.0));
    Fleet { gateway, engines }
}

#[test]
fn the_next_model_answers_and_says_so() {
    let mut fleet = fleet();
    let large = chat("hello").model("large");
    assert_eq!(fleet.ask(&large).header("x-llmgw-served-model"), Some("large"));
    // A refusal is enough: the stand-in is in order, the model's own engine is not.
    fleet.engines[0].set_faults(json!({ "status": 503 }));
    let reply = fleet.ask(&large);
    assert_eq!((reply.status, reply.header("x-llmgw-served-model")), (200, Some("small")), "{}", reply.text());
    assert_eq!(fleet.engines[1].only_call().json()["model"], "little");
    // And so it goes on while it cools down, and after it is gone.
    assert_eq!(fleet.ask(&large).header("x-llmgw-served-model"), Some("small"));
    fleet.engines.remove(0).stop();
    assert_eq!(fleet.ask(&large).header("x-llmgw-served-model"), Some("small"));
}

#[test]
fn with_nobody_left_all_are_named() {
    let mut fleet = fleet();
    fleet.engines.drain(..).for_each(Engine::stop);
    wait_for("nobody ready", WITHIN, || fleet.count("llmgw_endpoint_ready", &[]) == 0);
    let reply = fleet.ask(&chat("hello").model("large"));
    assert_eq!(error_of(&reply), (503, json!("no_endpoint"), json!(null)));
    assert!(reply.text().contains("engine-0") && reply.text().contains("engine-1"), "{}", reply.text());
    // What stands in for others is not stood in for.
    let reply = fleet.ask(&chat("hello").model("small"));
    assert!(reply.status == 503 && !reply.text().contains("engine-0"), "{}", reply.text());
}
