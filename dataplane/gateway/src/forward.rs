//! Which headers pass, in both directions. What is not for the other side is left out here and nowhere else.

use llmgw_http::draft::{RequestDraft, ResponseDraft};
use llmgw_http::head::{RequestHead, ResponseHead};

/// Copies a client's headers to the engine's request.
///
/// Left out: what ends at this connection, credentials (an engine sees only its own key), what this gateway owns, and
/// encodings (answers must be readable here). `traceparent` passes only when there is exactly one.
pub(crate) fn to_engine(head: &RequestHead, draft: &mut RequestDraft) {
    let mut traceparents = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
    let one_traceparent = traceparents.next().is_some() && traceparents.next().is_none();
    for (name, value) in head.end_to_end() {
        if is_for_us(name) || (is_trace(name) && !one_traceparent) {
            continue;
        }
        draft.copy(name, value);
    }
    draft.known("accept-encoding", "identity");
}

/// Copies an engine's headers to the client's answer, but for those this gateway owns.
pub(crate) fn to_client(head: &ResponseHead, draft: &mut ResponseDraft) {
    for (name, value) in head.end_to_end() {
        if !is_owned(name) {
            draft.copy(name, value);
        }
    }
}

/// The header in which vLLM takes a request's priority, before the body's own.
pub(crate) const VLLM_PRIORITY: &str = "x-vllm-priority";

/// Headers a client sends to us, that say who it is, or that would give it a place in an engine's queue; none of an
/// engine's business.
const FOR_US: [&str; 10] = [
    "accept-encoding",
    "api-key",
    "authorization",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "openai-api-key",
    "x-api-key",
    VLLM_PRIORITY,
];

/// Whether a client's header ends here.
pub fn is_for_us(name: &[u8]) -> bool {
    // Names of another length cost one comparison of two numbers each.
    is_owned(name) || FOR_US.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Whether a header carries the trace that a request belongs to.
pub fn is_trace(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"traceparent") || name.eq_ignore_ascii_case(b"tracestate")
}

/// Headers only this gateway sets.
pub fn is_owned(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"x-request-id")
        || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-llmgw-"))
        || name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case(b"x-ratelimit-"))
}

#[cfg(test)]
mod tests {
    use super::{FOR_US, is_for_us, is_owned};

    #[test]
    fn credentials_and_our_own_headers_stay_here() {
        let ours = ["x-request-id", "X-LLMGW-Replica", "x-llmgw-upstream", "X-RateLimit-Limit-Tokens"];
        for name in FOR_US.into_iter().chain(ours).chain(["Authorization", "COOKIE", "OpenAI-Api-Key", "Forwarded"]) {
            assert!(is_for_us(name.as_bytes()), "{name}");
        }
        for name in ["content-type", "user-agent", "x-session-id", "openai-organization", "accept", "x-llmgw"] {
            assert!(!is_for_us(name.as_bytes()), "{name}");
        }
        assert!(is_owned(b"X-Request-Id") && !is_owned(b"x-request-identity"));
    }
}
