//! Responses that engines keep: whatever names one later goes to the engine that holds it, from any core.

use llmgw_test_kit::gateway::{Builder, MODEL};
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway, wait_for};
use serde_json::{Value, json};

use super::{usage_absent, wait_for_tokens};
use crate::pair::{Pair, WITHIN, error_of, llmgw};
use crate::reliability::rig::FOLLOWS_PROMPTS;

pub(super) const RESPONSES: &str = "/v1/responses";

pub(super) fn ask(previous: Option<&str>) -> Value {
    let mut body = json!({ "model": MODEL, "input": "hello", "max_output_tokens": 4 });
    if let Some(id) = previous {
        body["previous_response_id"] = id.into();
    }
    body
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body
}

/// The id that a whole answer or a stream's first event names.
#[track_caller]
pub(super) fn id_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let (_, rest) = text.split_once("\"resp_").unwrap_or_else(|| panic!("no id: {text}"));
    format!("resp_{}", rest.split('"').next().unwrap_or_default())
}

/// Three engines behind a gateway with several cores.
#[track_caller]
pub(super) fn fleet() -> (Gateway, Vec<Engine>) {
    let engines: Vec<Engine> = (0..3).map(|_| Engine::local()).collect();
    let builder = engines.iter().fold(Gateway::builder(), Builder::engine);
    // Equal prompts spread, as different ones would.
    let builder = builder.env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s").env(FOLLOWS_PROMPTS, "false");
    let gateway = builder.start(llmgw());
    wait_for("all engines to be ready", WITHIN, || {
        raw::get(gateway.admin_addr(), "/readyz").json()["endpoints_ready"] == json!(3)
    });
    (gateway, engines)
}

#[test]
fn a_follow_up_goes_to_the_engine_that_holds_the_response_whichever_core_takes_it() {
    let (gateway, engines) = fleet();
    let post = |body: &Value| raw::post(gateway.addr(), RESPONSES, body);
    // Each from a connection of its own, so from any core.
    let mut held: Vec<(String, String)> = (0..24)
        .map(|at| post(&if at % 2 == 0 { ask(None) } else { streamed(ask(None)) }))
        .map(|reply| (id_of(&reply), reply.header("x-llmgw-replica").unwrap_or_default().to_owned()))
        .collect();
    for round in 0..3 {
        for (id, replica) in &mut held {
            let body = ask(Some(id));
            let reply = post(&if round == 1 { streamed(body) } else { body });
            assert_eq!(reply.header("x-llmgw-replica"), Some(replica.as_str()), "{}", reply.text());
            *id = id_of(&reply);
        }
    }
    for (id, replica) in &held {
        let reply = raw::get(gateway.addr(), &format!("{RESPONSES}/{id}"));
        assert_eq!(
            (reply.json()["id"].as_str(), reply.header("x-llmgw-replica")),
            (Some(id.as_str()), Some(replica.as_str()))
        );
    }
    let messages = |outcome: &str| {
        let labels = [("about", "response"), ("outcome", outcome)];
        gateway.metrics().sum("llmgw_session_messages_total", &labels).unwrap_or(0.0) as u64
    };
    assert!(messages("found") > 0 && messages("told") > 0, "two cores, and one of them is not the owner");
    assert_eq!(["unknown", "unanswered", "not_asked", "not_told"].map(messages), [0; 4]);
    let busy = engines.iter().filter(|engine| !engine.calls().is_empty()).count();
    assert!(busy > 1, "all responses are at one engine: nothing was shown");
    gateway.finish(&["\"request_id\""]);
}

#[test]
fn a_response_is_counted_once_however_often_it_is_read() {
    let pair = Pair::own();
    let whole = pair.post(RESPONSES, &ask(None));
    let prompt = whole.json()["usage"]["input_tokens"].as_u64().expect("usage");
    wait_for_tokens(&pair, (prompt, 4));
    let stream = pair.post(RESPONSES, &streamed(ask(None)));
    assert!(stream.events().last().is_some_and(|event| event.starts_with("event: response.completed\n")));
    assert_eq!(pair.call_of(&stream).json(), streamed(ask(None)), "no option is added");
    wait_for_tokens(&pair, (2 * prompt, 8));
    for id in [id_of(&whole), id_of(&stream)] {
        let read = pair.get(&format!("{RESPONSES}/{id}?include=x"));
        assert_eq!((read.status, read.json()["status"].as_str()), (200, Some("incomplete")));
    }
    assert_eq!((super::tokens(&pair), usage_absent(&pair)), ((2 * prompt, 8), 0));
}

#[test]
fn requests_about_responses_reach_the_engine_as_they_are_and_unknown_ones_none() {
    let pair = Pair::own();
    let id = id_of(&pair.post(RESPONSES, &ask(None)));
    let cancel = Request::new("POST", &format!("{RESPONSES}/{id}/cancel")).header("Connection", "close");
    let reply = pair.send(cancel.header("Authorization", "Bearer mine").header("Content-Length", "0"));
    assert_eq!(
        (reply.status, reply.json()["error"]["param"].as_str()),
        (400, Some("response_id")),
        "the engine's own word"
    );
    let call = pair.call_of(&reply);
    assert_eq!((call.target.clone(), call.header("authorization")), (format!("{RESPONSES}/{id}/cancel"), None));

    let before = pair.engine.requests().iter().filter(|call| call.target.contains("resp_none")).count();
    for (method, target) in [
        ("GET", "/v1/responses/resp_none"),
        ("DELETE", "/v1/responses/resp_none"),
        ("POST", "/v1/responses/resp_none/cancel"),
    ] {
        let request = Request::new(method, target).header("Connection", "close").header("Content-Length", "0");
        let (status, code, _) = error_of(&pair.send(request));
        assert_eq!((status, code), (404, json!("response_not_found")), "{method} {target}");
    }
    let after = pair.engine.requests().iter().filter(|call| call.target.contains("resp_none")).count();
    assert_eq!((before, after), (0, 0));
    assert_eq!(error_of(&pair.get("/v1/responses/..%2fx")).1, json!("unknown_url"));
    // Nobody here knows it, so any engine may say so.
    assert_eq!(pair.post(RESPONSES, &ask(Some("resp_none"))).json()["error"]["param"], "previous_response_id");
}
