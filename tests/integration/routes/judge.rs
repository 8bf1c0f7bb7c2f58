//! Rerank, score, tokenize, detokenize: small bodies to and fro, under every path that engines have for them.

use llmgw_test_kit::gateway::MODEL;
use llmgw_test_kit::wait_for;
use serde_json::{Value, json};

use super::{INSIDE, renamed, tokens, usage_absent, wait_for_tokens};
use crate::pair::{Pair, WITHIN, error_of};

fn rerank() -> Value {
    json!({ "model": MODEL, "query": "q", "documents": ["one", "two two", "three"], "top_n": 2 })
}

fn score() -> Value {
    json!({ "model": MODEL, "text_1": "q", "text_2": ["one", "three"] })
}

#[test]
fn judgements_go_to_the_engine_under_their_path_and_are_counted() {
    let pair = renamed();
    let mut prompt = 0;
    for (path, body) in [
        ("/v1/rerank", rerank()),
        ("/v2/rerank", rerank()),
        ("/rerank", rerank()),
        ("/v1/score", score()),
        ("/score", score()),
    ] {
        let reply = pair.post(path, &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let call = pair.call_of(&reply);
        let mut sent = body.clone();
        sent["model"] = INSIDE.into();
        assert_eq!((call.target.as_str(), call.json()), (path, sent));
        prompt += reply.json()["usage"]["prompt_tokens"].as_u64().expect("usage");
        wait_for_tokens(&pair, (prompt, 0));
    }
    assert_eq!(usage_absent(&pair), 0);
}

#[test]
fn a_total_alone_is_counted_as_the_prompt_and_no_usage_at_all_is_no_fault() {
    let pair = Pair::own();
    pair.engine.set_faults(json!({ "usage": { "total_tokens": 56 } }));
    assert_eq!(pair.post("/v1/rerank", &rerank()).status, 200);
    wait_for_tokens(&pair, (56, 0));
    pair.engine.set_faults(json!({ "body": "[{\"score\":0.5}]" }));
    assert_eq!(pair.post("/v1/rerank", &rerank()).text(), "[{\"score\":0.5}]");
    // Somebody used the engine all the same: the gateway's own count is taken.
    wait_for("an estimate", WITHIN, || tokens(&pair).0 > 56);
    assert_eq!((tokens(&pair).1, usage_absent(&pair)), (0, 0));
}

#[test]
fn taking_texts_apart_and_putting_them_together_counts_nothing() {
    let pair = Pair::own();
    let apart = pair.post("/tokenize", &json!({ "model": MODEL, "prompt": "hello world" }));
    assert_eq!((apart.status, apart.json()["count"].as_u64()), (200, Some(4)), "{}", apart.text());
    let body = json!({ "model": MODEL, "tokens": apart.json()["tokens"] });
    let reply = pair.post("/detokenize", &body);
    assert_eq!(reply.json()["prompt"].as_str().map(str::len), Some(16));
    assert_eq!((pair.call_of(&reply).target.as_str(), pair.call_of(&reply).json()), ("/detokenize", body));
    assert_eq!((tokens(&pair), usage_absent(&pair)), ((0, 0), 0));
}

#[test]
fn what_is_no_route_is_unknown_and_a_request_names_its_model() {
    let pair = Pair::shared();
    for target in
        ["/v1/tokenize", "/v1/classify", "/pooling", "/v3/rerank", "/v1/audio", "/v1/audio/speech/x", "/metrics"]
    {
        let (status, code, _) = error_of(&pair.post(target, &rerank()));
        assert_eq!((status, code), (404, json!("unknown_url")), "{target}");
    }
    let (status, _, param) = error_of(&pair.post("/tokenize", &json!({ "prompt": "x" })));
    assert_eq!((status, param), (400, json!("model")));
}
