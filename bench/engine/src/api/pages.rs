//! What is not inference: models, health, version, metrics, tokenize.

use serde_json::{Value, json};

use crate::answer::{self, Request};
use crate::api::input::Body;
use crate::api::{Answered, Refusal, error_body};
use crate::config::{EngineConfig, Vocabulary};
use crate::metrics;
use crate::mix::hash_bytes;
use crate::reply::Reply;
use crate::token;

pub(crate) async fn answer(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let path = request.head.path();
    let vocabulary = reply.shared.lock().cfg.vocabulary;
    let body = match path {
        "/health" if vocabulary == Vocabulary::Llamacpp => json!({ "status": "ok" }).to_string(),
        "/health" | "/ping" => {
            return reply.whole(200, "", &[], b"").await.map(|()| None);
        }
        "/version" => json!({ "version": format!("sim-{}", env!("CARGO_PKG_VERSION")) }).to_string(),
        "/props" => json!({ "total_slots": reply.shared.lock().cfg.batch.max_num_seqs }).to_string(),
        "/server_info" => {
            let most = reply.shared.lock().cfg.batch.max_num_seqs;
            json!({ "internal_states": [{ "effective_max_running_requests_per_dp": most }] }).to_string()
        }
        "/load" => json!({ "server_load": reply.shared.lock().batch.running_count() }).to_string(),
        "/metrics" => {
            let status = reply.shared.lock().cfg.metrics_status;
            if let Some(status) = status {
                return reply.whole(status, "text/plain", &[], b"").await.map(|()| None);
            }
            let page = metrics::page(&reply.shared);
            let version = if vocabulary == Vocabulary::Vllm { "1.0.0" } else { "0.0.4" };
            let content_type = format!("text/plain; version={version}; charset=utf-8");
            return reply.whole(200, &content_type, &[], page.as_bytes()).await.map(|()| None);
        }
        "/v1/models" => models(reply),
        "/tokenize" => match tokenize(request, reply) {
            Ok(body) => body,
            Err(refusal) => return Ok(Some(refusal)),
        },
        "/detokenize" => match detokenize(request) {
            Ok(body) => body,
            Err(refusal) => return Ok(Some(refusal)),
        },
        path => match one_model(path.strip_prefix("/v1/models/").unwrap_or_default(), reply) {
            Ok(body) => body,
            Err(refusal) => return Ok(Some(refusal)),
        },
    };
    reply.whole(200, "application/json", &[], body.as_bytes()).await.map(|()| None)
}

fn models(reply: &Reply<'_, '_>) -> String {
    let since = reply.shared.lock().configured_at_ns;
    let is_loaded = answer::has_passed(reply, since, reply.faults.models_empty_us);
    let state = reply.shared.lock();
    let names: &[String] = if is_loaded { &state.cfg.models } else { &[] };
    let data: Vec<Value> = names.iter().map(|name| model(name, &state.cfg, reply)).collect();
    json!({ "object": "list", "data": data }).to_string()
}

fn model(name: &str, cfg: &EngineConfig, reply: &Reply<'_, '_>) -> Value {
    let EngineConfig { max_model_len, vocabulary, .. } = cfg;
    let created = reply.shared.started_unix_ns() / 1_000_000_000;
    let owned_by = match vocabulary {
        Vocabulary::Vllm => "vllm",
        Vocabulary::Sglang => "sglang",
        Vocabulary::Llamacpp => "llamacpp",
    };
    json!({
        "id": name, "object": "model", "created": created, "owned_by": owned_by, "root": name, "parent": null,
        "max_model_len": max_model_len,
        "permission": [{
            "id": format!("modelperm-{:016x}", hash_bytes(0, name.as_bytes())), "object": "model_permission",
            "created": created, "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
            "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
            "group": null, "is_blocking": false,
        }],
    })
}

fn one_model(escaped: &str, reply: &Reply<'_, '_>) -> Result<String, Refusal> {
    let name = unescape(escaped);
    let state = reply.shared.lock();
    if state.cfg.models.contains(&name) {
        return Ok(model(&name, &state.cfg, reply).to_string());
    }
    let message = format!("The model `{name}` does not exist.");
    Err(Refusal { status: 404, body: error_body(&message, "NotFoundError", Some("model"), 404) })
}

/// Undoes percent escapes; what is none stays as it is.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| after.get(..2)).flatten();
        let value = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) => {
                out.push(value);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn tokenize(request: &Request, reply: &Reply<'_, '_>) -> Result<String, Refusal> {
    let body = Body::parse(request)?;
    let max_model_len = reply.shared.lock().cfg.max_model_len;
    let mut ids = Vec::new();
    match body.text("prompt")? {
        Some(text) => token::encode(text.as_bytes(), &mut ids),
        None => ids = crate::api::input::chat_prompt(&body, "messages")?,
    }
    Ok(json!({ "count": ids.len(), "max_model_len": max_model_len, "tokens": ids, "token_strs": null }).to_string())
}

/// Ids are hashes and cannot be undone: each stands for a word of its own.
fn detokenize(request: &Request) -> Result<String, Refusal> {
    let body = Body::parse(request)?;
    let text = body.raw("tokens").unwrap_or_default();
    let ids: Vec<u32> = serde_json::from_str(text)
        .map_err(|_| Refusal::invalid("list_type", "body.tokens", "Input should be a valid list", text))?;
    let words: Vec<u8> = ids.iter().flat_map(|id| token::word(u64::from(*id), 0)).collect();
    Ok(json!({ "prompt": String::from_utf8_lossy(&words) }).to_string())
}
