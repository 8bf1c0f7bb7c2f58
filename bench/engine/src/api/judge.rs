//! Rerank and score: numbers from the hash of two texts, after a prefill in the model.

use serde_json::{Value, json};

use crate::answer::Request;
use crate::api::embeddings::prefill;
use crate::api::input::{self, Body};
use crate::api::turn::usage_or_fault;
use crate::api::{Answered, Refusal};
use crate::mix::fold;
use crate::reply::Reply;
use crate::token;

/// Pairs to be judged.
struct Pairs {
    model: String,
    /// Each a prompt of both texts.
    prompts: Vec<Vec<u32>>,
    texts: Vec<Value>,
}

impl Pairs {
    fn read(request: &Request, reply: &Reply<'_, '_>, one: &str, many: &str) -> Result<Pairs, Refusal> {
        let body = Body::parse(request)?;
        let model = body.model(&reply.shared.lock().cfg)?;
        let one = input::prompts(&body, one)?.concat();
        let others = input::prompts(&body, many)?;
        let texts: Value = serde_json::from_str(body.raw(many).unwrap_or_default()).unwrap_or_default();
        let texts = match texts {
            Value::Array(texts) => texts,
            text => vec![text],
        };
        let prompts = others.iter().map(|other| [one.as_slice(), other].concat()).collect();
        Ok(Pairs { model, prompts, texts })
    }

    /// 0 to 1.
    fn score(&self, idx: usize) -> f64 {
        let prompt = self.prompts.get(idx).map_or(&[][..], Vec::as_slice);
        (token::answer_seed(prompt, 7, 0) >> 40) as f64 / f64::from(1u32 << 24)
    }

    fn usage(&self, reply: &Reply<'_, '_>) -> Value {
        let tokens: usize = self.prompts.iter().map(Vec::len).sum();
        usage_or_fault(reply, json!({ "prompt_tokens": tokens, "total_tokens": tokens }))
    }

    fn id(&self, reply: &Reply<'_, '_>, prefix: &str) -> String {
        format!("{prefix}-{:016x}", fold(reply.shared.started_unix_ns(), reply.asked.seq))
    }
}

pub(super) async fn rerank(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let pairs = match Pairs::read(request, reply, "query", "documents") {
        Ok(pairs) => pairs,
        Err(refusal) => return Ok(Some(refusal)),
    };
    prefill(reply, &pairs.prompts).await;
    let mut order: Vec<usize> = (0..pairs.prompts.len()).collect();
    order.sort_by(|a, b| pairs.score(*b).total_cmp(&pairs.score(*a)));
    let results: Vec<Value> = order
        .into_iter()
        .map(|idx| {
            let document = json!({ "text": pairs.texts.get(idx), "multi_modal": null });
            json!({ "index": idx, "document": document, "relevance_score": pairs.score(idx) })
        })
        .collect();
    let body = json!({ "id": pairs.id(reply, "rerank"), "model": pairs.model, "usage": pairs.usage(reply),
        "results": results });
    reply.whole(200, "application/json", &[], body.to_string().as_bytes()).await.map(|()| None)
}

pub(super) async fn score(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let pairs = match Pairs::read(request, reply, "text_1", "text_2") {
        Ok(pairs) => pairs,
        Err(refusal) => return Ok(Some(refusal)),
    };
    prefill(reply, &pairs.prompts).await;
    let data: Vec<Value> = (0..pairs.prompts.len())
        .map(|idx| json!({ "index": idx, "object": "score", "score": pairs.score(idx) }))
        .collect();
    let body = json!({ "id": pairs.id(reply, "score"), "object": "list", "created": reply.shared.unix_s(),
        "model": pairs.model, "data": data, "usage": pairs.usage(reply) });
    reply.whole(200, "application/json", &[], body.to_string().as_bytes()).await.map(|()| None)
}
