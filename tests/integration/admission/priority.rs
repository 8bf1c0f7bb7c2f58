//! A request's band, told to engines that order their own queue by priority.

use llmgw_test_kit::engine::Recorded;
use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, chat};
use serde_json::{Value, json};

use crate::pair::{CHAT, Pair, error_of, llmgw};

fn pair(scheduling: &str, engine: &str) -> Pair {
    let sim = Engine::local();
    // The simulated engine's metrics are in one vocabulary only.
    let keys = format!("engine: {engine}, scheduling: {scheduling}, metrics_path: \"off\"");
    let endpoint = format!("{{ name: e, url: \"{}\", model: test-model, {keys} }}", sim.url());
    // Each core remembers what engines refuse for itself.
    let builder = Gateway::builder().cores(1).endpoint(&endpoint).env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s");
    Pair { gateway: builder.start(llmgw()), engine: sim }
}

fn ask(pair: &Pair, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
    let request = Request::new("POST", path).header("Connection", "close");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    raw::call(pair.gateway.addr(), &request.json(body).bytes())
}

fn seen(pair: &Pair, headers: &[(&str, &str)], chat: &Chat) -> Recorded {
    let reply = ask(pair, CHAT, headers, &chat.json());
    assert_eq!(reply.status, 200, "{}", reply.text());
    pair.call_of(&reply)
}

#[test]
fn an_engine_that_orders_by_priority_is_told_the_bands() {
    for (engine, sign) in [("sim", -1), ("sglang", 1)] {
        let pair = pair("priority", engine);
        for (headers, priority) in [
            (&[][..], 400),
            (&[("x-llmgw-band", "bronze")], 100),
            (&[("X-Llmgw-Band", "silver")], 200),
            (&[("x-llmgw-band", "platinum")], 400),
        ] {
            for streamed in [chat("hello"), chat("hello").streamed(), chat("hello").field("priority", 7_000)] {
                let call = seen(&pair, headers, &streamed);
                assert_eq!(call.json()["priority"], json!(sign * priority), "{headers:?}");
                assert!(call.header("x-llmgw-band").is_none());
            }
        }
    }
}

#[test]
fn everything_else_of_the_body_stays_as_the_client_wrote_it() {
    let pair = pair("priority", "sim");
    let body = r#"{ "model" : "test-model", "seed": 9007199254740993, "messages":[ {"role":"user","content":"é"}]}"#;
    let reply = pair.post_text(CHAT, body);
    assert_eq!(reply.status, 200);
    let call = pair.call_of(&reply);
    assert_eq!(call.body_text.as_deref(), Some(body.replacen('{', "{\"priority\":-400,", 1).as_str()));
}

#[test]
fn an_engine_that_takes_its_queue_in_order_of_arrival_is_told_nothing() {
    let pair = pair("fifo", "sim");
    let call = seen(&pair, &[("x-llmgw-band", "bronze")], &chat("hello"));
    assert!(call.json().get("priority").is_none());
    let call = seen(&pair, &[], &chat("hello").field("priority", 7));
    assert_eq!(call.json()["priority"], json!(7), "what the client wrote is the engine's to judge");
}

#[test]
fn no_client_gives_itself_a_place_by_the_engines_own_header() {
    let pair = pair("priority", "sim");
    let call = seen(&pair, &[("x-llmgw-band", "bronze"), ("X-Vllm-Priority", "-9999")], &chat("hello"));
    assert!(call.header("x-vllm-priority").is_none());
}

#[test]
fn routes_whose_body_has_no_priority_are_told_by_header_where_the_engine_takes_one() {
    let body = json!({ "model": "test-model", "max_tokens": 4, "messages": [{ "role": "user", "content": "hi" }] });
    let pair = pair("priority", "vllm");
    let reply = ask(&pair, "/v1/messages", &[("x-llmgw-band", "gold")], &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let call = pair.call_of(&reply);
    assert_eq!(call.header("x-vllm-priority"), Some("-300"));
    assert!(call.json().get("priority").is_none());
}

#[test]
fn an_unknown_band_is_refused_with_the_ones_there_are() {
    let pair = Pair::own();
    let reply = ask(&pair, CHAT, &[("x-llmgw-band", "gilt")], &chat("hello").json());
    assert_eq!(error_of(&reply).0, 400);
    assert_eq!(
        reply.json()["error"]["message"],
        "x-llmgw-band: no band is called `gilt`; bands: platinum, gold, silver, bronze"
    );
    assert!(pair.engine.calls().is_empty());
}

#[test]
fn an_engine_that_refuses_priorities_is_asked_again_without_and_remembered() {
    let pair = pair("priority", "sim");
    pair.engine.set_faults(json!({ "refuse_priority": true }));
    for (count, chat) in [(2, chat("one").streamed()), (1, chat("two").streamed())] {
        let reply = ask(&pair, CHAT, &[], &chat.json());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let calls = pair.calls_of(&reply);
        assert_eq!(calls.len(), count);
        assert!(calls.last().is_some_and(|call| call.json().get("priority").is_none()));
    }
}

#[test]
fn a_refusal_that_only_quotes_the_priority_is_passed_on_and_not_remembered() {
    let pair = pair("priority", "sim");
    let body = r#"{"error":{"message":"bad temperature beside priority","code":400}}"#;
    let refused = ask(&pair, CHAT, &[], &chat("x").faults(json!({ "status": 400, "body": body })).json());
    assert_eq!((refused.status, refused.text()), (400, body.to_owned()));
    assert_eq!(seen(&pair, &[], &chat("hello")).json()["priority"], json!(-400));
}
