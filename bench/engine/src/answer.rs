//! From a request to its answer: the path on which faults are found, applied and, when there are none, the API is
//! asked.
//!
//! Called by the connections, once a request has been read. Top to bottom it is the order in which faults win.

use crate::api;
use crate::config::Vocabulary;
use crate::control;
use crate::faults::{Faults, Framing, Reach, marker};
use crate::reply::{Fields, Reply, Stop, Written};
use crate::wire::Head;

/// A request that has been read.
pub(crate) struct Request {
    pub(crate) head: Head,
    /// The body, or only its beginning when it is longer than what is held.
    pub(crate) body: Vec<u8>,
    /// Length of the whole body.
    pub(crate) total: u64,
}

impl Request {
    /// Whether the body was too long to be held.
    pub(crate) fn is_cut(&self) -> bool {
        self.total > self.body.len() as u64
    }

    pub(crate) fn is_inference(&self) -> bool {
        self.head.method == "POST" && self.head.path().starts_with("/v1/")
    }
}

/// Answers one request.
pub(crate) async fn answer(request: &Request, reply: &mut Reply<'_, '_>) -> Written {
    if request.head.path().starts_with("/sim/") {
        return control::answer(request, reply).await;
    }
    match faults_of(request, reply) {
        Ok(faults) => reply.faults = faults,
        Err(cause) => {
            let body = api::error_body(&format!("simulated engine: {cause}"), "BadRequestError", Some("x-sim"), 400);
            return reply.whole(400, "application/json", &[], body.as_bytes()).await;
        }
    }
    if reply.faults.blackhole == Some(true) {
        reply.shared.lock().blackholed_requests += 1;
        reply.shared.released().await;
        return Err(Stop::Cut);
    }
    if let Some(us) = reply.faults.first_byte_delay_us {
        reply.stall(Some(us)).await;
    }
    if !is_ready(reply) && (request.is_inference() || matches!(request.head.path(), "/health" | "/ping")) {
        if reply.shared.lock().cfg.vocabulary == Vocabulary::Llamacpp {
            let body = br#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
            return reply.whole(503, "application/json", &[], body).await;
        }
        return status(503, "The model is still loading.", reply).await;
    }
    if let Some(drawn) = draw(reply) {
        return status(drawn, "The simulated engine was told to fail.", reply).await;
    }
    if let Some(location) = reply.faults.redirect.clone() {
        return reply.whole(302, "", &[("location", &location)], b"").await;
    }
    if reply.faults.script.is_some() {
        return script(reply).await;
    }
    if let Some(body) = reply.faults.body.take() {
        let status = reply.faults.status.unwrap_or(200);
        return reply.whole(status, "application/json", &retry_fields(status, reply).borrowed(), body.as_bytes()).await;
    }
    if let Some(chosen) = reply.faults.status.filter(|status| *status != 200) {
        return status(chosen, "The simulated engine was told to fail.", reply).await;
    }
    api::answer(request, reply).await
}

/// The faults of this request: the configured ones where they reach it, then its own.
fn faults_of(request: &Request, reply: &Reply<'_, '_>) -> Result<Faults, String> {
    let configured = reply.shared.lock().cfg.faults.clone();
    let reached = match configured.reach {
        Some(Reach::All) => true,
        Some(Reach::Inference) | None => request.is_inference(),
    };
    let base = if reached {
        configured
    } else {
        let Faults { unready_us, models_empty_us, .. } = configured;
        Faults { unready_us, models_empty_us, ..Faults::default() }
    };
    let base = match marker(&request.body) {
        Some(text) => base.overlaid(&text).map_err(|cause| format!("bad marker: {cause}"))?,
        None => base,
    };
    match request.head.header("x-sim") {
        Some(text) => base.overlaid(text).map_err(|cause| format!("bad x-sim header: {cause}")),
        None => Ok(base),
    }
}

fn is_ready(reply: &Reply<'_, '_>) -> bool {
    let since = reply.shared.lock().configured_at_ns;
    has_passed(reply, since, reply.faults.unready_us)
}

/// Whether `us` microseconds have passed since `since`.
pub(crate) fn has_passed(reply: &Reply<'_, '_>, since_ns: u64, us: Option<u64>) -> bool {
    us.is_none_or(|us| reply.shared.now_ns() >= since_ns.saturating_add(us.saturating_mul(1_000)))
}

fn draw(reply: &Reply<'_, '_>) -> Option<u16> {
    reply.faults.rates.as_ref()?;
    reply.faults.drawn_status(&mut reply.shared.lock().dice)
}

/// A bare error with the status.
async fn status(status: u16, message: &str, reply: &mut Reply<'_, '_>) -> Written {
    let kind = match status {
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        400..=499 => "BadRequestError",
        _ => "InternalServerError",
    };
    let body = api::error_body(message, kind, None, status);
    let fields = retry_fields(status, reply);
    reply.whole(status, "application/json", &fields.borrowed(), body.as_bytes()).await
}

/// The `Retry-After` field, where one is due.
struct RetryAfter(Option<String>);

impl RetryAfter {
    fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|value| ("retry-after", value.as_str())).collect()
    }
}

fn retry_fields(status: u16, reply: &Reply<'_, '_>) -> RetryAfter {
    let due = matches!(status, 429 | 503) || reply.faults.rates.is_some();
    RetryAfter(reply.faults.retry_after_s.filter(|_| due).map(|seconds| seconds.to_string()))
}

/// Plays a script of chunks.
async fn script(reply: &mut Reply<'_, '_>) -> Written {
    let pieces = reply.faults.script.take().unwrap_or_default();
    let status = reply.faults.status.unwrap_or(200);
    let fields: Fields<'_> = &[];
    let content_type = "text/event-stream; charset=utf-8";
    match reply.faults.framing {
        Some(Framing::Raw) => {
            for piece in &pieces {
                reply.wait(piece.delay_us).await;
                reply.raw(&piece.bytes).await?;
            }
            return Ok(());
        }
        Some(Framing::Length) => {
            let length = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
            reply.sized(status, content_type, fields, length).await?;
        }
        _ => reply.begin(status, content_type, fields).await?,
    }
    for piece in &pieces {
        reply.wait(piece.delay_us).await;
        reply.piece(&piece.bytes).await?;
    }
    reply.end().await
}
