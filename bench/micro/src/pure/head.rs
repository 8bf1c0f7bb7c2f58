//! Heads, read and written.

use std::hint::black_box;

use llmgw_http::draft::RequestDraft;
use llmgw_http::head::{AnswerTo, RequestHead, ResponseHead};
use llmgw_http::limits::ServerLimits;

use crate::samples::{REQUEST_HEAD, RESPONSE_HEAD};

/// Reads a client's head into one that is used again.
pub(super) fn parse_request() -> impl FnMut() {
    let (mut head, limits) = (RequestHead::default(), ServerLimits::default().head());
    move || _ = black_box(head.parse(black_box(REQUEST_HEAD), &limits))
}

/// Reads an engine's head into one that is used again.
pub(super) fn parse_response() -> impl FnMut() {
    let mut head = ResponseHead::default();
    move || _ = black_box(head.parse(black_box(RESPONSE_HEAD), AnswerTo::Other))
}

/// Writes the head of an engine's request: the client's end-to-end headers and two of ours, into a new buffer.
pub(super) fn write_request() -> impl FnMut() {
    let mut head = RequestHead::default();
    let _ = head.parse(REQUEST_HEAD, &ServerLimits::default().head());
    move || {
        let mut draft = RequestDraft::new(Vec::with_capacity(1 << 10), b"POST", head.target(), b"10.0.0.1:8000");
        for (name, value) in head.end_to_end() {
            draft.header(name, value);
        }
        draft.header("accept-encoding", "identity").header("x-request-id", "0123456789abcdef0123456789abcdef");
        drop(black_box(draft));
    }
}
