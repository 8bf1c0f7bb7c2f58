//! The official client runs one script at the engine and through the gateway; the two must not differ.

use std::time::Duration;

use llmgw_test_kit::{Engine, Gateway};
use serde_json::{Value, json};

use crate::clients::Script;
use crate::compare::{ANSWERED_BY_THE_GATEWAY, Results, differences};
use crate::engines::{LlamaCpp, MODEL};
use crate::llmgw;

/// Headers that the gateway puts on every answer it got from an engine.
const MARKS: &[&str] =
    &["x-request-id", "x-llmgw-replica", "x-llmgw-pool", "x-llmgw-served-model", "x-llmgw-overhead-us"];

/// What must hold of a run through the gateway beside being equal to the direct one.
#[track_caller]
pub(crate) fn check_own_answers(through: &Results) {
    for name in ANSWERED_BY_THE_GATEWAY {
        let case = through.cases.get(*name).unwrap_or(&Value::Null);
        let expected = if *name == "error_unknown_model" { 404 } else { 400 };
        assert_eq!(case["status"], expected, "{name}: {case}");
        for field in ["message", "type", "code"] {
            assert!(!case["error"][field].is_null(), "{name} has no {field}: {case}");
        }
    }
    assert!(!through.headers.is_empty());
    for (case, headers) in &through.headers {
        for mark in MARKS {
            assert!(headers.contains_key(*mark), "{case} does not carry {mark}: {headers:?}");
        }
    }
}

#[track_caller]
fn check(direct: &Results, through: &Results) {
    let found = differences(direct, through);
    assert!(found.is_empty(), "{} cases differ:\n{}", found.len(), found.join("\n"));
    check_own_answers(through);
}

#[test]
fn the_official_client_sees_llama_cpp_through_the_gateway_as_it_sees_it_directly() {
    let engine = LlamaCpp::start(&[]);
    let embedder = LlamaCpp::start(&["--embeddings", "--pooling", "mean", "--alias", "tiny-embed"]);
    let gateway = Gateway::builder()
        .endpoint(&format!("{{ name: chat, url: \"{}\", model: {MODEL}, engine: llamacpp }}", engine.url()))
        .endpoint(&format!("{{ name: embed, url: \"{}\", model: tiny-embed, engine: llamacpp }}", embedder.url()))
        .start(llmgw());
    // The answer must not depend on what a slot has seen before.
    let script = |base, embeddings| Script {
        base,
        model: MODEL,
        embeddings: Some((embeddings, "tiny-embed")),
        extra: json!({ "cache_prompt": false }),
        skip: &[],
    };
    let direct = script(engine.url(), embedder.url()).run();
    let through = script(gateway.url(), gateway.url()).run();
    check(&direct, &through);

    // The script leaves a stream of 1500 tokens after three events, once directly and once through the gateway.
    engine.wait_until_idle(Duration::from_secs(5));
    let longest = engine.tokens_at_the_end().into_iter().max().unwrap_or(0);
    assert!(longest < 1500, "an abandoned stream was generated to its end: {longest} tokens");
    assert_eq!(gateway.inflight(), 0.0);
    gateway.finish(&[]);
}

#[test]
fn the_official_client_sees_a_simulated_engine_through_the_gateway_as_it_sees_it_directly() {
    let engine = Engine::start(llmgw());
    let gateway = Gateway::builder().engine(&engine).start(llmgw());
    let model = llmgw_test_kit::gateway::MODEL;
    let script = |base| Script { base, model, embeddings: None, extra: json!({}), skip: &[] };
    // Once before, so that both runs meet a warm prefix cache.
    script(engine.url()).run();
    let direct = script(engine.url()).run();
    let through = script(gateway.url()).run();
    check(&direct, &through);
    let calls = &through.cases["tools_required"]["choices"][0]["message"]["tool_calls"];
    assert!(calls[0]["function"]["name"].is_string(), "a required tool is called: {}", through.cases["tools_required"]);
    assert_eq!(gateway.inflight(), 0.0);
    gateway.finish(&[]);
}
