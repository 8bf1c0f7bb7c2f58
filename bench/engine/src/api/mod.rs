//! The API as vLLM serves it: routes, errors, and one file for each kind of answer.

mod audio;
mod deliver;
mod embeddings;
mod input;
mod judge;
mod messages;
mod pages;
mod plan;
mod responses;
mod shape;
mod turn;

use crate::answer::Request;
use crate::config::Vocabulary;
use crate::reply::{Reply, Written};

/// A refusal in vLLM's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Refusal {
    /// A check of the engine's own failed.
    pub(crate) fn bad(message: &str, param: Option<&str>) -> Refusal {
        Refusal { status: 400, body: error_body(message, "BadRequestError", param, 400) }
    }

    /// The request does not have the shape it should have.
    pub(crate) fn invalid(kind: &str, at: &str, message: &str, input: &str) -> Refusal {
        let message = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{at}', 'msg': '{message}', 'input': '{input}'}}"
        );
        Refusal { status: 400, body: error_body(&message, "Bad Request", Some(at), 400) }
    }
}

/// `{"error": …}` as vLLM writes it.
pub(crate) fn error_body(message: &str, kind: &str, param: Option<&str>, status: u16) -> String {
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let param = param.map_or_else(|| "null".to_owned(), text);
    format!(r#"{{"error":{{"message":{},"type":{},"param":{param},"code":{status}}}}}"#, text(message), text(kind))
}

/// Whether the engine has the pages of that one.
fn says(reply: &Reply<'_, '_>, vocabulary: Vocabulary) -> bool {
    reply.shared.lock().cfg.vocabulary == vocabulary
}

/// Answers a request that no fault concerns, or only faults of writing.
pub(crate) async fn answer(request: &Request, reply: &mut Reply<'_, '_>) -> Written {
    let (method, path) = (request.head.method.as_str(), request.head.path());
    if path.starts_with("/v1") && method != "OPTIONS" && !is_authorized(request, reply) {
        return reply.whole(401, "application/json", &[], br#"{"error":"Unauthorized"}"#).await;
    }
    let allowed = match path {
        "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings" | "/tokenize" | "/detokenize" => "POST",
        "/v1/responses" | "/v1/messages" | "/v1/messages/count_tokens" => "POST",
        "/v1/rerank" | "/v2/rerank" | "/rerank" | "/v1/score" | "/score" => "POST",
        "/v1/audio/transcriptions" | "/v1/audio/translations" | "/v1/audio/speech" => "POST",
        path if path.starts_with("/v1/responses/") => responses::allowed(path),
        "/v1/models" | "/health" | "/version" | "/metrics" | "/load" => "GET",
        "/props" if says(reply, Vocabulary::Llamacpp) => "GET",
        "/server_info" if says(reply, Vocabulary::Sglang) => "GET",
        "/ping" => "GET, POST",
        path if path.starts_with("/v1/models/") => "GET",
        _ => return reply.whole(404, "application/json", &[], br#"{"detail":"Not Found"}"#).await,
    };
    if !allowed.split(", ").any(|other| other == method) {
        let body = br#"{"detail":"Method Not Allowed"}"#;
        return reply.whole(405, "application/json", &[("allow", allowed)], body).await;
    }
    let result = match path {
        "/v1/chat/completions" => deliver::generate(request, reply, shape::Kind::Chat).await,
        "/v1/completions" => deliver::generate(request, reply, shape::Kind::Completion).await,
        "/v1/embeddings" => embeddings::answer(request, reply).await,
        "/v1/responses" => responses::create(request, reply).await,
        "/v1/messages" => messages::create(request, reply).await,
        "/v1/messages/count_tokens" => messages::count(request, reply).await,
        "/v1/rerank" | "/v2/rerank" | "/rerank" => judge::rerank(request, reply).await,
        "/v1/score" | "/score" => judge::score(request, reply).await,
        "/v1/audio/transcriptions" | "/v1/audio/translations" => audio::hear(request, reply).await,
        "/v1/audio/speech" => audio::speak(request, reply).await,
        path if path.starts_with("/v1/responses/") => responses::stored(request, reply).await,
        _ => pages::answer(request, reply).await,
    };
    match result? {
        None => Ok(()),
        Some(refusal) => reply.whole(refusal.status, "application/json", &[], refusal.body.as_bytes()).await,
    }
}

/// What an API function gives back: done, or a refusal to be written.
pub(crate) type Answered = Result<Option<Refusal>, crate::reply::Stop>;

fn is_authorized(request: &Request, reply: &Reply<'_, '_>) -> bool {
    let state = reply.shared.lock();
    let Some(key) = &state.cfg.api_key else { return true };
    let given = request.head.header("authorization").and_then(|value| value.split_once(' '));
    given.is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && token == key)
}
