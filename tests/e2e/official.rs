//! The official client runs one script at the engine and through the gateway; the two must not differ.

use std::time::Duration;

use llmgw_test_kit::{Engine, Gateway, wait_for};
use serde_json::{Value, json};

use crate::clients::Script;
use crate::compare::{ANSWERED_BY_THE_GATEWAY, Results, Usage, differences};
use crate::engines::{LlamaCpp, MODEL};
use crate::llmgw;

/// Nobody waits for a gateway that a test ends.
const AT_ONCE: &str = "timeouts: { settle: 0s }";
const REST: Duration = Duration::from_secs(5);

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

/// Runs the script at the engine, then through a gateway that leaves usage to clients, then through one as it comes.
///
/// Returns the last run, for what a test wants to see beside equality.
#[track_caller]
fn check(endpoints: &[String], direct: &Script<'_>) -> Results {
    let directly = direct.run();
    let mut last = None;
    for (usage, inject) in [(Usage::AsTheClientAsks, "inject_usage: false"), (Usage::Always, "inject_usage: true")] {
        let builder = endpoints.iter().fold(Gateway::builder(), |builder, endpoint| builder.endpoint(endpoint));
        let gateway = builder.router(inject).router(AT_ONCE).start(llmgw());
        let embeddings = direct.embeddings.as_ref().map(|(_, model)| (gateway.url(), *model));
        let through = Script { base: gateway.url(), embeddings, ..direct.clone() }.run();
        let found = differences(&directly, &through, usage);
        assert!(found.is_empty(), "with {inject} {} cases differ:\n{}", found.len(), found.join("\n"));
        check_own_answers(&through);
        wait_for("the gauges to be at rest", REST, || gateway.inflight() == 0.0);
        gateway.finish(&[]);
        last = Some(through);
    }
    last.unwrap_or_else(|| unreachable!("both ways were run"))
}

#[test]
fn the_official_client_sees_llama_cpp_through_the_gateway_as_it_sees_it_directly() {
    let engine = LlamaCpp::start(MODEL, &[]);
    let embedder = LlamaCpp::start("tiny-embed", &["--embeddings", "--pooling", "mean"]);
    let endpoints = [
        format!("{{ name: chat, url: \"{}\", model: {MODEL}, engine: llamacpp }}", engine.url()),
        format!("{{ name: embed, url: \"{}\", model: tiny-embed, engine: llamacpp }}", embedder.url()),
    ];
    // The answer must not depend on what a slot has seen before.
    let extra = json!({ "cache_prompt": false });
    let embeddings = Some((embedder.url(), "tiny-embed"));
    check(&endpoints, &Script { base: engine.url(), model: MODEL, embeddings, extra, skip: &[] });

    // Each run of the script leaves a stream of 1500 tokens after three events.
    engine.wait_until_idle(REST);
    let longest = engine.tokens_at_the_end().into_iter().max().unwrap_or(0);
    assert!(longest < 1500, "an abandoned stream was generated to its end: {longest} tokens");
}

#[test]
fn the_official_client_sees_a_simulated_engine_through_the_gateway_as_it_sees_it_directly() {
    let model = llmgw_test_kit::gateway::MODEL;
    let flags = ["--model", model, "--tokens-per-second", "2000", "--max-model-len", "4096"];
    let engine = Engine::start_with(llmgw(), &flags);
    let direct = Script { base: engine.url(), model, embeddings: None, extra: json!({}), skip: &[] };
    // Once before, so that all runs meet a warm prefix cache.
    direct.run();
    let endpoint = format!("{{ url: \"{}\", model: {model}, engine: sim }}", engine.url());
    let through = check(&[endpoint], &direct);
    wait_for("the engine to see four clients leave, one a run", REST, || engine.state().client_closed_requests == 4);
    let calls = &through.cases["tools_required"]["choices"][0]["message"]["tool_calls"];
    assert!(calls[0]["function"]["name"].is_string(), "a required tool is called: {}", through.cases["tools_required"]);
}
