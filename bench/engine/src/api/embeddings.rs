//! Embeddings: numbers from the hash of the input, after a prefill in the model.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::answer::Request;
use crate::api::input::{self, Body};
use crate::api::{Answered, Refusal};
use crate::base64;
use crate::batch::Job;
use crate::mix::fold;
use crate::reply::Reply;
use crate::token;

pub(crate) async fn answer(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let cfg = reply.shared.lock().cfg.clone();
    let (model, prompts, in_base64) = match read(request, &cfg) {
        Ok(read) => read,
        Err(refusal) => return Ok(Some(refusal)),
    };
    prefill(reply, &prompts).await;
    let data: Vec<serde_json::Value> = prompts
        .iter()
        .enumerate()
        .map(|(index, prompt)| {
            let numbers = numbers(prompt, cfg.embedding_dims);
            let embedding = if in_base64 {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                serde_json::Value::from(base64::encode(&bytes))
            } else {
                serde_json::Value::from(numbers)
            };
            serde_json::json!({ "index": index, "object": "embedding", "embedding": embedding })
        })
        .collect();
    let tokens: usize = prompts.iter().map(Vec::len).sum();
    let mut body = serde_json::json!({
        "id": format!("embd-{:016x}", fold(reply.shared.started_unix_ns(), reply.asked.seq)),
        "object": "list",
        "created": reply.shared.unix_s(),
        "model": model,
        "data": data,
        "usage": {
            "prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": null,
        },
    });
    if let Some(chosen) = &reply.faults.usage {
        body["usage"] = serde_json::from_str(chosen.get()).unwrap_or_default();
    }
    reply.whole(200, "application/json", &[], body.to_string().as_bytes()).await.map(|()| None)
}

/// Takes prompts through the model's prefill, all at once.
pub(super) async fn prefill(reply: &Reply<'_, '_>, prompts: &[Vec<u32>]) {
    let wake = Arc::new(Notify::new());
    let leases: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            let job = Job { prompt: prompt.clone(), output_tokens: 0, priority: 0, salt: 0, answer_seed: 0 };
            reply.shared.submit(job, wake.clone(), 1)
        })
        .collect();
    while !leases.iter().all(|lease| lease.progress.has_ended()) {
        wake.notified().await;
    }
}

type Read = (String, Vec<Vec<u32>>, bool);

fn read(request: &Request, cfg: &crate::config::EngineConfig) -> Result<Read, Refusal> {
    let body = Body::parse(request)?;
    let model = body.model(cfg)?;
    let prompts = input::prompts(&body, "input")?;
    for prompt in &prompts {
        input::check_length(prompt.len(), cfg.max_model_len)?;
    }
    let format = body.text("encoding_format")?;
    match format.as_deref() {
        None | Some("float") => Ok((model, prompts, false)),
        Some("base64") => Ok((model, prompts, true)),
        Some(other) => {
            let message = "Input should be 'float' or 'base64'";
            Err(Refusal::invalid("literal_error", "body.encoding_format", message, other))
        }
    }
}

/// Numbers in -1.0..1.0 that stand for a prompt.
fn numbers(prompt: &[u32], dims: usize) -> Vec<f32> {
    let seed = token::answer_seed(prompt, 0, 0);
    // 24 bits: exactly a float, and short when printed.
    (0..dims).map(|idx| (fold(seed, idx as u64) >> 40) as f32 / (1u32 << 23) as f32 - 1.0).collect()
}
