//! Answers that are no event streams: passed on with their length, read for their usage; errors brought into one shape.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::header::{self, HeaderMap};
use hyper::http::response::Parts;
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::tail::{TAIL_BYTES, Tail};
use llmgw_kit::clock::Mono;
use llmgw_openai::error::Wrapping;
use llmgw_openai::usage::{Reading, of_body};
use llmgw_router::settings::Settings;

use crate::answer::Aborted;
use crate::finish::Finish;
use crate::limit::Limit;
use crate::relay::Course;
use crate::respond::{self, Served};
use crate::turn::Turn;
use crate::upstream::Upstream;

/// How much of an engine's error is read; what lies beyond is not passed on.
const ERROR_BYTES_MAX: usize = 1024 * 1024;
/// The longest answer that is held until it is whole, where its length is known.
const HELD_BYTES_MAX: u64 = 16 * 1024;

/// Reads an error's body up to a bound. A body that breaks off or takes too long counts as far as it came.
pub(crate) async fn collect(turn: &Turn, settings: &Settings, upstream: &mut Upstream, deadline: Mono) -> Bytes {
    let mut body = Vec::new();
    loop {
        let limit = Limit::of_piece(settings, deadline, Mono::now(), true);
        let piece = poll_fn(|cx| match upstream.poll_piece(cx) {
            Poll::Ready(piece) => Poll::Ready(piece.and_then(Result::ok)),
            Poll::Pending => turn.poll_until(cx, limit.until).map(|()| None),
        });
        let Some(piece) = piece.await else { break };
        if body.is_empty() && upstream.is_at_end() && piece.len() <= ERROR_BYTES_MAX {
            return piece;
        }
        let room = ERROR_BYTES_MAX - body.len();
        body.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
        if body.len() == ERROR_BYTES_MAX {
            break;
        }
    }
    body.into()
}

/// Passes an engine's refusal on: unchanged where it has the shape clients know, else in that shape.
///
/// Errors: answers that say something about us rather than about the request: a refused key, a redirect.
pub(crate) fn refusal(
    head: Parts,
    body: Bytes,
    served: &Served<'_>,
    finish: &mut Finish,
) -> Result<(u16, HeaderMap, Bytes), ApiError> {
    let (status, replica) = (head.status.as_u16(), served.replica());
    match status {
        // The client would doubt its own key.
        401 | 403 => {
            let message = format!("replica {replica} refused this gateway's key with status {status}");
            return Err(ApiError::new(Reason::EngineAuth, message));
        }
        300..=399 => {
            let message = format!("replica {replica} answered with a redirect ({status}), which is not followed");
            return Err(ApiError::new(Reason::EngineRedirect, message));
        }
        _ => {}
    }
    let mut wrapped = Vec::new();
    let (headers, body) = match finish.errors.wrap(&body, status, &mut wrapped) {
        Wrapping::Unneeded => (respond::engine_headers(head, served, finish), body),
        Wrapping::Written => {
            let mut headers = respond::rewritten_headers(served, finish);
            if let Some(seconds) = head.headers.get(header::RETRY_AFTER) {
                headers.insert(header::RETRY_AFTER, seconds.clone());
            }
            (headers, wrapped.into())
        }
    };
    finish.fail("engine_error");
    finish.answer(status);
    Ok((status, headers, body))
}

/// Waits for what leaves together with an answer's head: all of an answer whose length is known and at most
/// [`HELD_BYTES_MAX`], of any other its first piece; empty where it has none.
///
/// Errors: the engine failed before anything was sent to the client.
pub(crate) async fn open(
    upstream: &mut Upstream,
    turn: &Turn,
    settings: &Settings,
    deadline: Mono,
    replica: &str,
) -> Result<Bytes, ApiError> {
    let is_held = upstream.length().is_some_and(|bytes| bytes <= HELD_BYTES_MAX);
    let mut all = Vec::new();
    let mut first = Bytes::new();
    loop {
        let has_begun = !first.is_empty();
        let limit = Limit::of_piece(settings, deadline, Mono::now(), has_begun);
        let piece = poll_fn(|cx| match upstream.poll_piece(cx) {
            Poll::Ready(piece) => Poll::Ready(Ok(piece)),
            Poll::Pending => turn.poll_until(cx, limit.until).map(Err),
        });
        let fail = |reason: Reason, why: &str| Err(ApiError::new(reason, format!("replica {replica}: {why}")));
        match piece.await {
            Ok(Some(Ok(piece))) if !has_begun => first = piece,
            Ok(Some(Ok(piece))) => {
                if all.is_empty() {
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&piece);
            }
            Ok(None) => break,
            Ok(Some(Err((reason, why)))) => return fail(reason, why),
            Err(()) if turn.is_cut() => return Err(ApiError::shutting_down()),
            Err(()) => return fail(limit.reason, &limit.sentence(settings)),
        }
        if !is_held || upstream.is_at_end() {
            break;
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// Whether an answer's text can be read here.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// What an answer that came in one piece says of its usage.
pub(crate) fn usage_of(body: &[u8], is_plain: bool, finish: &mut Finish) {
    if body.len() <= TAIL_BYTES {
        let reading = if is_plain { of_body(body) } else { Reading::default() };
        return finish.usage(reading.usage, reading.absurd_count);
    }
    let mut tail = Tail::default();
    tail.add(body);
    read_usage(&tail, is_plain, finish);
}

/// What the end of an answer says of its usage.
fn read_usage(tail: &Tail, is_plain: bool, finish: &mut Finish) {
    // An engine that compresses although it was asked not to is passed on as it is; its usage cannot be read.
    let reading = if is_plain { tail.usage() } else { Reading::default() };
    finish.usage(reading.usage, reading.absurd_count);
}

/// An answer that comes in pieces.
pub(crate) struct Passing {
    course: Course,
    upstream: Upstream,
    first: Option<Bytes>,
    /// What its head promised and did not come yet.
    left: Option<u64>,
    tail: Tail,
    is_plain: bool,
    has_failed: bool,
    since: Mono,
}

impl Passing {
    /// An answer of which `first` is here, and `length` bytes were promised in all.
    pub(crate) fn new(course: Course, upstream: Upstream, first: Bytes, length: Option<u64>, is_plain: bool) -> Self {
        Self {
            course,
            upstream,
            first: Some(first),
            left: length,
            tail: Tail::default(),
            is_plain,
            has_failed: false,
            since: Mono::now(),
        }
    }

    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }

    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        if self.has_failed {
            // A turn later, so that what came before had its chance to leave.
            return Poll::Ready(Some(Err(Aborted)));
        }
        let piece = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.upstream.poll_piece(cx),
        };
        match piece {
            Poll::Ready(Some(Ok(piece))) => {
                self.since = Mono::now();
                self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
                self.tail.add(&piece);
                let finish = &mut self.course.finish;
                finish.passing(&piece);
                finish.sent_bytes += piece.len() as u64;
                if self.upstream.is_at_end() {
                    self.end();
                }
                Poll::Ready(Some(Ok(piece)))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err((reason, _)))) => self.fail(cx, reason),
            Poll::Pending => {
                let Course { tables, turn, deadline, .. } = &self.course;
                let limit = Limit::of_piece(tables.settings(), *deadline, self.since, true);
                if turn.poll_until(cx, limit.until).is_pending() {
                    return Poll::Pending;
                }
                let reason = if turn.is_cut() { Reason::ShuttingDown } else { limit.reason };
                self.fail(cx, reason)
            }
        }
    }

    /// A part was sent: only the missing end can tell the client.
    fn fail(&mut self, cx: &mut Context<'_>, reason: Reason) -> Poll<Option<Result<Bytes, Aborted>>> {
        let Course { gateway, tables, granted, finish, .. } = &mut self.course;
        finish.fail(reason.code());
        gateway.broke(granted.choice.slot, reason, tables.settings());
        self.has_failed = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn end(&mut self) {
        let Course { gateway, granted, finish, .. } = &mut self.course;
        if self.upstream.release(&gateway.pool, Mono::now()) {
            read_usage(&self.tail, self.is_plain, finish);
            finish.account.seen(None, true);
            gateway.answered(granted.choice.slot);
        }
    }
}
