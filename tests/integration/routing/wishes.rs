//! What a request may say about where it goes: its profile, its session, and that it wants to know why.

use std::collections::HashSet;

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat, wait_for};
use serde_json::{Value, json};

use crate::pair::{CHAT, WITHIN};
use crate::reliability::rig::Fleet;

fn ask(fleet: &Fleet, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Reply {
    let chat = fields.iter().fold(chat("hello"), |chat, (name, value)| chat.field(name, *value));
    let request = headers.iter().fold(Request::new("POST", CHAT), |request, (name, value)| request.header(name, value));
    raw::call(fleet.gateway.addr(), &request.json(&chat.json()).bytes())
}

/// The replicas that answer twenty such requests.
fn replicas(fleet: &Fleet, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> HashSet<String> {
    let answer = |_| ask(fleet, headers, fields).header("x-llmgw-replica").expect("who answered").to_owned();
    (0..20).map(answer).collect()
}

#[test]
fn a_session_goes_to_one_engine_whatever_names_it() {
    let fleet = Fleet::local(4, "");
    let by_header = replicas(&fleet, &[("x-session-id", "s1")], &[("user", "u"), ("prompt_cache_key", "k")]);
    assert_eq!(by_header.len(), 1);
    let of = |name: &str| replicas(&fleet, &[("X-Session-Id", name)], &[]);
    assert_eq!(of("s1"), by_header, "the header comes first");
    assert_eq!(replicas(&fleet, &[], &[("prompt_cache_key", "s1"), ("user", "u")]), by_header, "then the cache's key");
    assert_eq!(replicas(&fleet, &[], &[("user", "s1")]), by_header, "then the user");
    let others: HashSet<String> = (0..20).flat_map(|at| of(&format!("session {at}"))).collect();
    assert!(others.len() >= 3, "{others:?}");
    assert!(replicas(&fleet, &[], &[]).len() > 1, "no session, no favourite");
    assert_eq!(replicas(&fleet, &[("x-session-id", "s1"), ("x-llmgw-profile", "debug")], &[]).len(), 4);
}

#[test]
fn an_unknown_profile_is_refused_with_the_ones_there_are() {
    let fleet = Fleet::local(1, "profiles: { mine: { picker: { type: max-score } } }");
    let reply = ask(&fleet, &[("x-llmgw-profile", "fastest")], &[]);
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert_eq!(
        message,
        "x-llmgw-profile: no routing profile is called `fastest`; profiles: chat, batch, long-context, debug, mine"
    );
    for name in ["chat", "batch", "long-context", "debug", "mine"] {
        assert_eq!(ask(&fleet, &[("x-llmgw-profile", name)], &[]).status, 200, "{name}");
    }
    assert!(fleet.engines[0].calls().iter().all(|call| call.header("x-llmgw-profile").is_none()));
}

#[test]
fn an_answer_says_why_it_came_from_there_when_asked() {
    let fleet = Fleet::local(3, "");
    assert_eq!(ask(&fleet, &[], &[]).header("x-llmgw-explain"), None);
    let reply = ask(&fleet, &[("x-llmgw-explain", "1"), ("x-llmgw-profile", "batch")], &[]);
    let said: Value = serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON");
    let decision = &said["decisions"][0];
    assert_eq!(decision["chosen"].as_str(), reply.header("x-llmgw-replica"));
    assert_eq!(decision["picker"], "max-score");
    assert_eq!(decision["scorers"], serde_json::json!(["queue", "kv", "load", "prefix", "inflight"]));
    assert_eq!(decision["weights"], serde_json::json!([3, 1, 1, 0.5, 1]));
    assert_eq!(decision["candidates"].as_array().map(Vec::len), Some(3));
    let page = fleet.gateway.metrics();
    assert!(page.sum("llmgw_candidates_considered_count", &[]).is_some_and(|count| count >= 2.0));
    assert!(page.sum("llmgw_candidates_filtered_total", &[("filter", "ready")]).is_some());
    assert!(page.sum("llmgw_scorer_value", &[("scorer", "queue"), ("replica", "engine-1")]).is_some());
}

#[test]
fn an_error_says_why_nobody_was_chosen_when_asked() {
    let mut fleet = Fleet::local(1, "");
    fleet.engines.pop().expect("the engine").stop();
    llmgw_test_kit::wait_for("the engine missed", crate::pair::WITHIN, || {
        fleet.count("llmgw_endpoint_ready", &[]) == 0
    });
    let reply = ask(&fleet, &[("x-llmgw-explain", "1")], &[]);
    let said: Value = serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON");
    let decision = &said["decisions"][0];
    assert!(decision["chosen"].is_null());
    assert_eq!(decision["candidates"][0]["dropped_by"], "ready");
    assert!(reply.status >= 500);
}

#[test]
fn every_attempt_is_explained_and_the_model_that_stood_in() {
    let named = |name: &str| {
        let name = name.to_owned();
        Engine::local_with(move |config| config.models = vec![name])
    };
    let engines = vec![named("large"), named("large"), named("small")];
    let endpoint = |at: usize, model: &str| {
        format!("{{ name: engine-{at}, url: \"{}\", model: {model}, engine: sim }}", engines[at].url())
    };
    let gateway = Gateway::builder()
        .endpoint(&endpoint(0, "large"))
        .endpoint(&endpoint(1, "large"))
        .endpoint(&endpoint(2, "small"))
        .top("models: [{ name: large, fallbacks: [small] }]")
        .router("cooldown_seconds: 0\ntimeouts: { settle: 0s }")
        .start(crate::pair::llmgw());
    let fleet = Fleet { gateway, engines };
    wait_for("every engine", WITHIN, || fleet.count("llmgw_endpoint_ready", &[]) == 3);
    fleet.engines[0].set_faults(json!({ "status": 503 }));
    fleet.engines[1].set_faults(json!({ "body": "short", "close_after_bytes": 1 }));
    let body = chat("hello").model("large").json();
    let request = Request::new("POST", CHAT).header("x-llmgw-explain", "1").header("Connection", "close").json(&body);
    let reply = raw::call(fleet.gateway.addr(), &request.bytes());
    assert_eq!((reply.status, reply.header("x-llmgw-served-model")), (200, Some("small")), "{}", reply.text());
    let said: Value = serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON");
    let decisions = said["decisions"].as_array().expect("decisions");
    let chosen: Vec<_> = decisions.iter().filter(|one| !one["chosen"].is_null()).collect();
    let of = |key: &str| chosen.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("attempt"), [json!(1), json!(2), json!(3)]);
    assert_eq!(of("model"), [json!("large"), json!("large"), json!("small")]);
    let mut replicas = of("chosen");
    assert_eq!(replicas.pop(), Some(json!("engine-2")));
    replicas.sort_by_key(Value::to_string);
    assert_eq!(replicas, [json!("engine-0"), json!("engine-1")]);
    // Before another model stood in, its own pool was looked at once more, and nobody was left there.
    let last = decisions.iter().find(|one| one["attempt"] == 3 && one["model"] == "large").expect("a look");
    let dropped = last["candidates"].as_array().expect("candidates").iter().map(|one| &one["dropped_by"]);
    assert!(dropped.into_iter().all(|filter| filter == "excluded"), "{last}");
}

#[test]
fn a_last_resort_is_told_as_one() {
    let fleet = Fleet::local(1, "cooldown_seconds: 60");
    fleet.engines[0].set_faults(json!({ "status": 503 }));
    assert_eq!(ask(&fleet, &[], &[]).status, 503);
    wait_for("the engine out", WITHIN, || fleet.count("llmgw_endpoint_cooling", &[]) == 1);
    fleet.engines[0].set_faults(json!({}));
    let reply = ask(&fleet, &[("x-llmgw-explain", "1")], &[]);
    let said: Value = serde_json::from_str(reply.header("x-llmgw-explain").expect("the header")).expect("JSON");
    assert_eq!(said["last_resort"], json!({ "model": "test-model", "replica": "engine-0" }), "{said}");
}
