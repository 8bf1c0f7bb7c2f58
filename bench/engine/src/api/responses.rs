//! `/v1/responses`: answers that are kept, and later requests about them.

use serde_json::{Value, json};

use crate::answer::Request;
use crate::api::input::Body;
use crate::api::plan::Form;
use crate::api::shape::Usage;
use crate::api::turn::{Turn, event, usage_or_fault};
use crate::api::{Answered, Refusal, error_body};
use crate::reply::Reply;

/// Responses that are kept.
const KEPT_MAX: usize = 1_024;

/// What a path below `/v1/responses/` allows.
pub(super) fn allowed(path: &str) -> &'static str {
    if path.ends_with("/cancel") { "POST" } else { "GET" }
}

/// A new response.
pub(super) async fn create(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let (store, previous) = match read(request) {
        Ok(read) => read,
        Err(refusal) => return Ok(Some(refusal)),
    };
    if let Some(id) = &previous
        && find(reply, id).is_none()
    {
        return Ok(Some(unknown(id, "previous_response_id")));
    }
    let turn = match Turn::start(request, reply, Form::Response) {
        Ok(turn) => turn,
        Err(refusal) => return Ok(Some(refusal)),
    };
    let kept = Kept { store, previous, created: reply.shared.unix_s() };
    let written = if turn.plan.is_stream { stream(reply, turn, kept).await } else { whole(reply, turn, kept).await };
    written.map(|()| None)
}

/// A request about a response that is kept.
pub(super) async fn stored(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let rest = request.head.path().strip_prefix("/v1/responses/").unwrap_or_default();
    let (id, is_cancel) = rest.strip_suffix("/cancel").map_or((rest, false), |id| (id, true));
    let Some(response) = find(reply, id) else { return Ok(Some(unknown(id, "response_id"))) };
    if is_cancel {
        let message = "Cannot cancel a synchronous response.";
        let body = error_body(message, "invalid_request_error", Some("response_id"), 400);
        return Ok(Some(Refusal { status: 400, body }));
    }
    reply.whole(200, "application/json", &[], response.to_string().as_bytes()).await.map(|()| None)
}

fn read(request: &Request) -> Result<(bool, Option<String>), Refusal> {
    let body = Body::parse(request)?;
    let store = body.raw("store") != Some("false");
    Ok((store, body.text("previous_response_id")?))
}

fn find(reply: &Reply<'_, '_>, id: &str) -> Option<Value> {
    let state = reply.shared.lock();
    state.responses.iter().find(|(kept, _)| kept == id).map(|(_, response)| response.clone())
}

fn unknown(id: &str, param: &str) -> Refusal {
    let message = format!("Response with id '{id}' not found.");
    Refusal { status: 404, body: error_body(&message, "invalid_request_error", Some(param), 404) }
}

struct Kept {
    store: bool,
    previous: Option<String>,
    created: u64,
}

impl Kept {
    fn response(&self, turn: &Turn, text: Option<&str>, usage: Value) -> Value {
        let is_cut = text.is_some() && turn.choice.finish_reason == "length";
        let status = match text {
            None => "in_progress",
            Some(_) if is_cut => "incomplete",
            Some(_) => "completed",
        };
        let output: Vec<Value> = text.map(|text| item(turn, text, "completed")).into_iter().collect();
        json!({
            "id": format!("resp_{}", turn.suffix), "created_at": self.created,
            "incomplete_details": is_cut.then(|| json!({ "reason": "max_output_tokens" })),
            "instructions": null, "metadata": null, "model": turn.plan.model, "object": "response",
            "output": output, "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "none", "tools": [],
            "top_p": 1.0, "background": false, "max_output_tokens": turn.choice.tokens, "max_tool_calls": null,
            "previous_response_id": self.previous, "prompt": null, "reasoning": null, "service_tier": "auto",
            "status": status, "text": null, "top_logprobs": null, "truncation": "disabled", "usage": usage,
            "user": null,
        })
    }

    fn keep(&self, reply: &Reply<'_, '_>, response: &Value) {
        if !self.store {
            return;
        }
        let mut state = reply.shared.lock();
        if state.responses.len() == KEPT_MAX {
            state.responses.pop_front();
        }
        let id = response["id"].as_str().unwrap_or_default().to_owned();
        state.responses.push_back((id, response.clone()));
    }
}

fn item(turn: &Turn, text: &str, status: &str) -> Value {
    let content = json!([{ "annotations": [], "text": text, "type": "output_text", "logprobs": null }]);
    json!({
        "id": format!("msg_{}", turn.suffix), "content": content, "role": "assistant", "status": status,
        "type": "message", "phase": null,
    })
}

fn usage_value(reply: &Reply<'_, '_>, usage: Usage) -> Value {
    let Usage { prompt, completion, cached, .. } = usage;
    let counts = json!({
        "input_tokens": prompt, "input_tokens_details": { "cached_tokens": cached }, "output_tokens": completion,
        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": prompt as u64 + completion,
    });
    usage_or_fault(reply, counts)
}

async fn whole(reply: &mut Reply<'_, '_>, mut turn: Turn, kept: Kept) -> crate::reply::Written {
    let text = turn.whole().await;
    let usage = turn.finish(reply);
    let response = kept.response(&turn, Some(&text), usage_value(reply, usage));
    kept.keep(reply, &response);
    reply.whole(200, "application/json", &[], response.to_string().as_bytes()).await
}

async fn stream(reply: &mut Reply<'_, '_>, mut turn: Turn, kept: Kept) -> crate::reply::Written {
    reply.begin(200, "text/event-stream; charset=utf-8", &[]).await?;
    let mut number = 0;
    let mut named = |name: &str, mut data: Value| {
        data["type"] = name.into();
        data["sequence_number"] = number.into();
        number += 1;
        event(name, &data)
    };
    let item_id = format!("msg_{}", turn.suffix);
    let at = |mut data: Value| {
        data["item_id"] = item_id.as_str().into();
        data["output_index"] = 0.into();
        data["content_index"] = 0.into();
        data
    };
    let begun = kept.response(&turn, None, Value::Null);
    reply.piece(&named("response.created", json!({ "response": begun }))).await?;
    reply.piece(&named("response.in_progress", json!({ "response": begun }))).await?;
    let added = json!({ "output_index": 0, "item": { "id": item_id, "type": "message", "role": "assistant",
        "content": [], "status": "in_progress" } });
    reply.piece(&named("response.output_item.added", added)).await?;
    let mut text = String::new();
    while let Some(piece) = turn.next().await {
        reply.piece(&named("response.output_text.delta", at(json!({ "delta": piece, "logprobs": [] })))).await?;
        text.push_str(&piece);
    }
    let usage = turn.finish(reply);
    let response = kept.response(&turn, Some(&text), usage_value(reply, usage));
    kept.keep(reply, &response);
    reply.piece(&named("response.output_text.done", at(json!({ "text": text, "logprobs": [] })))).await?;
    let done = json!({ "output_index": 0, "item": item(&turn, &text, "completed") });
    reply.piece(&named("response.output_item.done", done)).await?;
    reply.piece(&named("response.completed", json!({ "response": response }))).await?;
    reply.end().await
}
