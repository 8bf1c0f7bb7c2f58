//! Prompts go where they are cached, asked of the built gateway over sockets.

use std::collections::{BTreeMap, HashSet};

use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat, wait_for};
use serde_json::{Value, json};

use crate::pair::{CHAT, WITHIN, is_full, llmgw};
use crate::reliability::rig::{FOLLOWS_PROMPTS, Fleet};
use crate::reload::rig::{Rig, yaml};

const COMPLETIONS: &str = "/v1/completions";
const MODEL: &str = llmgw_test_kit::gateway::MODEL;

/// Text of about so many tokens that shares nothing with that of another number.
fn text(number: usize, tokens: usize) -> String {
    format!("{number:04} ").repeat(tokens * 4 / 5)
}

fn decision(reply: &Reply) -> &str {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-llmgw-cache-decision").expect("a decision")
}

fn replica(reply: &Reply) -> String {
    reply.header("x-llmgw-replica").expect("who answered").to_owned()
}

fn fleet(count: usize) -> Fleet {
    let engines = (0..count).map(|_| Engine::local()).collect();
    Fleet::of(engines, "", |builder| builder.env(FOLLOWS_PROMPTS, "true"))
}

/// From a connection of its own, so on any core.
#[track_caller]
fn post(gateway: &Gateway, target: &str, body: &Value) -> Reply {
    raw::post(gateway.addr(), target, body)
}

#[test]
fn the_turns_of_a_chat_go_where_its_first_one_went_and_the_page_says_so() {
    let fleet = fleet(4);
    let system = text(1, 600);
    for number in 0..8 {
        let mut messages = vec![json!({ "role": "system", "content": format!("{number} {system}") })];
        let mut seen = Vec::new();
        for turn in 0..4 {
            messages.push(json!({ "role": "user", "content": text(100 * turn + number, 40) }));
            let reply = post(&fleet.gateway, CHAT, &json!({ "model": MODEL, "messages": messages }));
            seen.push((replica(&reply), decision(&reply).to_owned()));
            messages.push(json!({ "role": "assistant", "content": text(7000 + turn, 20) }));
        }
        let first = seen[0].0.clone();
        assert_eq!(seen[0].1, "cache_miss_min_load");
        assert!(seen[1..].iter().all(|turn| *turn == (first.clone(), "cache_hit".to_owned())), "{seen:?}");
    }
    let hits = fleet.count("llmgw_cache_decision_total", &[("model", MODEL), ("decision", "cache_hit")]);
    let misses = fleet.count("llmgw_cache_decision_total", &[("decision", "cache_miss_min_load")]);
    assert_eq!((hits, misses), (24, 8));
    assert_eq!(fleet.count("llmgw_prefix_match_ratio_count", &[("model", MODEL)]), 32);
    let busy: HashSet<u16> = fleet.calls().iter().map(|call| call.status.unwrap_or(0)).collect();
    assert_eq!(busy, HashSet::from([200]));
}

#[test]
fn a_burst_of_one_unseen_prefix_is_prefilled_at_two_engines_at_most() {
    let fleet = fleet(8);
    let head = text(1, 8000);
    // Nobody answers before all of them are there.
    fleet.set_faults(&json!({ "blackhole": true }));
    let connections: Vec<Connection> = (0..200)
        .map(|number| {
            let body = chat(&format!("{head}{}", text(1000 + number, 60))).max_tokens(4).json();
            let mut connection = Connection::open(fleet.gateway.addr()).expect("a connection");
            connection.send(&Request::new("POST", CHAT).json(&body).bytes()).expect("sent");
            connection
        })
        .collect();
    let received = || fleet.engines.iter().map(|engine| engine.state().open_requests).collect::<Vec<_>>();
    wait_for("all of them at engines", WITHIN, || received().iter().sum::<u64>() == 200);
    let busy = received().into_iter().filter(|count| *count > 0).count();
    assert!(busy <= 2, "{:?}", received());
    let unseen = fleet.count("llmgw_cache_decision_total", &[("decision", "cache_miss_min_load")]);
    assert!(unseen <= 2, "{unseen} of 200 found nothing");
    drop(connections);
    fleet.wait_until_idle();
}

#[test]
fn a_request_that_asks_is_told_what_of_its_prompt_each_engine_has() {
    let fleet = fleet(3);
    let body = chat(&text(5, 1000)).json();
    let first = replica(&post(&fleet.gateway, CHAT, &body));
    let asking = Request::new("POST", CHAT).header("x-llmgw-explain", "1").json(&body).bytes();
    let reply = raw::call(fleet.gateway.addr(), &asking);
    let said: Value = serde_json::from_str(reply.header("x-llmgw-explain").expect("an explanation")).expect("JSON");
    let decision = &said["decisions"][0];
    let blocks = decision["prompt"]["blocks"].as_u64().expect("blocks");
    assert!((8..=9).contains(&blocks), "{decision}");
    assert_eq!(decision["prompt"], json!({ "decision": "cache_hit", "blocks": blocks, "cached": blocks }));
    assert_eq!((&decision["scorers"], &decision["w_overlap"]), (&json!(["cost"]), &json!(4)));
    for candidate in decision["candidates"].as_array().expect("candidates") {
        let has = if candidate["replica"] == first.as_str() { blocks } else { 0 };
        assert_eq!(candidate["cached"], has, "{decision}");
        assert!(candidate["beyond"].is_i64(), "{decision}");
    }
}

/// Trial R7: tools and the whole history are part of the prefix.
#[test]
fn prompts_that_differ_in_their_tools_or_their_history_share_no_more_than_they_do() {
    let fleet = fleet(2);
    let tool = |name: &str| json!([{ "type": "function", "function": { "name": name, "description": format!("{name} {}", text(3, 800)) } }]);
    let ask = |tools: &Value, history: &str| {
        let messages = json!([
            { "role": "user", "content": history },
            { "role": "assistant", "content": "yes" },
            { "role": "user", "content": "And what of the sea?" },
        ]);
        post(&fleet.gateway, CHAT, &json!({ "model": MODEL, "tools": tools, "messages": messages }))
    };
    let none = json!(null);
    assert_eq!(decision(&ask(&none, &text(1, 800))), "cache_miss_min_load");
    assert_eq!(decision(&ask(&none, &text(2, 800))), "cache_miss_min_load", "they end with the same question");
    assert_eq!(decision(&ask(&tool("a"), &text(1, 800))), "cache_miss_min_load", "tools come first");
    assert_eq!(decision(&ask(&tool("b"), &text(1, 800))), "cache_miss_min_load", "other tools");
    assert_eq!(decision(&ask(&tool("b"), &text(1, 800))), "cache_hit");
    assert_eq!(decision(&ask(&none, &text(1, 800))), "cache_hit");
    // Trial R7 the other way: a shared head with different ends is shared as far as it goes.
    assert_eq!(decision(&ask(&tool("b"), &text(9, 200))), "cache_hit");
}

#[test]
fn equal_prompts_of_two_salts_two_adapters_or_two_models_never_match() {
    let serve = |cfg: &mut llmgw_test_kit::engine::EngineConfig| {
        cfg.models = ["base", "lora-a", "lora-b", "other"].map(str::to_owned).to_vec();
    };
    let engines: Vec<Engine> = (0..2).map(|_| Engine::local_with(serve)).collect();
    let models = "[{ name: base }, { name: lora-a }, { name: lora-b }, { name: other }]";
    let builder = engines.iter().fold(Gateway::builder(), |builder, engine| {
        builder.endpoint(&format!("{{ url: \"{}\", models: {models}, engine: sim }}", engine.url()))
    });
    let gateway = builder.start(llmgw());
    let prompt = text(1, 1000);
    let ask = |model: &str, salt: Option<&str>| {
        let mut body = json!({ "model": model, "prompt": prompt });
        if let Some(salt) = salt {
            body["cache_salt"] = salt.into();
        }
        post(&gateway, COMPLETIONS, &body)
    };
    for (model, salt) in [
        ("base", None),
        ("base", Some("a")),
        ("base", Some("b")),
        ("base", Some("")),
        ("lora-a", None),
        ("lora-b", None),
        ("other", None),
        ("other", Some("a")),
    ] {
        assert_eq!(decision(&ask(model, salt)), "cache_miss_min_load", "{model} {salt:?}");
        assert_eq!(decision(&ask(model, salt)), "cache_hit", "{model} {salt:?}");
    }
}

/// Trial R13: prompts of token ids are told apart by the ids.
#[test]
fn arrays_of_ids_of_one_length_spread_and_find_themselves_again() {
    let fleet = fleet(4);
    let ids = |number: usize| -> Vec<u32> {
        (0..4096).map(|at| u32::try_from(1000 + (at * 31 + number * 977) % 50_000).expect("small")).collect()
    };
    let count = if is_full() { 1000 } else { 120 };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..count {
        let reply =
            post(&fleet.gateway, COMPLETIONS, &json!({ "model": MODEL, "prompt": ids(number), "max_tokens": 1 }));
        assert_eq!(decision(&reply), "cache_miss_min_load", "prompt {number}");
        *seen.entry(replica(&reply)).or_default() += 1;
    }
    assert!(seen.len() == 4 && seen.values().all(|share| *share >= count / 8), "{seen:?}");
    let again = post(&fleet.gateway, COMPLETIONS, &json!({ "model": MODEL, "prompt": ids(7), "max_tokens": 1 }));
    assert_eq!(decision(&again), "cache_hit");
}

/// Trial H16: all forms of a prompt are forwarded, counted and recognised.
#[test]
fn a_prompt_in_any_form_is_passed_on_as_it_came_and_found_again() {
    let fleet = fleet(3);
    let (long, ids) = (text(1, 900), (1000..2500).collect::<Vec<u32>>());
    for (target, field) in [(COMPLETIONS, "prompt"), ("/v1/embeddings", "input")] {
        for (form, prompt) in [
            ("a string", json!(long)),
            ("strings", json!([format!("a {long}"), format!("b {long}")])),
            ("ids", json!(ids)),
            ("lists of ids", json!([ids[1..], ids[2..]])),
        ] {
            let mut body = json!({ "model": MODEL });
            body[field] = prompt;
            let tokens = || fleet.count("llmgw_tokens_total", &[("model", MODEL), ("direction", "prompt")]);
            let before = tokens();
            let first = post(&fleet.gateway, target, &body);
            assert_eq!(decision(&first), "cache_miss_min_load", "{form} at {target}");
            wait_for("its tokens to be counted", WITHIN, || tokens() >= before + 900);
            assert_eq!(decision(&post(&fleet.gateway, target, &body)), "cache_hit", "{form} at {target}");
            let passed = fleet.calls().into_iter().filter(|call| call.target == target && call.json() == body);
            assert_eq!(passed.count(), 2, "{form} at {target}");
        }
    }
    // Alone and in a list it is one prompt.
    let listed = post(&fleet.gateway, COMPLETIONS, &json!({ "model": MODEL, "prompt": [long] }));
    assert_eq!(decision(&listed), "cache_hit");
}

/// Trial R5: what was sent to an engine that is gone draws nobody to the one in its place.
#[test]
fn an_engine_that_is_removed_or_replaced_takes_its_prompts_with_it() {
    let (a, b) = (Engine::local(), Engine::local());
    let builder = Gateway::builder().env(FOLLOWS_PROMPTS, "true").router("scrape_interval: 100ms");
    let endpoint =
        |name, engine: &Engine| format!("{{ name: {name}, url: \"{}\", model: {MODEL}, engine: sim }}", engine.url());
    let builder = builder.endpoint(&endpoint("a", &a)).endpoint(&endpoint("b", &b));
    let rig = Rig { gateway: builder.start(llmgw()) };
    ["a", "b"].iter().for_each(|name| rig.wait_until_ready(name));
    let prompt = chat(&text(1, 2000)).json();
    let ask = |rig: &Rig| post(&rig.gateway, CHAT, &prompt);
    let first = replica(&ask(&rig));
    assert_eq!(decision(&ask(&rig)), "cache_hit");
    let (gone, stays) = if first == "a" { (&a, ("b", &b)) } else { (&b, ("a", &a)) };
    rig.reload_with(&yaml(&[stays], ""));
    let after = ask(&rig);
    assert_ne!((decision(&after), replica(&after)), ("cache_hit", first.clone()));
    // Another one at the same address, under another name.
    rig.reload_with(&yaml(&[("c", gone)], ""));
    rig.wait_until_ready("c");
    let reply = ask(&rig);
    assert_eq!(replica(&reply), "c");
    assert_ne!(decision(&reply), "cache_hit");
    assert_eq!(decision(&ask(&rig)), "cache_hit", "what it got since is its own");
    // And back again under its first name.
    rig.reload_with(&yaml(&[(first.as_str(), gone)], ""));
    rig.wait_until_ready(&first);
    assert_ne!(decision(&ask(&rig)), "cache_hit");
}

#[test]
fn a_model_may_do_without_and_whoever_names_a_profile_gets_its_weights() {
    let engine = |_: usize| Engine::local_with(|cfg| cfg.models = vec!["with".into(), "without".into()]);
    let engines: Vec<Engine> = (0..2).map(engine).collect();
    let builder = engines.iter().fold(Gateway::builder(), |builder, engine| {
        let models = "[{ name: with }, { name: without }]";
        builder.endpoint(&format!("{{ url: \"{}\", models: {models}, engine: sim }}", engine.url()))
    });
    let catalog = "models:\n  - { name: without, prefix: { approx_tree: { enabled: false } } }\n";
    let gateway = builder.top(catalog).start(llmgw());
    let body = |model: &str| json!({ "model": model, "prompt": text(1, 900) });
    for _ in 0..3 {
        assert_eq!(decision(&post(&gateway, COMPLETIONS, &body("without"))), "no_tree");
    }
    assert_eq!(decision(&post(&gateway, COMPLETIONS, &body("with"))), "cache_miss_min_load");
    for profile in ["chat", "batch", "long-context"] {
        let request = Request::new("POST", COMPLETIONS).header("x-llmgw-profile", profile).json(&body("with"));
        assert_eq!(decision(&raw::call(gateway.addr(), &request.bytes())), "cache_hit", "{profile}");
    }
    let request = Request::new("POST", COMPLETIONS).header("x-llmgw-profile", "debug").json(&body("with"));
    assert_eq!(decision(&raw::call(gateway.addr(), &request.bytes())), "no_tree", "in turn, whatever the prompt");
}
