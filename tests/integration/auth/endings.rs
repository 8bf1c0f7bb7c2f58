//! Trials D3 and L8: places come back from endings of every kind on every route, and every answer says where a key
//! stands.

use llmgw_test_kit::raw::{Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, chat, wait_for};
use serde_json::{Value, json};

use super::rig::Rig;
use crate::pair::{CHAT, WITHIN, error_of};

/// Requests at once that the key below may have.
const AT_ONCE: usize = 4;
/// Times that all of its places are used up and left in each way, on each route.
const ROUNDS: usize = 2;

/// How a request ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Answered,
    Failed,
    Refused,
    /// Its client leaves while the engine works.
    Left,
    /// The same with a reset.
    Reset,
    NoJson,
}

const ENDINGS: [Ending; 6] =
    [Ending::Answered, Ending::Failed, Ending::Refused, Ending::Left, Ending::Reset, Ending::NoJson];

fn routes() -> Vec<(&'static str, Value)> {
    let model = "test-model";
    let message = json!([{ "role": "user", "content": "hello" }]);
    let documents = json!(["one", "two"]);
    let judged = json!({ "model": model, "query": "q", "documents": documents });
    let scored = json!({ "model": model, "text_1": "q", "text_2": documents });
    vec![
        ("/v1/chat/completions", json!({ "model": model, "messages": message })),
        ("/v1/completions", json!({ "model": model, "prompt": "hello" })),
        ("/v1/responses", json!({ "model": model, "input": "hello" })),
        ("/v1/messages", json!({ "model": model, "messages": message, "max_tokens": 5 })),
        ("/v1/messages/count_tokens", json!({ "model": model, "messages": message })),
        ("/v1/embeddings", json!({ "model": model, "input": "hello" })),
        ("/v1/rerank", judged.clone()),
        ("/v2/rerank", judged.clone()),
        ("/rerank", judged),
        ("/v1/score", scored.clone()),
        ("/score", scored),
        ("/tokenize", json!({ "model": model, "prompt": "hello" })),
        ("/detokenize", json!({ "model": model, "tokens": [1, 2] })),
        ("/v1/audio/speech", json!({ "model": model, "input": "hello", "voice": "a" })),
    ]
}

/// Sends as many as there are places, and ends each of them so.
fn end(rig: &Rig, key: &str, path: &str, body: &Value, ending: Ending) {
    let faults = match ending {
        Ending::Answered => json!({}),
        Ending::Failed => json!({ "status": 500 }),
        Ending::Refused => json!({ "status": 400 }),
        Ending::Left | Ending::Reset => json!({ "first_byte_delay_us": 60_000_000 }),
        Ending::NoJson => json!({}),
    };
    let mut clients: Vec<Connection> = Vec::new();
    for _ in 0..AT_ONCE {
        let request = Request::new("POST", path).header("Authorization", format!("Bearer {key}"));
        let request = request.header("Connection", "close").header("x-sim", faults.to_string());
        let request = if matches!(ending, Ending::NoJson) {
            request.body("application/json", &b"{\"model\": \"test-model\", "[..])
        } else {
            request.json(body)
        };
        let mut client = Connection::open(rig.gateway.addr()).expect("connected");
        client.send(&request.bytes()).expect("sent");
        clients.push(client);
    }
    if matches!(ending, Ending::Left | Ending::Reset) {
        // Each of them has its place by then.
        let running = || rig.gateway.metrics().sum("llmgw_requests_in_flight", &[]) == Some(AT_ONCE as f64);
        wait_for("all to run", WITHIN, running);
    }
    for mut client in clients {
        match ending {
            Ending::Left => client.leave(),
            Ending::Reset => client.abort().expect("reset"),
            Ending::Answered | Ending::Failed | Ending::Refused | Ending::NoJson => {
                let status = client.reply().expect("an answer").status;
                assert_ne!(status, 429, "{path}, {ending:?}");
            }
        }
    }
}

fn me(rig: &Rig, key: &str) -> Value {
    rig.get(key, "/me").json()["limits"][0].clone()
}

#[test]
fn a_key_has_all_its_places_again_after_endings_of_every_kind_on_every_route() {
    let rig = Rig::with(vec![Engine::local()], &["model: test-model"], "", "cooldown_seconds: 0\nretries: 0");
    let key = rig.key("four", Value::Null);
    rig.admin("PUT /limits/key/four", &json!({ "parallel": AT_ONCE }));
    wait_for("the limit", WITHIN, || (0..16).all(|_| me(&rig, &key)["parallel"] == AT_ONCE));
    for (path, body) in routes() {
        for _ in 0..ROUNDS {
            for ending in ENDINGS {
                end(&rig, &key, path, &body, ending);
                // Places are counted where they are held; a place may be lent out, and comes back for who asks.
                let held = || me(&rig, &key)["used"]["held"]["parallel"].as_i64() == Some(0);
                wait_for(&format!("no place held after {path}, {ending:?}"), WITHIN, held);
            }
        }
        let last = rig.send(Request::new("POST", path).header("x-api-key", &key).json(&body));
        assert_eq!(last.status, 200, "{path}: {}", last.text());
    }
    wait_for("nothing in flight", WITHIN, || rig.gateway.metrics().sum("llmgw_requests_in_flight", &[]) == Some(0.0));
    rig.gateway.finish(&["\"request_id\"", "breaker"]);
}

/// Trial L8.
#[test]
fn every_answer_to_a_key_with_limits_says_how_it_stands_with_them() {
    let rig = Rig::start();
    let names = ["limit", "remaining", "reset"];
    let all = names.iter().flat_map(|name| ["requests", "tokens"].map(|of| format!("x-ratelimit-{name}-{of}")));
    let all: Vec<String> = all.collect();
    let check = |reply: &Reply, code: Option<&str>| {
        for name in &all {
            assert!(reply.header(name).is_some(), "{code:?} has no {name}: {}", reply.text());
        }
        match code {
            None => assert_eq!(reply.status, 200, "{}", reply.text()),
            Some(code) => assert_eq!(error_of(reply), (429, json!(code), json!(null))),
        }
    };
    let wide = json!({ "rpm": 1_000, "tpm": 1_000_000, "parallel": 8, "budget_micros": 1_000_000_000_000_u64 });
    for (name, tight, code) in [
        ("fine", json!({}), None),
        ("requests", json!({ "rpm": 1 }), Some("limit_requests")),
        ("tokens", json!({ "tpm": 600 }), Some("limit_tokens")),
        ("parallel", json!({ "parallel": 1 }), Some("limit_parallel")),
        ("budget", json!({ "budget_micros": 600_000_000 }), Some("budget_spent")),
    ] {
        let key = rig.key(name, Value::Null);
        let mut limits = wide.clone();
        limits["budget_period"] = json!("month");
        limits.as_object_mut().expect("an object").extend(tight.as_object().cloned().unwrap_or_default());
        rig.admin(&format!("PUT /limits/key/{name}"), &limits);
        wait_for("the limits", WITHIN, || (0..16).all(|_| me(&rig, &key)["rpm"] == limits["rpm"]));
        // One that stays takes up what there is.
        let held = chat("hello").streamed().max_tokens(500).faults(json!({ "events": 3, "stall_after_events": 1 }));
        let request = Request::new("POST", CHAT).header("x-api-key", &key).json(&held.json());
        let mut first = Connection::open(rig.gateway.addr()).expect("connected");
        first.send(&request.bytes()).expect("sent");
        let head = first.head().expect("a head");
        assert_eq!(head.status, 200);
        assert!(all.iter().all(|name| head.header(name).is_some()), "{name}: a stream says it, too");
        let second = rig.ask(&key, &chat("hello").max_tokens(500), &[]);
        check(&second, code);
        if let Some(code) = code {
            assert!(second.header("retry-after").is_some(), "{code}");
        }
        rig.engines[0].release();
        first.leave();
    }
    rig.gateway.finish(&["\"request_id\""]);
}
