//! What a request may say about where it goes: its profile, its session, and that it wants to know why.

use std::collections::HashSet;

use llmgw_test_kit::chat;
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use serde_json::Value;

use crate::pair::CHAT;
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
    assert_eq!(decision["scorers"], serde_json::json!(["queue", "kv", "load", "inflight"]));
    assert_eq!(decision["weights"], serde_json::json!([3, 1, 1, 1]));
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
