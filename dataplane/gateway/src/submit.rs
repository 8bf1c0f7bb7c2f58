//! The wait for a place: where a request stands still on its home core until the owner of its queue has spoken.
//!
//! Called by `serve` for requests that could not pass, before the first attempt and between two. A client that leaves,
//! a gateway that ends and a request's own deadline end the wait; whatever ends it, the queue is left and a place that
//! was granted meanwhile goes back. Where those it waits for are gone the request is decided anew, by the newest
//! tables, as if it had just come; so often, and no more.
//!
//! A stream that waits may be sent a comment now and then, so that nobody on the way takes it for dead. With the first
//! of them its answer has begun: whatever comes after is told within it.

use std::time::Duration;

use llmgw_http::chunk_buf::ChunkBuf;
use llmgw_http::server::{BodyLength, ServerConn};
use llmgw_kit::clock::Mono;
use llmgw_openai::sse;
use llmgw_router::message::Refusal;
use llmgw_runtime::timer::{sleep, timeout_at};
use llmgw_runtime::{Either, race};

use crate::admission::{NoPlace, Place, Waiting};
use crate::arrived::Arrived;
use crate::core::Core;
use crate::cut::{Parting, parting};
use crate::door::ClientIo;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::piece::{send_piece, send_start};
use crate::respond;
use crate::retry::{Granted, Step, Tries};
use crate::routing::Routing;

/// How often a request that waits looks whether anybody is left to wait for.
const LOOK: Duration = Duration::from_millis(500);
/// How long a request whose pools are gone stays for news: the table that the owner of its queue has already, and the
/// first answer of engines that are new in it.
const NEWS_TIME: Duration = Duration::from_secs(2);
/// How often it looks for them.
const NEWS_LOOK: Duration = Duration::from_millis(5);
/// What a waiting stream is sent.
const COMMENT: &str = "waiting for a place";

/// What a request goes on with.
pub(crate) enum Waited {
    Go(Granted),
    /// The client left.
    Gone,
}

/// Why a wait is over.
enum Over {
    Said(Result<Place, NoPlace>),
    /// Nobody is left of those it waits for, and somebody else is there.
    Stranded,
    Parted(Parting),
}

/// Waits until the request has an endpoint. A place in a pool whose engines are out by then is waited for anew.
///
/// Errors: why it has none.
pub(crate) async fn wait<'a>(
    arrived: &Arrived<'_>,
    mut waiting: Waiting<'a>,
    tries: &mut Tries<'a>,
    routing: &mut Routing,
    conn: &mut ServerConn<ClientIo>,
    finish: &mut Finish,
) -> Result<Waited, ApiError> {
    let core = tries.core();
    loop {
        let over = until_over(core, arrived, &mut waiting, tries, conn, finish).await;
        let (now, model) = (Mono::now(), waiting.model);
        finish.waited(waiting.waited(now));
        routing.waited(finish.queue_time());
        let step = match over {
            Over::Parted(Either::Left(())) => return Ok(Waited::Gone),
            Over::Parted(Either::Right(())) => return Err(ApiError::shutting_down()),
            Over::Said(Ok(place)) => {
                drop(waiting);
                tries.first(now, Some((place, model)), routing.explanation())
            }
            Over::Said(Err(NoPlace::Refused(Refusal::NoEndpoint))) if tries.goes_anew() => {
                waiting.moves_on();
                match race(anew(core, arrived, tries, routing, model), parting(&core.cut, &mut conn.reader)).await {
                    Either::Left(step) => step,
                    Either::Right(Either::Left(())) => return Ok(Waited::Gone),
                    Either::Right(Either::Right(())) => return Err(ApiError::shutting_down()),
                }
            }
            Over::Said(Err(why)) => {
                drop(waiting);
                Err(tries.no_place(why, model))
            }
            Over::Stranded => {
                waiting.moves_on();
                tries.first(now, None, routing.explanation())
            }
        };
        routing.waited(finish.queue_time());
        routing.tell(tries.tables(), finish);
        match step? {
            Step::Go(granted) => return Ok(Waited::Go(granted)),
            Step::Wait(again) => waiting = again,
        }
    }
}

/// Waits for the owner's word, and sends what a stream is sent meanwhile.
async fn until_over(
    core: &Core,
    arrived: &Arrived<'_>,
    waiting: &mut Waiting<'_>,
    tries: &mut Tries<'_>,
    conn: &mut ServerConn<ClientIo>,
    finish: &mut Finish,
) -> Over {
    let until = waiting.until;
    let heartbeat = waiting.heartbeat.filter(|_| arrived.is_streaming);
    let began = Mono::now();
    let (mut look_at, mut beat_at) = (began + LOOK, heartbeat.map(|every| began + every));
    loop {
        let next = until.min(look_at).min(beat_at.unwrap_or(until));
        match race(timeout_at(next, waiting.place()), parting(&core.cut, &mut conn.reader)).await {
            Either::Left(Ok(said)) => return Over::Said(said),
            Either::Left(Err(_)) => {}
            Either::Right(parted) => return Over::Parted(parted),
        }
        let now = Mono::now();
        if now >= until {
            return Over::Said(Err(waiting.give_up()));
        }
        if now >= look_at {
            look_at = now + LOOK;
            if tries.is_stranded(waiting, now) && tries.goes_anew() {
                return Over::Stranded;
            }
        }
        if let Some(every) = heartbeat.filter(|_| beat_at.is_some_and(|at| now >= at)) {
            beat_at = Some(now + every);
            if !beat(core, conn, until, finish).await {
                return Over::Parted(Either::Left(()));
            }
        }
    }
}

/// Sends a comment, the first with the head of the answer. Answer: whether the client is there to take it.
async fn beat(core: &Core, conn: &mut ServerConn<ClientIo>, until: Mono, finish: &mut Finish) -> bool {
    let mut comment = Vec::new();
    sse::comment(&mut comment, COMMENT);
    let mut buf = ChunkBuf::new();
    buf.extend(&comment);
    finish.sent(comment.len());
    core.cells.heartbeats.increment();
    let sent = if conn.writer.has_begun() {
        send_piece(core, conn, buf, until, finish).await
    } else {
        let draft = respond::waiting_draft(conn, finish);
        finish.answer(200);
        finish.stream();
        send_start(core, conn, draft, BodyLength::Unknown, buf, until, finish).await
    };
    sent.is_some()
}

/// Decides a request anew by tables that are newer than its own, in which those it waited for are gone.
///
/// Errors: what it asks for is not there any more; nobody can take it, and nobody new came within a moment.
async fn anew<'a>(
    core: &Core,
    arrived: &Arrived<'_>,
    tries: &mut Tries<'a>,
    routing: &mut Routing,
    model: u32,
) -> Result<Step<'a>, ApiError> {
    let until = Mono::now() + NEWS_TIME;
    let known = tries.tables().routes().generation.to_native();
    // The owner of the queue may have its table before this core.
    let tables = loop {
        match core.tables() {
            Some(tables) if tables.routes().generation.to_native() > known => break tables,
            _ if Mono::now() >= until => return Err(tries.no_place(NoPlace::Refused(Refusal::NoEndpoint), model)),
            _ => sleep(NEWS_LOOK).await,
        }
    };
    let resolved = arrived.resolve(core, &tables).await?;
    tries.keep_to(tables, &resolved);
    *routing = resolved.routing;
    loop {
        let now = Mono::now();
        match tries.first(now, None, routing.explanation()) {
            // Engines that came with the table are asked whether they are ready at this moment.
            Err(error) if error.reason == Reason::NoEndpoint && now < until => sleep(NEWS_LOOK).await,
            step => return step,
        }
    }
}
