//! The official `anthropic` client at `/v1/messages` and `count_tokens`, at the engine and through the gateway; the two
//! must not differ.

use llmgw_test_kit::{Engine, Gateway};
use serde_json::{Value, json};

use crate::clients;
use crate::compare::{Usage, differences};
use crate::engines::{LlamaCpp, MODEL};
use crate::llmgw;

#[track_caller]
fn check(url: &str, model: &str, engine: &str, extra: &Value) {
    // Once before, so that both runs meet a warm prefix cache.
    clients::anthropic(url, model, extra);
    let directly = clients::anthropic(url, model, extra);
    let endpoint = format!("{{ url: \"{url}\", model: {model}, engine: {engine} }}");
    let gateway = Gateway::builder().endpoint(&endpoint).router("timeouts: { settle: 0s }").start(llmgw());
    let through = clients::anthropic(&gateway.url(), model, extra);
    let found = differences(&directly, &through, Usage::Always);
    assert!(found.is_empty(), "{} cases differ:\n{}", found.len(), found.join("\n"));
    let refused = &through.cases["error_unknown_model"];
    assert_eq!((&refused["raised"], &refused["status"]), (&json!("NotFoundError"), &json!(404)), "{refused}");
    let body = &refused["body"];
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("not_found_error")), "{refused}");
    gateway.finish(&[]);
}

#[test]
fn the_anthropic_client_sees_llama_cpp_through_the_gateway_as_it_sees_it_directly() {
    let engine = LlamaCpp::start(MODEL, &[]);
    // The answer must not depend on what a slot has seen before.
    check(&engine.url(), MODEL, "llamacpp", &json!({ "cache_prompt": false }));
}

#[test]
fn the_anthropic_client_sees_a_simulated_engine_through_the_gateway_as_it_sees_it_directly() {
    let model = llmgw_test_kit::gateway::MODEL;
    let engine = Engine::start_with(llmgw(), &["--model", model, "--tokens-per-second", "2000"]);
    check(&engine.url(), model, "sim", &json!({}));
}
