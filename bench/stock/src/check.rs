//! What hyper lets pass and this gateway does not: two hosts or none, expectations and codings nobody knows, targets
//! that are no path, lines that are too long.

use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Version};
use llmgw_http::error::Reject;
use llmgw_http::limits::{CONNECTION_OPTIONS_MAX, REQUEST_LINE_BYTES_MAX};

/// The target's path, and its query with the question mark.
///
/// Errors: the refusal to answer with.
pub(crate) fn check(head: &Parts) -> Result<(&str, &str), Reject> {
    let reject = |status, message| Err(Reject { status, message });
    if head.method == Method::CONNECT {
        return reject(400, "connect is not served");
    }
    let path = head.uri.path();
    if !path.starts_with('/') {
        return reject(400, "target is not a path");
    }
    let query = head.uri.path_and_query().and_then(|both| both.as_str().get(path.len()..)).unwrap_or_default();
    if path.len() + query.len() > REQUEST_LINE_BYTES_MAX {
        return reject(414, "the request line is longer than this gateway accepts");
    }
    let headers = &head.headers;
    match headers.get_all(header::HOST).iter().count() {
        1 => {}
        0 if head.version == Version::HTTP_11 => return reject(400, "host header missing"),
        0 => {}
        _ => return reject(400, "more than one host header"),
    }
    check_framing(headers)?;
    if let Some(expected) = headers.get(header::EXPECT)
        && !expected.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return reject(417, "expectation not supported; only 100-continue is");
    }
    let lines = headers.get_all(header::CONNECTION).iter();
    if lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).count() > CONNECTION_OPTIONS_MAX {
        return reject(400, "too many connection options");
    }
    Ok((path, query))
}

/// Of a message that is framed twice hyper keeps one framing and ends the connection; what it leaves is looked at here.
fn check_framing(headers: &HeaderMap) -> Result<(), Reject> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if codings.next().is_some() || headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Reject { status: 400, message: "more than one framing" });
    }
    if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(Reject { status: 501, message: "transfer-encoding not supported; only chunked is" });
    }
    Ok(())
}
