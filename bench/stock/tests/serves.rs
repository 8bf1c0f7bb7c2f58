//! The conventional gateway over real sockets, in front of simulated engines: what it must do to be worth a comparison.
//! The behaviour suite says the rest.

use std::path::Path;
use std::time::Duration;

use llmgw_test_kit::engine::Engine;
use llmgw_test_kit::gateway::Gateway;
use llmgw_test_kit::raw::{self, Connection, End};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";
const WITHIN: Duration = Duration::from_secs(20);

fn fleet(engines: usize, router: &str) -> (Gateway, Vec<Engine>) {
    let engines: Vec<Engine> = (0..engines).map(|_| Engine::local()).collect();
    let builder = Gateway::builder().env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s").router(router);
    let builder = engines.iter().fold(builder, |builder, engine| builder.engine(engine));
    (builder.start(Path::new(env!("CARGO_BIN_EXE_llmgw-stock"))), engines)
}

#[test]
fn a_chat_is_answered_with_who_answered_and_counted_once() {
    let (gateway, engines) = fleet(1, "inject_usage: true");
    let reply = raw::post(gateway.addr(), CHAT, &chat("hello").max_tokens(4).json());
    assert_eq!((reply.status, reply.end), (200, End::Complete), "{}", reply.text());
    assert_eq!(reply.header("x-llmgw-replica"), Some("engine-0"));
    assert_eq!(reply.header("x-request-id"), engines[0].only_call().header("x-request-id"));
    wait_for("it is counted", WITHIN, || {
        gateway.metrics().sum("llmgw_requests_total", &[("status", "200")]) == Some(1.0)
    });
    assert_eq!(gateway.inflight(), 0.0);
    gateway.finish(&[]);
}

#[test]
fn a_stream_passes_to_its_end_without_the_usage_that_its_client_did_not_ask_for() {
    let (gateway, engines) = fleet(1, "inject_usage: true");
    let reply = raw::post(gateway.addr(), CHAT, &chat("hello").max_tokens(5).streamed().json());
    assert_eq!((reply.status, reply.end), (200, End::Complete));
    let events = reply.events();
    assert_eq!(events.last().map(|event| event.trim()), Some("data: [DONE]"), "{events:?}");
    assert!(!reply.text().contains("\"usage\":{"), "{}", reply.text());
    assert_eq!(engines[0].only_call().json()["stream_options"]["include_usage"], true);
    wait_for("its tokens are counted", WITHIN, || {
        gateway.metrics().sum("llmgw_tokens_total", &[("direction", "completion")]) == Some(5.0)
    });
    gateway.finish(&[]);
}

#[test]
fn what_one_engine_cannot_do_another_does() {
    for faults in [json!({ "status": 503 }), json!({ "body": "x".repeat(100), "close_after_bytes": 50 })] {
        // Where prompts are cached is no matter here: it would lead all of them past the engine that fails.
        let (gateway, engines) = fleet(2, "cooldown_seconds: 0\nprefix: { approx_tree: { enabled: false } }");
        engines[0].set_faults(faults.clone());
        // Which one is tried first is drawn.
        for number in 0..64 {
            let reply = raw::post(gateway.addr(), CHAT, &chat("hello").max_tokens(1).json());
            assert_eq!(reply.status, 200, "{faults}: {}", reply.text());
            assert_eq!(reply.header("x-llmgw-replica"), Some("engine-1"));
            if number >= 8 && !engines[0].calls().is_empty() {
                break;
            }
        }
        let (tried, page) = (engines[0].calls().len() as f64, gateway.metrics());
        assert!(tried > 0.0, "{faults}");
        assert_eq!(page.sum("llmgw_retries_total", &[]), Some(tried), "{faults}");
    }
}

#[test]
fn a_client_that_leaves_ends_its_engines_work() {
    let (gateway, engines) = fleet(1, "retries: 0");
    let mut client = Connection::open(gateway.addr()).expect("it listens");
    let body = chat("hello").max_tokens(100_000).streamed().json();
    client.send(&Request::new("POST", CHAT).json(&body).bytes()).expect("sent");
    let head = client.head().expect("a head");
    assert_eq!(client.body(&head).events(2).expect("events").len(), 2);
    client.leave();
    wait_for("the engine hears of it", WITHIN, || engines[0].state().open_requests == 0);
    wait_for("nothing is in flight", WITHIN, || gateway.inflight() == 0.0);
}

#[test]
fn refusals_have_the_shape_of_their_route() {
    let (gateway, _engines) = fleet(1, "retries: 0");
    for (request, status, code) in [
        (Request::new("POST", CHAT).json(&json!({ "model": "nobody" })), 404, "model_not_found"),
        (Request::new("POST", CHAT).body("application/json", "{"), 400, "bad_request"),
        (Request::new("GET", CHAT), 405, "method_not_allowed"),
        (Request::new("GET", "/nowhere"), 404, "unknown_url"),
        (Request::new("POST", CHAT).header("Content-Length", "+1"), 400, "bad_http"),
    ] {
        let reply = raw::call(gateway.addr(), &request.bytes());
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &json!(code)), "{}", reply.text());
    }
    let reply = raw::post(gateway.addr(), "/v1/messages", &json!({ "model": "nobody" }));
    assert_eq!((reply.status, &reply.json()["type"]), (404, &json!("error")), "{}", reply.text());
}

#[test]
fn a_stream_that_runs_at_the_end_is_told_so_in_the_stream() {
    let (gateway, _engines) = fleet(1, "timeouts: { drain: 100ms }");
    let mut client = Connection::open(gateway.addr()).expect("it listens");
    let body = chat("hello").max_tokens(100_000).streamed().json();
    client.send(&Request::new("POST", CHAT).json(&body).bytes()).expect("sent");
    let head = client.head().expect("a head");
    let mut stream = client.body(&head);
    assert_eq!(stream.events(2).expect("events").len(), 2);
    let end = std::thread::spawn(move || gateway.finish(&["cut"]));
    let mut last = String::new();
    while let Ok(Some(event)) = stream.event() {
        last = event;
    }
    assert!(last.contains("shutting_down"), "{last}");
    assert_ne!(stream.end(), End::Complete);
    end.join().expect("it ended well");
}

#[test]
fn the_bare_mode_passes_whole_answers_and_streams_to_the_endpoints_in_turn_and_counts_nothing() {
    let engines = [Engine::local(), Engine::local()];
    let builder = engines.iter().fold(Gateway::builder().arg("--bare"), |builder, engine| builder.engine(engine));
    let gateway = builder.start(Path::new(env!("CARGO_BIN_EXE_llmgw-stock")));
    for body in [chat("hello").max_tokens(4).json(), chat("hello").max_tokens(4).streamed().json()] {
        for _ in 0..2 {
            let reply = raw::post(gateway.addr(), CHAT, &body);
            assert_eq!((reply.status, reply.end), (200, End::Complete), "{}", reply.text());
        }
    }
    assert_eq!(engines.each_ref().map(|engine| engine.calls().len()), [2, 2]);
    assert_eq!(gateway.metrics().sum("llmgw_requests_total", &[("status", "200")]).unwrap_or(0.0), 0.0);
    gateway.finish(&[]);
}
