//! What of the admin API somebody else answers: the question is read within bounds, and asked on a thread that may
//! wait.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};

use super::{JSON, refusal, respond};

/// Largest body: an allowlist of a thousand long names is smaller.
const BODY_BYTES_MAX: usize = 512 << 10;
/// For the body to arrive.
const BODY_TIME: Duration = Duration::from_secs(20);
/// Who the client says it is, for the record.
const ACTOR_HEADER: &str = "x-llmgw-actor";
const ACTOR_BYTES_MAX: usize = 100;

/// A question, by somebody who was let in.
#[derive(Debug)]
pub struct Asked {
    /// As in HTTP.
    pub method: String,
    /// Below `/api/v1`, as it was written.
    pub path: String,
    /// Behind the `?`, as it was written.
    pub query: String,
    /// Whole.
    pub body: Bytes,
    /// Who asks, as far as that is known.
    pub actor: String,
}

/// What the answer is.
#[derive(Debug)]
pub struct Told {
    /// The status; one that is none becomes a 500.
    pub status: u16,
    /// JSON.
    pub body: String,
    /// The methods there are, where the question's is none of them.
    pub allow: Option<String>,
}

/// What an operator did to this server itself.
#[derive(Debug)]
pub struct Act {
    /// As far as that is known.
    pub actor: String,
    /// What was done: `endpoint.drain`.
    pub action: &'static str,
    /// To what kind of thing, and to which.
    pub target: (&'static str, String),
    /// JSON, as it was and as it is.
    pub before: String,
    pub after: String,
}

/// Who answers. Called on threads that may wait, by more than one at once.
pub trait Desk: Send + Sync {
    /// Answers a question.
    fn answer(&self, asked: &Asked) -> Told;

    /// Puts on the record what was done. Errors: why it is not there.
    fn note(&self, act: Act) -> Result<(), String>;
}

/// Has an act recorded. It was done: what cannot be recorded is said in the log, whole.
pub(super) async fn note(desk: Option<&Arc<dyn Desk>>, act: Act) {
    let Some(desk) = desk.cloned() else { return };
    let Act { actor, action, target: (_, target), .. } = &act;
    let (actor, action, target) = (actor.clone(), *action, target.clone());
    let noted = tokio::task::spawn_blocking(move || desk.note(act)).await;
    if let Err(error) = noted.unwrap_or_else(|_| Err("the server met a fault of its own".to_owned())) {
        tracing::warn!(error, actor, action, target, "what an operator did is not on the audit trail");
    }
}

pub(super) async fn answer(
    request: Request<Incoming>,
    below: &str,
    actor: String,
    desk: &Arc<dyn Desk>,
) -> Response<Full<Bytes>> {
    let (method, query) = (request.method().to_string(), request.uri().query().unwrap_or_default().to_owned());
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, "limit_exceeded", "the body is larger than 512KiB");
        }
        Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "bad_http", "the body is cut off or badly framed"),
        Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "limit_exceeded", "the body did not arrive in time"),
    };
    let (desk, asked) = (desk.clone(), Asked { method, path: below.to_owned(), query, body, actor });
    let Ok(told) = tokio::task::spawn_blocking(move || desk.answer(&asked)).await else {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server met a fault of its own");
    };
    let status = StatusCode::from_u16(told.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(status, JSON, told.body);
    if let Some(allow) = told.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

/// Who asks.
pub(super) fn actor_of(headers: &HeaderMap, peer: Option<IpAddr>, has_token: bool) -> String {
    let claimed = headers.get(ACTOR_HEADER).and_then(|value| value.to_str().ok());
    actor(claimed, peer, has_token)
}

/// What is known of who asks: what they say, by what they were let in, and from where.
fn actor(claimed: Option<&str>, peer: Option<IpAddr>, has_token: bool) -> String {
    let by = if has_token { "admin token" } else { "loopback" };
    let from = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
    match claimed.filter(|name| !name.trim().is_empty()) {
        Some(name) => {
            let name: String = name.chars().take(ACTOR_BYTES_MAX).collect();
            format!("{name} ({by} from {from})")
        }
        None => format!("{by} from {from}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_told_by_more_than_their_own_word() {
        let here = Some(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(actor(None, here, false), "loopback from 127.0.0.1");
        assert_eq!(actor(Some("alice"), here, true), "alice (admin token from 127.0.0.1)");
        assert_eq!(actor(Some("  "), None, true), "admin token from an unknown address");
        assert!(actor(Some(&"x".repeat(1000)), here, true).len() < 200);
    }
}
