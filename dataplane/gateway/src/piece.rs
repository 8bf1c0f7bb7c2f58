//! One piece of an engine's answer: waited for, no longer than the limits and the client's stay allow, and sent to the
//! client, no longer than it reads.
//!
//! Called by `relay` for streams and by `whole` for answers that are not. Decides nothing about what a piece says.

use std::io;
use std::time::Duration;

use llmgw_http::chunk_buf::ChunkBuf;
use llmgw_http::client::{EngineIo, Piece, Upstream};
use llmgw_http::draft::ResponseDraft;
use llmgw_http::error::BodyError;
use llmgw_http::server::{BodyLength, ServerConn};
use llmgw_kit::clock::Mono;
use llmgw_runtime::timer::{Elapsed, timeout, timeout_at};
use llmgw_runtime::{Either, race};

use crate::core::Core;
use crate::cut::{Parting, parting};
use crate::door::ClientIo;
use crate::error::Reason;
use crate::finish::Finish;

/// Why a wait for an engine's next piece ended without one.
pub(crate) enum Broken {
    /// The client left; nobody is there to be told.
    ClientGone,
    /// This gateway waits no longer.
    ShuttingDown,
    /// The engine failed, or a time limit was reached.
    Engine(Reason, String),
}

/// Waits for the next piece of an answer, no longer than `limit`, for the client no longer than it stays, and no longer
/// than this gateway does.
pub(crate) async fn next_piece(
    core: &Core,
    conn: &mut ServerConn<ClientIo>,
    upstream: &mut Upstream<EngineIo>,
    buf: ChunkBuf,
    limit: Limit,
) -> Result<Piece, Broken> {
    let Limit { left, reason, whole } = limit;
    match race(timeout(left, upstream.next_piece(buf)), parting(&core.cut, &mut conn.reader)).await {
        Either::Left(Ok(Ok(piece))) => Ok(piece),
        Either::Left(Ok(Err(error))) => Err(Broken::Engine(reason_of(error), error.to_string())),
        Either::Left(Err(_)) => Err(Broken::Engine(reason, format!("{} after {whole:?}", reason.code()))),
        Either::Right(Either::Left(())) => Err(Broken::ClientGone),
        Either::Right(Either::Right(())) => Err(Broken::ShuttingDown),
    }
}

/// Sends the head of an answer and its first piece to the client; otherwise as [`send_piece`].
pub(crate) async fn send_start(
    core: &Core,
    conn: &mut ServerConn<ClientIo>,
    draft: ResponseDraft,
    length: BodyLength,
    buf: ChunkBuf,
    deadline: Mono,
    finish: &mut Finish,
) -> Option<ChunkBuf> {
    let sent = timeout_at(deadline, conn.writer.start_with(draft, length, buf));
    let sent = race(sent, parting(&core.cut, &mut conn.reader)).await;
    after_sending(sent, conn, finish)
}

/// Sends an answer that is at hand whole; otherwise as [`send_piece`].
pub(crate) async fn send_all(
    core: &Core,
    conn: &mut ServerConn<ClientIo>,
    draft: ResponseDraft,
    length: BodyLength,
    buf: ChunkBuf,
    deadline: Mono,
    finish: &mut Finish,
) {
    let sent = timeout_at(deadline, conn.writer.send_all(draft, length, buf));
    let sent = race(sent, parting(&core.cut, &mut conn.reader)).await;
    after_sending(sent, conn, finish);
}

/// Sends a piece of an answer to the client; the buffer comes back empty.
///
/// Nothing comes back when the client left, or when it did not read for so long that the request's time or this
/// gateway's is up: there is nobody left to be told.
pub(crate) async fn send_piece(
    core: &Core,
    conn: &mut ServerConn<ClientIo>,
    buf: ChunkBuf,
    deadline: Mono,
    finish: &mut Finish,
) -> Option<ChunkBuf> {
    let sent = timeout_at(deadline, conn.writer.chunk(buf));
    let sent = race(sent, parting(&core.cut, &mut conn.reader)).await;
    after_sending(sent, conn, finish)
}

/// Sends the last piece of an answer and its end to the client. Whether that client is still there is of no concern
/// then.
pub(crate) async fn send_end(conn: &mut ServerConn<ClientIo>, last: ChunkBuf, deadline: Mono, finish: &mut Finish) {
    let sent = timeout_at(deadline, conn.writer.finish_with(last)).await;
    after_sending(Either::Left(sent), conn, finish);
}

fn after_sending(
    sent: Either<Result<(io::Result<()>, ChunkBuf), Elapsed>, Parting>,
    conn: &mut ServerConn<ClientIo>,
    finish: &mut Finish,
) -> Option<ChunkBuf> {
    match sent {
        Either::Left(Ok((Ok(()), empty))) => Some(empty),
        Either::Left(Ok((Err(_), _))) | Either::Right(Either::Left(())) => None,
        Either::Left(Err(_)) => {
            finish.fail(Reason::TotalTimeout.code());
            conn.writer.abort();
            None
        }
        Either::Right(Either::Right(())) => {
            finish.fail(Reason::ShuttingDown.code());
            conn.writer.abort();
            None
        }
    }
}

/// What the failure of an engine's answer is called.
pub(crate) fn reason_of(error: BodyError) -> Reason {
    match error {
        BodyError::Malformed(_) => Reason::EngineMalformed,
        BodyError::Truncated | BodyError::Io(_) => Reason::EngineClosed,
    }
}

/// The time one more piece may take.
pub(crate) struct Limit {
    pub(crate) left: Duration,
    /// Which limit that is.
    pub(crate) reason: Reason,
    /// The limit as it was set, of which some may be used up.
    whole: Duration,
}

/// The time one more piece may take, and which limit that is: for an answer that has `begun` from its last event on,
/// else from the request on. What is no event (comments, a part of one) does not move either.
pub(crate) fn piece_limit(core: &Core, deadline: Mono, from: Mono, now: Mono, has_begun: bool) -> Limit {
    let timeouts = &core.settings.timeouts;
    let (step, reason) = if has_begun {
        (timeouts.between_events, Reason::BetweenEventsTimeout)
    } else {
        (timeouts.first_token, Reason::FirstTokenTimeout)
    };
    let (left, left_in_all) = ((from + step).since(now), deadline.since(now));
    if left_in_all < left {
        Limit { left: left_in_all, reason: Reason::TotalTimeout, whole: timeouts.total }
    } else {
        Limit { left, reason, whole: step }
    }
}
