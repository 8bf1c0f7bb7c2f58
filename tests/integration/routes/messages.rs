//! The messages API: its own credential header, its own shapes of events and of errors.

use llmgw_test_kit::gateway::MODEL;
use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, chat};
use serde_json::{Value, json};

use super::{INSIDE, anthropic_error, renamed, tokens, usage_absent, wait_for_tokens};
use crate::pair::{Pair, llmgw};

const MESSAGES: &str = "/v1/messages";

fn hello() -> Value {
    json!({ "model": MODEL, "max_tokens": 5, "messages": [{ "role": "user", "content": "hello" }] })
}

fn with(mut body: Value, name: &str, value: impl Into<Value>) -> Value {
    body[name] = value.into();
    body
}

/// Asks with faults for the engine.
fn ask(pair: &Pair, body: &Value, faults: &Value) -> Reply {
    let request = Request::new("POST", MESSAGES).header("Connection", "close").header("x-sim", faults.to_string());
    pair.send(request.json(body))
}

#[test]
fn a_message_goes_to_the_engine_without_the_clients_key_and_is_counted() {
    let pair = renamed();
    let request = Request::new("POST", "/v1/messages?beta=true")
        .header("Connection", "close")
        .header("x-api-key", "sk-of-the-client")
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "a,b");
    let reply = pair.send(request.json(&hello()));
    let body = reply.json();
    assert_eq!((reply.status, &body["type"], &body["stop_reason"]), (200, &json!("message"), &json!("max_tokens")));
    let call = pair.call_of(&reply);
    assert_eq!(call.target, "/v1/messages?beta=true");
    assert_eq!(call.header("x-api-key"), None);
    assert_eq!((call.header("anthropic-version"), call.header("anthropic-beta")), (Some("2023-06-01"), Some("a,b")));
    assert_eq!(call.json(), with(hello(), "model", INSIDE));
    let counts = &body["usage"];
    let prompt = counts["input_tokens"].as_u64().unwrap() + counts["cache_read_input_tokens"].as_u64().unwrap();
    wait_for_tokens(&pair, (prompt, 5));
}

#[test]
fn a_stream_passes_event_by_event_with_nothing_added_and_is_counted() {
    let pair = Pair::own();
    let body = with(hello(), "stream", true);
    let reply = pair.post(MESSAGES, &body);
    let names: Vec<String> = reply
        .events()
        .iter()
        .map(|event| event.lines().next().unwrap_or_default().trim_start_matches("event: ").to_owned())
        .collect();
    let starts = |at: usize| names.get(at).map(String::as_str);
    assert_eq!((starts(0), starts(1)), (Some("message_start"), Some("content_block_start")), "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "content_block_delta").count(), 5);
    assert_eq!(names.last().map(String::as_str), Some("message_stop"));
    assert_eq!(pair.call_of(&reply).json(), body, "no option is added");
    let prompt: Value = pair.post("/v1/messages/count_tokens", &hello()).json();
    wait_for_tokens(&pair, (prompt["input_tokens"].as_u64().unwrap(), 5));
    assert_eq!(usage_absent(&pair), 0);
}

#[test]
fn counting_a_prompt_counts_no_tokens_as_used() {
    let pair = Pair::own();
    let reply = pair.post("/v1/messages/count_tokens", &hello());
    assert!(reply.json()["input_tokens"].as_u64().is_some_and(|count| count > 0));
    assert_eq!((tokens(&pair), usage_absent(&pair)), ((0, 0), 0));
}

#[test]
fn the_gateways_own_errors_have_anthropics_shape() {
    let pair = Pair::shared();
    let refused = |reply: Reply, status: u16, kind: &str, part: &str| {
        let (got, found, message) = anthropic_error(&reply);
        assert_eq!((got, found.as_str()), (status, kind), "{message}");
        assert!(message.contains(part), "{message}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
    };
    refused(pair.post(MESSAGES, &with(hello(), "model", "other")), 404, "not_found_error", "other");
    refused(pair.post_text(MESSAGES, "{"), 400, "invalid_request_error", "JSON");
    refused(pair.get(MESSAGES), 405, "invalid_request_error", "POST");
    refused(pair.get("/v1/messages/batches"), 404, "not_found_error", "not served");
    refused(pair.post("/v1/messages/count_tokens", &json!({ "messages": [] })), 400, "invalid_request_error", "model");
    // Beside it OpenAI's shape stays.
    assert!(pair.get("/v1/message").json()["error"]["code"].is_string());
}

#[test]
fn with_no_engine_the_error_has_anthropics_shape_and_says_when_to_come_again() {
    let engine = Engine::local();
    let url = engine.url();
    engine.stop();
    let gateway = Gateway::builder().url(&url).not_ready().start(llmgw());
    let pair = Pair { gateway, engine: Engine::local() };
    let reply = pair.post(MESSAGES, &hello());
    let (status, kind, message) = anthropic_error(&reply);
    assert_eq!((status, kind.as_str()), (503, "overloaded_error"), "{message}");
    assert!(reply.header("retry-after").is_some());
}

#[test]
fn an_engines_error_keeps_or_gets_anthropics_shape() {
    let pair = Pair::own();
    let own = r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"},"x":1.0}"#;
    for stream in [false, true] {
        let body = with(hello(), "stream", stream);
        let reply = ask(&pair, &body, &json!({ "status": 400, "body": own }));
        assert_eq!((reply.status, reply.text().as_str()), (400, own));
        for (status, text, kind, message) in [
            (
                400,
                r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#,
                "invalid_request_error",
                "too long",
            ),
            (422, r#"{"detail":"odd"}"#, "invalid_request_error", "odd"),
            (500, "plain", "api_error", "plain"),
        ] {
            let reply = ask(&pair, &body, &json!({ "status": status, "body": text }));
            assert_eq!(anthropic_error(&reply), (status, kind.to_owned(), message.to_owned()));
        }
        let reply = ask(&pair, &body, &json!({ "status": 401, "body": "{}" }));
        assert_eq!(anthropic_error(&reply).0, 502, "a refused key is not the client's");
    }
}

#[test]
fn a_stream_that_breaks_ends_with_anthropics_error_event() {
    let pair = Pair::own();
    let reply = ask(&pair, &with(hello(), "stream", true), &json!({ "close_after_events": 4 }));
    let events = reply.events();
    let last = events.last().map(String::as_str).unwrap_or_default();
    let data = last.strip_prefix("event: error\ndata: ").unwrap_or_else(|| panic!("{events:?}"));
    let error: Value = serde_json::from_str(data).expect(data);
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("api_error")));
    assert!(!reply.text().contains("message_stop"));
    // The same break in a chat has the other shape.
    let request = Request::new("POST", crate::pair::CHAT).header("Connection", "close");
    let reply = pair.send(request.header("x-sim", r#"{"close_after_events":2}"#).json(&chat("x").streamed().json()));
    assert!(reply.events().last().is_some_and(|event| event.starts_with("data: {\"error\":")), "{:?}", reply.events());
}
