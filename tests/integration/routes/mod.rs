//! Every route beside chat, text and embeddings: what the engine gets, what the client gets, what is counted.

mod audio;
mod held;
mod judge;
mod messages;
mod responses;

use llmgw_test_kit::gateway::MODEL;
use llmgw_test_kit::raw::Reply;
use llmgw_test_kit::{Engine, Gateway, wait_for};

use crate::pair::{Pair, WITHIN, llmgw};

/// What the engine of [`renamed`] calls the model.
pub(super) const INSIDE: &str = "org/inside:7b";

/// A pair whose engine calls the model something else.
#[track_caller]
pub(super) fn renamed() -> Pair {
    let engine = Engine::local_with(|cfg| cfg.models = vec![INSIDE.to_owned()]);
    let endpoint = format!(
        "{{ name: engine-0, url: \"{}\", engine: sim, model: {MODEL}, served_as: \"{INSIDE}\" }}",
        engine.url()
    );
    let gateway = Gateway::builder().endpoint(&endpoint).env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s").start(llmgw());
    Pair { gateway, engine }
}

/// Prompt and completion tokens counted so far.
#[track_caller]
pub(super) fn tokens(pair: &Pair) -> (u64, u64) {
    let metrics = pair.gateway.metrics();
    let of = |direction| metrics.sum("llmgw_tokens_total", &[("direction", direction)]).unwrap_or(0.0) as u64;
    (of("prompt"), of("completion"))
}

/// Waits until this many tokens are counted.
#[track_caller]
pub(super) fn wait_for_tokens(pair: &Pair, expected: (u64, u64)) {
    wait_for(&format!("{expected:?} tokens"), WITHIN, || tokens(pair) == expected);
}

/// Answers that came without the usage they should have had, or with an absurd one.
#[track_caller]
pub(super) fn usage_absent(pair: &Pair) -> u64 {
    pair.gateway.metrics().sum("llmgw_usage_absent_total", &[]).unwrap_or(0.0) as u64
}

/// An error in Anthropic's shape, and nothing beside it: its status, type and message.
#[track_caller]
pub(super) fn anthropic_error(reply: &Reply) -> (u16, String, String) {
    let body = reply.json();
    assert_eq!(body["type"], "error", "{body}");
    let error = body["error"].as_object().unwrap_or_else(|| panic!("no error: {body}"));
    let text = |name: &str| error.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    assert!(!text("message").is_empty(), "{body}");
    (reply.status, text("type"), text("message"))
}
