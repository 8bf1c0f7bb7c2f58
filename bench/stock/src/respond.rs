//! Heads and bodies of our own answers, and the headers we add to engines' ones.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_kit::clock::Mono;
use llmgw_openai::error::ErrorBody;

use crate::answer::{Answer, Full};
use crate::finish::Finish;
use crate::headers::{
    X_ACCEL_BUFFERING, X_CACHE_DECISION, X_EXPLAIN, X_OVERHEAD, X_POOL, X_REPLICA, X_REQUEST_ID, X_SERVED_MODEL,
    to_client,
};
use crate::retry::Granted;
use crate::tables::Tables;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const SERVER: HeaderValue = HeaderValue::from_static("llmgw");

/// An error in the shape of its route.
pub(crate) fn error(error: &ApiError, mut finish: Box<Finish>) -> Response<Answer> {
    let reason = error.reason;
    let body = error_body(error, &finish);
    finish.fail(reason.code());
    let mut response = own(reason.status(), body, finish);
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if matches!(reason, Reason::BadHttp(_)) {
        // Its framing can no longer be trusted.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The body of an error.
pub(crate) fn error_body(error: &ApiError, finish: &Finish) -> Vec<u8> {
    let ApiError { reason, message, param, .. } = error;
    let mut body = Vec::with_capacity(160 + message.len());
    let shown = ErrorBody { message, kind: reason.kind(), param: *param, code: Some(reason.code()) };
    finish.errors.write(&mut body, reason.status(), &shown);
    body
}

/// A 405 with what the path allows.
pub(crate) fn wrong_method(allow: &'static str, finish: Box<Finish>) -> Response<Answer> {
    let why = ApiError::new(Reason::MethodNotAllowed, format!("this path takes {allow} only"));
    let mut response = error(&why, finish);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// A JSON answer of ours.
pub(crate) fn own(status: u16, body: Vec<u8>, mut finish: Box<Finish>) -> Response<Answer> {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::SERVER, SERVER);
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(X_REQUEST_ID, finish.id());
    add_rates(&mut headers, &finish);
    add_explanation(&mut headers, &mut finish);
    finish.answer(status);
    full(status, headers, body.into(), finish, None)
}

/// An answer in one piece.
pub(crate) fn full(
    status: u16,
    headers: HeaderMap,
    bytes: bytes::Bytes,
    mut finish: Box<Finish>,
    granted: Option<Granted>,
) -> Response<Answer> {
    finish.sent_bytes += bytes.len() as u64;
    response(status, headers, Answer::Full(Full { bytes, finish, granted }))
}

pub(crate) fn response(status: u16, headers: HeaderMap, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = headers;
    response
}

/// Who answered, and when.
pub(crate) struct Served<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) granted: &'a Granted,
    /// The body had come.
    pub(crate) received: Mono,
    /// The request was sent.
    pub(crate) sent_at: Mono,
    /// The head of its answer came.
    pub(crate) arrived: Mono,
    /// What leaves together with the head was at hand.
    pub(crate) opened: Mono,
}

impl Served<'_> {
    pub(crate) fn replica(&self) -> &str {
        let endpoint = self.tables.routes().endpoints.get(self.granted.choice.endpoint.idx());
        endpoint.map_or("", |endpoint| endpoint.name.as_str())
    }
}

/// The headers of an engine's answer: its own, then ours.
pub(crate) fn engine_headers(head: Parts, served: &Served<'_>, finish: &mut Finish) -> HeaderMap {
    let mut headers = head.headers;
    to_client(&mut headers);
    add_ours(&mut headers, served, finish);
    headers
}

/// The headers of an answer whose body we wrote in an engine's place.
pub(crate) fn rewritten_headers(served: &Served<'_>, finish: &mut Finish) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::SERVER, SERVER);
    headers.insert(header::CONTENT_TYPE, JSON);
    add_ours(&mut headers, served, finish);
    headers
}

fn add_ours(headers: &mut HeaderMap, served: &Served<'_>, finish: &mut Finish) {
    let Served { tables, granted, received, sent_at, arrived, opened } = served;
    let overhead = sent_at.since(*received) + Mono::now().since(*opened);
    let micros = u64::try_from(overhead.as_micros()).unwrap_or(u64::MAX);
    finish.overhead(micros);
    finish.first_byte = Some(*arrived);
    headers.insert(X_REQUEST_ID, finish.id());
    if let Some(texts) = tables.endpoints.get(granted.choice.endpoint.idx()) {
        headers.insert(X_REPLICA, texts.name.clone());
    }
    if let Some(pool) = tables.pools.get(granted.choice.pool.idx()) {
        headers.insert(X_POOL, pool.clone());
    }
    if let Some(model) = tables.models.get(granted.model as usize) {
        headers.insert(X_SERVED_MODEL, model.clone());
    }
    headers.insert(X_OVERHEAD, micros.into());
    add_rates(headers, finish);
    if let Some(decision) = finish.decision() {
        headers.insert(X_CACHE_DECISION, HeaderValue::from_static(decision.word()));
    }
    add_explanation(headers, finish);
}

/// What is left of its key's limits, where it has some.
fn add_rates(headers: &mut HeaderMap, finish: &Finish) {
    let Some(rates) = &finish.rates else { return };
    rates.write(|name, number, unit| {
        let value = if unit.is_empty() { Ok(number.into()) } else { HeaderValue::try_from(format!("{number}{unit}")) };
        if let Ok(value) = value {
            headers.insert(HeaderName::from_static(name), value);
        }
    });
}

fn add_explanation(headers: &mut HeaderMap, finish: &mut Finish) {
    if let Some(explanation) = finish.explanation.take()
        && let Ok(value) = HeaderValue::try_from(explanation)
    {
        headers.insert(X_EXPLAIN, value);
    }
}

/// What makes proxies in front pass a stream on as it comes, where the engine did not say it.
pub(crate) fn add_stream_headers(headers: &mut HeaderMap) {
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    headers.entry(X_ACCEL_BUFFERING).or_insert(HeaderValue::from_static("no"));
}
