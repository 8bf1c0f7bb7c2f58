//! Heads and bodies of our own answers, and the headers we add to engines' ones.

use std::time::Duration;

use llmgw_http::chunk_buf::ChunkBuf;
use llmgw_http::draft::ResponseDraft;
use llmgw_http::head::ResponseHead;
use llmgw_http::server::ServerConn;
use llmgw_openai::error::ErrorBody;
use llmgw_runtime::race;
use llmgw_runtime::timer::timeout;

use crate::door::ClientIo;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::forward;

/// Who answered, for the headers.
pub(crate) struct Served<'a> {
    pub(crate) replica: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) model: &'a str,
}

/// How long a client may take to take in that its stream broke.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Sends an error in the shape of its route: as an answer, or within one that has begun. A client that is gone by then
/// is nobody's trouble.
pub(crate) async fn error(conn: &mut ServerConn<ClientIo>, error: &ApiError, finish: &mut Finish) {
    let reason = error.reason;
    if conn.writer.has_begun() {
        return break_off(conn, true, reason, &error.message, finish).await;
    }
    let mut body = Vec::with_capacity(160 + error.message.len());
    let shown =
        ErrorBody { message: &error.message, kind: reason.kind(), param: error.param, code: Some(reason.code()) };
    finish.errors().write(&mut body, reason.status(), &shown);
    finish.fail(reason.code());
    let mut draft = own_draft(conn, reason.status(), finish);
    if let Some(seconds) = error.retry_after {
        draft.known("retry-after", seconds.to_string());
    }
    if reason.status() == 401 {
        draft.known("www-authenticate", "Bearer");
    }
    send(conn, draft, body, reason.status(), finish).await;
}

/// Tells the client within its stream that it broke, and ends the connection without the stream's proper end.
pub(crate) async fn break_off(
    conn: &mut ServerConn<ClientIo>,
    is_between_events: bool,
    reason: Reason,
    why: &str,
    finish: &mut Finish,
) {
    finish.fail(reason.code());
    let mut event = Vec::new();
    if !is_between_events {
        event.extend_from_slice(b"\n\n");
    }
    let error = ErrorBody { message: why, kind: reason.kind(), param: None, code: Some(reason.code()) };
    finish.errors().write_event(&mut event, reason.status(), &error);
    last_word(conn, &event).await;
}

/// Sends the event that ends a broken stream, and ends the connection.
pub(crate) async fn last_word(conn: &mut ServerConn<ClientIo>, event: &[u8]) {
    let mut buf = ChunkBuf::new();
    buf.extend(event);
    let _ = race(timeout(LAST_WORD, conn.writer.chunk(buf)), conn.reader.gone()).await;
    conn.writer.abort();
}

/// Sends a 405 with what the path allows.
pub(crate) async fn wrong_method(conn: &mut ServerConn<ClientIo>, allow: &'static str, finish: &mut Finish) {
    let reason = Reason::MethodNotAllowed;
    let mut body = Vec::new();
    let message = format!("this path takes {allow} only");
    let shown = ErrorBody { message: &message, kind: reason.kind(), param: None, code: Some(reason.code()) };
    finish.errors().write(&mut body, reason.status(), &shown);
    finish.fail(reason.code());
    let mut draft = own_draft(conn, reason.status(), finish);
    draft.known("allow", allow);
    send(conn, draft, body, reason.status(), finish).await;
}

/// Sends a JSON answer of ours.
pub(crate) async fn json(conn: &mut ServerConn<ClientIo>, status: u16, body: Vec<u8>, finish: &mut Finish) {
    let draft = own_draft(conn, status, finish);
    send(conn, draft, body, status, finish).await;
}

async fn send(conn: &mut ServerConn<ClientIo>, draft: ResponseDraft, body: Vec<u8>, status: u16, finish: &mut Finish) {
    let bytes = body.len();
    if conn.writer.send(draft, body).await.is_ok() {
        finish.answer(status);
        finish.sent(bytes);
    }
}

/// Begins the head of an answer. On the way out it says that its connection ends, also to a request that came before.
fn begin(conn: &mut ServerConn<ClientIo>, status: u16, finish: &Finish) -> ResponseDraft {
    if finish.is_closing() {
        conn.writer.close_after();
    }
    conn.writer.draft(status)
}

fn own_draft(conn: &mut ServerConn<ClientIo>, status: u16, finish: &Finish) -> ResponseDraft {
    let mut draft = begin(conn, status, finish);
    draft.known("server", "llmgw").known("content-type", "application/json");
    draft.known("x-request-id", finish.id().text().as_str());
    add_rates(&mut draft, finish);
    if finish.queue_time().as_millis() > 0 {
        add_queue_time(&mut draft, finish);
    }
    add_explanation(&mut draft, finish);
    draft
}

/// Begins the head of a stream whose engine is not known yet.
pub(crate) fn waiting_draft(conn: &mut ServerConn<ClientIo>, finish: &Finish) -> ResponseDraft {
    let mut draft = begin(conn, 200, finish);
    draft.known("server", "llmgw").known("content-type", "text/event-stream");
    draft.known("cache-control", "no-cache").known("x-accel-buffering", "no");
    draft.known("x-request-id", finish.id().text().as_str());
    add_rates(&mut draft, finish);
    add_explanation(&mut draft, finish);
    draft
}

/// Begins the head of an engine's answer: its own headers, then ours.
pub(crate) fn engine_draft(
    conn: &mut ServerConn<ClientIo>,
    status: u16,
    answer: &ResponseHead,
    served: &Served<'_>,
    overhead_us: u64,
    finish: &Finish,
) -> ResponseDraft {
    let mut draft = begin(conn, status, finish);
    forward::to_client(answer, &mut draft);
    add_ours(&mut draft, served, overhead_us, finish);
    draft
}

/// Begins the head of an answer whose body we wrote in an engine's place.
pub(crate) fn rewritten_draft(
    conn: &mut ServerConn<ClientIo>,
    status: u16,
    served: &Served<'_>,
    overhead_us: u64,
    finish: &Finish,
) -> ResponseDraft {
    let mut draft = begin(conn, status, finish);
    draft.known("server", "llmgw").known("content-type", "application/json");
    add_ours(&mut draft, served, overhead_us, finish);
    draft
}

fn add_ours(draft: &mut ResponseDraft, served: &Served<'_>, overhead_us: u64, finish: &Finish) {
    draft.known("x-request-id", finish.id().text().as_str());
    draft.known("x-llmgw-replica", served.replica);
    draft.known("x-llmgw-pool", served.pool);
    draft.known("x-llmgw-served-model", served.model);
    draft.number("x-llmgw-overhead-us", overhead_us, "");
    add_queue_time(draft, finish);
    add_rates(draft, finish);
    if let Some(decision) = finish.decision() {
        draft.known("x-llmgw-cache-decision", decision.word());
    }
    add_explanation(draft, finish);
}

/// What is left of its key's limits, where it has some.
fn add_rates(draft: &mut ResponseDraft, finish: &Finish) {
    if let Some(rates) = finish.rates() {
        rates.write(|name, number, unit| {
            draft.number(name, number, unit);
        });
    }
}

/// Time in queues for a place, in whole milliseconds.
fn add_queue_time(draft: &mut ResponseDraft, finish: &Finish) {
    let waited = finish.queue_time();
    if waited.is_zero() {
        draft.known("x-llmgw-queue-ms", "0");
        return;
    }
    let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    draft.number("x-llmgw-queue-ms", millis, "");
}

fn add_explanation(draft: &mut ResponseDraft, finish: &Finish) {
    if let Some(explanation) = finish.explanation() {
        draft.known("x-llmgw-explain", explanation);
    }
}

/// What makes proxies in front pass a stream on as it comes, where the engine did not say it.
pub(crate) fn add_stream_headers(draft: &mut ResponseDraft, answer: &ResponseHead) {
    if answer.header("cache-control").is_none() {
        draft.known("cache-control", "no-cache");
    }
    if answer.header("x-accel-buffering").is_none() {
        draft.known("x-accel-buffering", "no");
    }
}
