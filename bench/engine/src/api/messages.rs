//! `/v1/messages` and `/v1/messages/count_tokens`, in Anthropic's shapes, errors too.

use serde_json::{Value, json};

use crate::answer::Request;
use crate::api::input::{self, Body};
use crate::api::plan::Form;
use crate::api::turn::{Turn, event, usage_or_fault};
use crate::api::{Answered, Refusal};
use crate::reply::{Reply, Written};

/// One message.
pub(super) async fn create(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let turn = match Turn::start(request, reply, Form::Message) {
        Ok(turn) => turn,
        Err(refusal) => return Ok(Some(in_shape(refusal))),
    };
    let written = if turn.plan.is_stream { stream(reply, turn).await } else { whole(reply, turn).await };
    written.map(|()| None)
}

/// The prompt's length.
pub(super) async fn count(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let tokens = match length(request, reply) {
        Ok(tokens) => tokens,
        Err(refusal) => return Ok(Some(in_shape(refusal))),
    };
    let body = json!({ "input_tokens": tokens }).to_string();
    reply.whole(200, "application/json", &[], body.as_bytes()).await.map(|()| None)
}

fn length(request: &Request, reply: &Reply<'_, '_>) -> Result<usize, Refusal> {
    let body = Body::parse(request)?;
    body.model(&reply.shared.lock().cfg)?;
    Ok(input::chat_prompt(&body, "messages")?.len())
}

/// vLLM's own words in the shape that clients of this API read.
fn in_shape(refusal: Refusal) -> Refusal {
    let error: Value = serde_json::from_str(&refusal.body).unwrap_or_default();
    let (kind, message) = (&error["error"]["type"], &error["error"]["message"]);
    let body = json!({ "type": "error", "error": { "type": kind, "message": message } }).to_string();
    Refusal { status: refusal.status, body }
}

fn stop_reason(turn: &Turn) -> &'static str {
    match turn.choice.finish_reason {
        "length" => "max_tokens",
        _ if turn.choice.stop_reason.is_some() => "stop_sequence",
        _ => "end_turn",
    }
}

async fn whole(reply: &mut Reply<'_, '_>, mut turn: Turn) -> Written {
    let text = turn.whole().await;
    let usage = turn.finish(reply);
    let counts = json!({
        "input_tokens": usage.prompt as u64 - usage.cached, "output_tokens": usage.completion,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": usage.cached,
    });
    let body = json!({
        "id": format!("chatcmpl-{}", turn.suffix), "type": "message", "role": "assistant",
        "content": [{ "type": "text", "text": text }], "model": turn.plan.model, "stop_reason": stop_reason(&turn),
        "usage": usage_or_fault(reply, counts),
    });
    reply.whole(200, "application/json", &[], body.to_string().as_bytes()).await
}

async fn stream(reply: &mut Reply<'_, '_>, mut turn: Turn) -> Written {
    reply.begin(200, "text/event-stream; charset=utf-8", &[]).await?;
    let prompt = turn.plan.prompt_tokens();
    let message = json!({
        "id": format!("chatcmpl-{}", turn.suffix), "type": "message", "role": "assistant", "content": [],
        "model": turn.plan.model, "stop_reason": null, "usage": { "input_tokens": prompt, "output_tokens": 0 },
    });
    let typed = |name: &str, mut data: Value| {
        data["type"] = name.into();
        event(name, &data)
    };
    reply.piece(&typed("message_start", json!({ "message": message }))).await?;
    let block = json!({ "index": 0, "content_block": { "type": "text", "text": "" } });
    reply.piece(&typed("content_block_start", block)).await?;
    while let Some(piece) = turn.next().await {
        let delta = json!({ "index": 0, "delta": { "type": "text_delta", "text": piece } });
        reply.piece(&typed("content_block_delta", delta)).await?;
    }
    let usage = turn.finish(reply);
    reply.piece(&typed("content_block_stop", json!({ "index": 0 }))).await?;
    let counts = usage_or_fault(reply, json!({ "input_tokens": usage.prompt, "output_tokens": usage.completion }));
    let delta = json!({ "delta": { "stop_reason": stop_reason(&turn), "stop_sequence": null }, "usage": counts });
    reply.piece(&typed("message_delta", delta)).await?;
    reply.piece(&typed("message_stop", json!({}))).await?;
    reply.end().await
}
