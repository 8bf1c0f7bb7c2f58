//! curl and Node's fetch read a stream through the gateway, event by event.

use std::time::Duration;

use llmgw_test_kit::process::Line;
use llmgw_test_kit::{Engine, Gateway, chat};
use serde_json::Value;

use crate::clients::{Client, said, stream};
use crate::llmgw;

const FIRST: Duration = Duration::from_secs(10);
const ALL: Duration = Duration::from_secs(30);
/// At 50 tokens a second the engine works for two seconds.
const TOKENS: u32 = 100;

/// A first event must be in the client's hands while the engine is still at work, and all of them must arrive.
#[track_caller]
fn check(client: Client, driver: &str) {
    let engine = Engine::start_with(llmgw(), &["--model", llmgw_test_kit::gateway::MODEL, "--tokens-per-second", "50"]);
    let gateway = Gateway::builder()
        .engine(&engine)
        .router("timeouts: { settle: 0s }")
        .arg("--driver")
        .arg(driver)
        .start(llmgw());
    let body = chat("stream to me").max_tokens(TOKENS).with_usage().json();
    let mut process = stream(client, &gateway.url(), &body);
    let content = |line: &Line| {
        let event: Value = serde_json::from_str(&line.text).ok()?;
        event["choices"][0]["delta"]["content"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let first = process.wait_for_line("a first token", FIRST, content);
    assert!(first.is_ok(), "{client:?}: {first:?}");
    assert_eq!(engine.state().open_requests, 1, "{client:?} got its first token only when the engine had ended");
    assert_eq!(gateway.inflight(), 1.0);

    let status = process.wait(ALL).unwrap_or_else(|error| panic!("{client:?}: {error}"));
    let (lines, text) = (process.lines(), said(&process));
    assert!(status.success(), "{client:?} ended with {status}: {text}");
    assert_eq!(lines.iter().filter_map(content).count(), TOKENS as usize, "{client:?}: {text}");
    let mut newest = lines.iter().rev().filter_map(|line| serde_json::from_str::<Value>(&line.text).ok());
    assert_eq!(newest.next().unwrap_or_default()["usage"]["completion_tokens"], TOKENS, "{client:?}: {text}");
    let last: Vec<&str> = lines.iter().rev().take(2).rev().map(|line| line.text.as_str()).collect();
    assert_eq!(last, ["[DONE]", "end"], "{client:?}: {text}");
    gateway.finish(&[]);
}

#[test]
fn curl_reads_a_stream_event_by_event() {
    check(Client::Curl, "auto");
}

#[test]
fn curl_reads_a_stream_event_by_event_where_io_uring_is_refused() {
    check(Client::Curl, "epoll");
}

#[test]
fn node_fetch_reads_a_stream_event_by_event() {
    check(Client::Node, "auto");
}
