//! Limits and budgets: what races, what is settled, what a refused client is told, what is left held.

use std::thread;

use llmgw_test_kit::engine::Engine;
use llmgw_test_kit::raw::{Connection, End, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, chat, wait_for};
use serde_json::{Value, json};

use crate::rig::{CHAT, Rig, WITHIN};

/// What a token costs where nothing else is said. Units: millionths.
const TOKEN_MICROS: u64 = 1_000_000;

fn number(reply: &Reply, header: &str) -> i64 {
    let text = reply.header(header).unwrap_or_else(|| panic!("{header} of {:?}", reply.text()));
    text.trim_end_matches('s').parse().expect("a number")
}

fn code(reply: &Reply) -> (u16, Value) {
    (reply.status, reply.json()["error"]["code"].clone())
}

/// Asks over that many clients at once.
fn race(rig: &Rig, key: &str, clients: usize, chat: &Chat) -> Vec<Reply> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(|| rig.ask(key, chat))).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    })
}

fn refusals(rig: &Rig, measure: &str) -> f64 {
    rig.gateway.metrics().sum("llmgw_limit_refusals_total", &[("measure", measure)]).unwrap_or(0.0)
}

/// Begins a stream, and reads that many events of it.
fn begin(rig: &Rig, key: &str, faults: Value, events: usize) -> Connection {
    let slow = chat("hello").streamed().max_tokens(200).faults(faults);
    let request = Request::new("POST", CHAT).header("Authorization", format!("Bearer {key}")).json(&slow.json());
    let mut client = Connection::open(rig.gateway.addr()).expect("connected");
    client.send(&request.bytes()).expect("sent");
    let head = client.head().expect("a head");
    assert_eq!(head.status, 200);
    client.body(&head).events(events).expect("events");
    client
}

#[test]
fn a_limit_of_requests_refuses_with_its_reason_and_says_when_to_try_again() {
    let rig = Rig::start();
    let key = rig.limited("three", &json!({ "rpm": 3 }));
    for left in [2, 1, 0] {
        let reply = rig.ask(&key, &chat("hello").max_tokens(4));
        assert_eq!((reply.status, number(&reply, "x-ratelimit-limit-requests")), (200, 3), "{}", reply.text());
        assert_eq!(number(&reply, "x-ratelimit-remaining-requests"), left);
        assert_eq!(reply.header("x-ratelimit-limit-tokens"), None, "tokens are not limited");
    }
    let refused = rig.ask(&key, &chat("hello").max_tokens(4));
    assert_eq!(code(&refused), (429, json!("limit_requests")));
    let wait = number(&refused, "retry-after");
    assert!((1..=61).contains(&wait), "{wait}");
    let message = format!("the key's limit of 3 requests a minute is reached; try again in {wait} s");
    assert_eq!(refused.json()["error"]["message"], json!(message));
    assert_eq!(number(&refused, "x-ratelimit-remaining-requests"), 0);
    assert_eq!(number(&refused, "x-ratelimit-reset-requests"), wait);
    assert_eq!(rig.engines[0].calls().len(), 3, "who is refused asks no engine");
    assert_eq!(refusals(&rig, "requests"), 1.0);
    assert_eq!(rig.used_at_rest(&key)["requests"], 3);
    rig.gateway.finish(&[]);
}

#[test]
fn of_many_clients_at_once_exactly_as_many_run_as_there_are_places() {
    let rig = Rig::start();
    let key = rig.limited("five", &json!({ "parallel": 5 }));
    // The engine says nothing until it is told to, so that none ends before all have asked.
    let held = chat("hello").max_tokens(9).faults(json!({ "stall_after_events": 0, "events": 3 }));
    for round in 1..=3 {
        let replies = thread::scope(|scope| {
            let racing = scope.spawn(|| race(&rig, &key, 40, &held));
            wait_for("all others refused", WITHIN, || refusals(&rig, "parallel") >= f64::from(round * 35));
            rig.engines[0].wait_for_calls(5 * round as usize, WITHIN, |_| true);
            assert_eq!(rig.level(&key)["used"]["held"]["parallel"], 5);
            rig.engines[0].release();
            racing.join().expect("the race")
        });
        let (admitted, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
        assert_eq!((admitted.len(), refused.len()), (5, 35));
        for reply in refused {
            assert_eq!((code(reply), number(reply, "retry-after")), ((429, json!("limit_parallel")), 1));
        }
        rig.used_at_rest(&key);
    }
    rig.gateway.finish(&[]);
}

#[test]
fn what_a_request_did_not_use_is_there_again_to_the_token_when_it_ends() {
    let rig = Rig::start();
    let limits = json!({ "tpm": 10_000, "budget_micros": 10_000 * TOKEN_MICROS, "budget_period": "month" });
    let key = rig.limited("exact", &limits);
    let (mut used, mut before) = (0, None);
    for chat in [chat("hello"), chat("hello").with_usage(), chat("hello")] {
        let reply = rig.ask(&key, &chat.max_tokens(4000).faults(json!({ "events": 5 })));
        assert_eq!((reply.status, reply.end), (200, End::Complete), "{}", reply.text());
        let left = number(&reply, "x-ratelimit-remaining-tokens");
        assert!(left < 6000, "what it may use is reserved: {left}");
        let text = reply.text();
        let usage = text.rsplit_once("\"usage\":").expect("usage").1;
        let told = |name: &str| -> u64 {
            let rest = usage.split_once(&format!("\"{name}\":")).expect(name).1;
            rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("a number")
        };
        let tokens = told("prompt_tokens") + told("completion_tokens");
        assert_eq!(told("completion_tokens"), 5);
        used += tokens;
        let known = rig.used_at_rest(&key);
        assert_eq!((&known["tokens"], &known["spent_micros"]), (&json!(used), &json!(used * TOKEN_MICROS)), "{known}");
        if let Some(before) = before {
            assert_eq!(before - left, i64::try_from(tokens).expect("few"), "each asks for as much as the last");
        }
        before = Some(left);
    }
    rig.gateway.finish(&[]);
}

#[test]
fn nothing_is_held_after_streams_that_were_cut_and_what_passed_of_them_counts() {
    let rig = Rig::start();
    let budget = 1_000_000 * TOKEN_MICROS;
    let limits = json!({ "tpm": 1_000_000, "parallel": 4, "budget_micros": budget, "budget_period": "day" });
    let key = rig.limited("four", &limits);
    let endless = json!({ "events": 200, "stall_after_events": 3 });
    let broken = json!({ "events": 200, "close_after_events": 3 });
    for round in 1..=3u64 {
        let clients: Vec<_> = (0..4).map(|_| begin(&rig, &key, endless.clone(), 3)).collect();
        assert_eq!(rig.level(&key)["used"]["held"]["parallel"], 4);
        assert_eq!(code(&rig.ask(&key, &chat("hello"))), (429, json!("limit_parallel")));
        for (at, client) in clients.into_iter().enumerate() {
            if at % 2 == 0 { client.leave() } else { client.abort().expect("reset") }
        }
        let after = rig.used_at_rest(&key);
        drop((0..4).map(|_| begin(&rig, &key, broken.clone(), 3)).collect::<Vec<_>>());
        let known = rig.used_at_rest(&key);
        assert!(after["tokens"].as_u64() < known["tokens"].as_u64(), "{after} {known}");
        // Eight prompts of at least a token, and three tokens of answer to each.
        let tokens = known["tokens"].as_u64().expect("a number");
        assert!((round * 32..round * 8 * 40).contains(&tokens), "{known}");
        assert_eq!(known["spent_micros"], json!(tokens * TOKEN_MICROS), "{known}");
    }
    rig.gateway.finish(&["\"request_id\""]);
}

#[test]
fn what_no_engine_heard_counts_for_nothing() {
    let mut rig = Rig::start();
    let key = rig.limited("nobody", &json!({ "rpm": 10, "tpm": 10_000, "parallel": 4 }));
    rig.engines.clear();
    assert!(rig.ask(&key, &chat("hello")).status >= 502);
    assert_eq!(rig.ask(&key, &chat("hello").model("none")).status, 404);
    let known = rig.used_at_rest(&key);
    assert_eq!((&known["requests"], &known["tokens"]), (&json!(0), &json!(0)), "{known}");
}

#[test]
fn nothing_at_all_and_more_than_all_are_said_at_once() {
    let rig = Rig::start();
    let (none, few) = (rig.limited("none", &json!({ "rpm": 0 })), rig.limited("few", &json!({ "tpm": 100 })));
    let refused = rig.ask(&none, &chat("hello"));
    assert_eq!((code(&refused), refused.header("retry-after")), ((429, json!("limit_requests")), None));
    assert!(refused.text().contains("lets nothing through"), "{}", refused.text());
    let refused = rig.ask(&few, &chat("hello").max_tokens(1000));
    assert_eq!((code(&refused), refused.header("retry-after")), ((429, json!("limit_tokens")), None));
    assert!(refused.text().contains("ask for a lower max_tokens"), "{}", refused.text());
    assert_eq!(rig.ask(&few, &chat("hello").max_tokens(10)).status, 200);
    rig.gateway.finish(&[]);
}

#[test]
fn a_spent_budget_refuses_until_its_period_ends_after_a_restart_too() {
    let rig = Rig::start();
    let budget = json!({ "budget_micros": 100 * TOKEN_MICROS, "budget_period": "month" });
    let key = rig.limited("thrifty", &budget);
    let ask = |rig: &Rig| rig.ask(&key, &chat("hello").max_tokens(12));
    let refused = (0..100).map(|_| ask(&rig)).find(|reply| reply.status != 200).expect("it is spent");
    assert_eq!(code(&refused), (429, json!("budget_spent")));
    assert!((1..=31 * 86_400).contains(&number(&refused, "retry-after")));
    assert!(refused.text().contains("the key's budget is spent or reserved"), "{}", refused.text());
    let before = rig.used_at_rest(&key);
    let rig = rig.restart();
    assert_eq!(rig.used_at_rest(&key)["spent_micros"], before["spent_micros"]);
    assert_eq!(code(&ask(&rig)), (429, json!("budget_spent")));
    rig.gateway.finish(&[]);
}

#[test]
fn a_spent_budget_falls_back_to_what_costs_nothing() {
    let engine = |model: &str| {
        let model = model.to_owned();
        Engine::local_with(move |config| config.models = vec![model])
    };
    let top = "models: [{ name: large, budget_fallback: small }, \
               { name: small, units: { prompt: 0, cached: 0, completion: 0 } }]";
    let rig = Rig::with(vec![engine("large"), engine("small")], &["large", "small"], top);
    let budget = json!({ "budget_micros": 0, "budget_period": "day" });
    let mut narrow = budget.clone();
    narrow["allowed_models"] = json!(["large"]);
    let (poor, tied) = (rig.limited("poor", &budget), rig.limited("tied", &narrow));
    let ask = |key: &str| {
        let reply = rig.ask(key, &chat("hello").model("large"));
        (reply.status, reply.header("x-llmgw-served-model").map(str::to_owned))
    };
    assert_eq!(ask(&poor), (200, Some("small".to_owned())));
    assert_eq!(ask(&tied), (429, None), "its key may not use what would stand in");
    assert_eq!(rig.gateway.metrics().sum("llmgw_limit_requests_total", &[("outcome", "fallback")]), Some(1.0));
    rig.gateway.finish(&[]);
}

#[test]
fn all_keys_below_a_team_share_what_it_may() {
    let rig = Rig::start();
    rig.admin("POST", "/organizations", &json!({ "name": "acme" }));
    rig.admin("POST", "/teams", &json!({ "organization": "acme", "name": "search" }));
    rig.admin("POST", "/projects", &json!({ "team": "acme/search", "name": "chat" }));
    let keys = ["one", "two"].map(|name| {
        let made = rig.admin("POST", "/keys", &json!({ "name": name, "project": "acme/search/chat" }));
        made["key"].as_str().expect("a key").to_owned()
    });
    rig.admin("PUT", "/limits/team/acme%2Fsearch", &json!({ "rpm": 30 }));
    wait_for("the limit", WITHIN, || keys.iter().all(|key| rig.level(key)["rpm"] == 30));
    let short = chat("hello").max_tokens(2);
    let replies: Vec<Reply> = keys.iter().flat_map(|key| race(&rig, key, 20, &short)).collect();
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert_eq!(refused.len(), 10);
    let text = refused[0].text();
    assert!(text.contains("the team's limit of 30 requests a minute is reached"), "{text}");
    rig.gateway.finish(&[]);
}
