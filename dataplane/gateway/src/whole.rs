//! Answers that are no event streams: passed on with their length, read for their usage; errors brought into one shape.

use std::rc::Rc;

use llmgw_http::body::Framing;
use llmgw_http::chunk_buf::ChunkBuf;
use llmgw_http::client::{EngineIo, Piece, Upstream};
use llmgw_http::head::ResponseHead;
use llmgw_http::server::{BodyLength, ServerConn};
use llmgw_kit::clock::Mono;
use llmgw_openai::error::Wrapping;
use llmgw_openai::usage::Reading;
use llmgw_runtime::timer::timeout;

use crate::core::Core;
use crate::door::ClientIo;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::piece::{Broken, Limit, next_piece, piece_limit, send_all, send_end, send_piece, send_start};
use crate::relay::Answer;
use crate::respond;
use crate::tail::{Tail, usage_of};

/// How much of an engine's error is read; what lies beyond is not passed on.
const ERROR_BYTES_MAX: usize = 1024 * 1024;
/// The longest answer that is held back until it is whole, by what it says of its length. One write to the client takes
/// as much, so that holding it costs no further one.
const HELD_BYTES_MAX: u64 = 16 * 1024;

/// Reads an error's body up to a bound. A body that breaks off or takes too long counts as far as it came.
pub(crate) async fn collect(core: &Core, upstream: &mut Upstream<EngineIo>, deadline: Mono) -> Vec<u8> {
    let mut body = Vec::new();
    let mut buf = ChunkBuf::new();
    loop {
        let now = Mono::now();
        let Limit { left, .. } = piece_limit(core, deadline, now, now, true);
        let Ok(Ok(Piece { buf: piece, is_last })) = timeout(left, upstream.next_piece(buf)).await else { break };
        let room = ERROR_BYTES_MAX - body.len();
        body.extend_from_slice(piece.payload().get(..piece.len().min(room)).unwrap_or_default());
        if is_last || body.len() == ERROR_BYTES_MAX {
            break;
        }
        buf = piece;
    }
    body
}

/// Sends an engine's refusal on: unchanged where it has the shape clients know, else in that shape.
///
/// Errors: answers that say something about us rather than about the request: a refused key, a redirect.
pub(crate) async fn send_error(
    conn: &mut ServerConn<ClientIo>,
    answer: &Answer<'_>,
    body: &[u8],
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let (status, replica) = (answer.head.status(), answer.served.replica);
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
    let overhead_us = answer.overhead_us(finish);
    let mut wrapped = Vec::new();
    if conn.writer.has_begun() {
        // Its head is long gone: a heartbeat was sent.
        let body = match finish.errors().wrap(body, status, &mut wrapped) {
            Wrapping::Unneeded => body,
            Wrapping::Written => &wrapped,
        };
        let mut event = Vec::new();
        finish.errors().write_as_event(&mut event, body);
        finish.fail("engine_error");
        finish.sent(event.len());
        respond::last_word(conn, &event).await;
        return Ok(());
    }
    let (draft, body) = match finish.errors().wrap(body, status, &mut wrapped) {
        Wrapping::Unneeded => {
            (respond::engine_draft(conn, status, &answer.head, answer.served, overhead_us, finish), body.to_vec())
        }
        Wrapping::Written => {
            let mut draft = respond::rewritten_draft(conn, status, answer.served, overhead_us, finish);
            if let Some(seconds) = answer.head.header("retry-after") {
                draft.known("retry-after", seconds);
            }
            (draft, wrapped)
        }
    };
    finish.fail("engine_error");
    let bytes = body.len();
    if conn.writer.send(draft, body).await.is_ok() {
        finish.answer(status);
        finish.sent(bytes);
    }
    Ok(())
}

/// What of an answer must be at hand before its head goes to the client: all of one that says that it fits
/// [`HELD_BYTES_MAX`], of any other its first piece.
///
/// Until then nothing was said that a second engine could not say otherwise; a small answer can so be made good
/// elsewhere up to its last byte.
///
/// `arrived`: when the head did. Errors: the engine failed or the client left; nothing was sent to it.
pub(crate) async fn open(
    core: &Core,
    conn: &mut ServerConn<ClientIo>,
    upstream: &mut Upstream<EngineIo>,
    head: &ResponseHead,
    arrived: Mono,
    deadline: Mono,
) -> Result<Piece, Broken> {
    let limit = piece_limit(core, deadline, arrived, arrived, false);
    let mut opening = next_piece(core, conn, upstream, ChunkBuf::new(), limit).await?;
    // What says no length may be speech or anything else that is made while it passes: it is not held up.
    let is_held = matches!(head.framing(), Framing::Length(bytes) if bytes <= HELD_BYTES_MAX);
    while is_held && !opening.is_last {
        let now = Mono::now();
        let limit = piece_limit(core, deadline, now, now, true);
        let Piece { buf, is_last } = next_piece(core, conn, upstream, ChunkBuf::new(), limit).await?;
        opening.buf.extend(buf.payload());
        opening.is_last = is_last;
    }
    Ok(opening)
}

/// Passes an answer on to its end, beginning with what [`open`] gave.
pub(crate) async fn relay(
    core: &Rc<Core>,
    conn: &mut ServerConn<ClientIo>,
    mut upstream: Upstream<EngineIo>,
    answer: &Answer<'_>,
    opening: Piece,
    deadline: Mono,
    finish: &mut Finish,
) {
    let Piece { mut buf, mut is_last } = opening;
    let length = match answer.head.framing() {
        Framing::Length(bytes) => BodyLength::Known(bytes),
        _ if is_last => BodyLength::Known(buf.len() as u64),
        _ => BodyLength::Unknown,
    };
    finish.passing(buf.payload());
    finish.prefilled();
    finish.answering();
    let status = answer.head.status();
    let overhead_us = answer.overhead_us(finish);
    let draft = respond::engine_draft(conn, status, &answer.head, answer.served, overhead_us, finish);
    finish.answer(status);
    finish.sent(buf.len());
    if is_last {
        // The common case: the usage is known and the connection free before the answer leaves.
        let reading = if is_plain(answer) { usage_of(buf.payload()) } else { Reading::default() };
        finish.usage(reading.usage, reading.absurd_count);
        finish.seen(None, true);
        core.evidence.answered(answer.slot);
        upstream.release(answer.opened);
        return send_all(core, conn, draft, length, buf, deadline, finish).await;
    }
    let mut tail = Tail::default();
    tail.add(buf.payload());
    match send_start(core, conn, draft, length, buf, deadline, finish).await {
        Some(empty) => buf = empty,
        None => return,
    }
    while !is_last {
        let now = Mono::now();
        let limit = piece_limit(core, deadline, now, now, true);
        match next_piece(core, conn, &mut upstream, buf, limit).await {
            Ok(piece) => (buf, is_last) = (piece.buf, piece.is_last),
            Err(Broken::ClientGone) => return,
            Err(Broken::Engine(reason, _)) => {
                // A part was sent: only the missing end can tell the client.
                finish.fail(reason.code());
                core.evidence.broke(answer.slot, reason, core.settings.cooldown);
                conn.writer.abort();
                return;
            }
            Err(Broken::ShuttingDown) => {
                finish.fail(Reason::ShuttingDown.code());
                conn.writer.abort();
                return;
            }
        }
        tail.add(buf.payload());
        finish.passing(buf.payload());
        finish.sent(buf.len());
        match send_piece(core, conn, buf, deadline, finish).await {
            Some(empty) => buf = empty,
            None => return,
        }
    }
    let reading = if is_plain(answer) { tail.usage() } else { Reading::default() };
    finish.usage(reading.usage, reading.absurd_count);
    finish.seen(None, true);
    core.evidence.answered(answer.slot);
    upstream.release(Mono::now());
    buf.clear();
    send_end(conn, buf, deadline, finish).await;
}

/// An engine that compresses although it was asked not to is passed on as it is; its usage cannot be read.
fn is_plain(answer: &Answer<'_>) -> bool {
    answer.head.header("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
}
