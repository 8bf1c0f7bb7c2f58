//! A stream passed on as it comes: each piece an engine sends leaves in the same turn, but for the usage event that we
//! asked for and the client did not.

use std::future::ready;
use std::rc::Rc;
use std::time::Duration;

use llmgw_http::chunk_buf::ChunkBuf;
use llmgw_http::client::{EngineIo, Piece, Upstream};
use llmgw_http::head::ResponseHead;
use llmgw_http::server::{BodyLength, ServerConn};
use llmgw_http::spare;
use llmgw_kit::clock::Mono;
use llmgw_openai::tap::{StreamTap, Withhold};
use llmgw_router::breaker::{Failure, FailureKind};
use llmgw_runtime::{Either, race};
use llmgw_types::BoardSlot;

use crate::core::Core;
use crate::door::ClientIo;
use crate::error::Reason;
use crate::finish::Finish;
use crate::piece::{Broken, next_piece, piece_limit, reason_of, send_end, send_piece, send_start};
use crate::respond::{self, Served};

/// How long an engine may take to end its answer once it has said that it is done.
const AFTER_END_MARK: Duration = Duration::from_secs(1);

/// An engine's answer whose head has arrived.
pub(crate) struct Answer<'a> {
    pub(crate) head: ResponseHead,
    pub(crate) served: &'a Served<'a>,
    /// Whose it is.
    pub(crate) slot: BoardSlot,
    /// Time from the request's body to its sending.
    pub(crate) overhead: Duration,
    /// When the request was sent.
    pub(crate) sent_at: Mono,
    /// When the head arrived.
    pub(crate) arrived: Mono,
    /// When what leaves together with the head was at hand.
    pub(crate) opened: Mono,
}

impl Answer<'_> {
    /// What this gateway added so far, in microseconds; counted once, when the head is written.
    pub(crate) fn overhead_us(&self, finish: &mut Finish) -> u64 {
        let total = self.overhead + Mono::now().since(self.opened);
        let micros = u64::try_from(total.as_micros()).unwrap_or(u64::MAX);
        finish.overhead(micros);
        finish.first_byte(self.arrived);
        micros
    }
}

/// What came together with a stream's head, without a wait: it leaves together with the head, else the head leaves at
/// once.
///
/// Errors: the engine failed; nothing was sent to the client.
pub(crate) async fn open(upstream: &mut Upstream<EngineIo>) -> Result<Option<Piece>, Broken> {
    match race(upstream.next_piece(ChunkBuf::new()), ready(())).await {
        Either::Left(Ok(piece)) => Ok(Some(piece)),
        Either::Left(Err(error)) => Err(Broken::Engine(reason_of(error), error.to_string())),
        Either::Right(()) => Ok(None),
    }
}

/// Passes a stream of events on to its end, beginning with what [`open`] gave.
#[expect(clippy::too_many_arguments, reason = "one step of the request path, with what the path has in hand")]
pub(crate) async fn stream(
    core: &Rc<Core>,
    conn: &mut ServerConn<ClientIo>,
    mut upstream: Upstream<EngineIo>,
    mut answer: Answer<'_>,
    first: Option<Piece>,
    withhold: Withhold,
    deadline: Mono,
    finish: &mut Finish,
) {
    finish.stream();
    finish.answering();
    let mut relay = Relay { tap: StreamTap::new(withhold), ending: [0; 4] };
    let status = answer.head.status();
    let overhead_us = answer.overhead_us(finish);
    // A stream that was sent a heartbeat while it waited has its head.
    let draft = (!conn.writer.has_begun()).then(|| {
        let mut draft = respond::engine_draft(conn, status, &answer.head, answer.served, overhead_us, finish);
        respond::add_stream_headers(&mut draft, &answer.head);
        finish.answer(status);
        draft
    });
    // A stream holds no memory but what passes.
    answer.head.release();
    let (mut buf, mut is_last) = match first {
        Some(piece) => (relay.pass(piece.buf, answer.opened, finish), piece.is_last),
        None => (ChunkBuf::new(), false),
    };
    finish.sent(buf.len());
    let sent = match draft {
        Some(draft) => send_start(core, conn, draft, BodyLength::Unknown, buf, deadline, finish).await,
        None => send_piece(core, conn, buf, deadline, finish).await,
    };
    match sent {
        Some(empty) => buf = empty,
        None => {
            relay.report(finish);
            return;
        }
    }
    let mut engine_deadline = deadline;
    let (mut event_count, mut last_event) = (0, answer.sent_at);
    let mut now = Mono::now();
    while !is_last {
        let learned = relay.tap.learned();
        if learned.is_done {
            engine_deadline = engine_deadline.min(now + AFTER_END_MARK);
        }
        if learned.has_first_token() && learned.event_count > event_count {
            (event_count, last_event) = (learned.event_count, now);
        }
        let limit = piece_limit(core, engine_deadline, last_event, now, learned.has_first_token());
        match next_piece(core, conn, &mut upstream, buf, limit).await {
            Ok(piece) => {
                (is_last, now) = (piece.is_last, Mono::now());
                buf = relay.pass(piece.buf, now, finish);
            }
            Err(Broken::ClientGone) => {
                relay.report(finish);
                return;
            }
            // The client has its whole answer: nothing may follow the end mark, and how the engine hangs up is its own
            // affair.
            Err(Broken::Engine(..) | Broken::ShuttingDown) if relay.tap.learned().is_done => {
                buf = ChunkBuf::new();
                break;
            }
            Err(Broken::Engine(reason, why)) => {
                drop(upstream);
                relay.report(finish);
                engine_broke(core, &answer, reason);
                let why = format!("replica {}: {why}", answer.served.replica);
                respond::break_off(conn, relay.is_between_events(), reason, &why, finish).await;
                return;
            }
            Err(Broken::ShuttingDown) => {
                drop(upstream);
                relay.report(finish);
                let why = "this gateway is shutting down; the answer is not complete";
                respond::break_off(conn, relay.is_between_events(), Reason::ShuttingDown, why, finish).await;
                return;
            }
        }
        finish.sent(buf.len());
        if buf.is_empty() {
            continue;
        }
        let came = now;
        match send_piece(core, conn, buf, deadline, finish).await {
            Some(empty) => buf = empty,
            None => {
                relay.report(finish);
                return;
            }
        }
        // A client that took its time, maybe in the middle of an event, is no silence of the engine.
        now = Mono::now();
        last_event = last_event + now.since(came);
    }
    buf = relay.end(buf, finish);
    relay.report(finish);
    let learned = relay.tap.learned();
    if !learned.is_done && !learned.has_error {
        drop(upstream);
        engine_broke(core, &answer, Reason::EngineClosed);
        let why = format!("replica {}: the stream ended without its end marker", answer.served.replica);
        respond::break_off(conn, relay.is_between_events(), Reason::EngineClosed, &why, finish).await;
        return;
    }
    if learned.has_error {
        finish.fail("engine_error");
        core.cells.broken_streams.increment();
        let failure = Failure { slot: answer.slot, kind: FailureKind::Faulty, retry_after_seconds: None };
        core.evidence.failed(failure, core.settings.cooldown);
    } else {
        core.evidence.answered(answer.slot);
    }
    upstream.release(Mono::now());
    send_end(conn, buf, deadline, finish).await;
}

fn engine_broke(core: &Core, answer: &Answer<'_>, reason: Reason) {
    core.cells.broken_streams.increment();
    core.evidence.broke(answer.slot, reason, core.settings.cooldown);
}

/// What is kept of a stream while it passes.
struct Relay {
    tap: StreamTap,
    /// The last bytes that were passed on.
    ending: [u8; 4],
}

impl Relay {
    /// What of a piece that `came` then goes to the client.
    fn pass(&mut self, mut buf: ChunkBuf, came: Mono, finish: &mut Finish) -> ChunkBuf {
        finish.passing(buf.payload());
        let known_count = self.tap.learned().content_event_count;
        // A stream that waits for its engine holds no memory but what it keeps of an event.
        let mut held = spare::take();
        self.tap.lend(spare::take);
        let range = self.tap.feed(buf.payload(), &mut held);
        if held.is_empty() {
            buf.truncate(range.end);
            buf.remove(0..range.start);
        } else {
            held.extend_from_slice(buf.payload().get(range).unwrap_or_default());
            buf.clear();
            buf.extend(&held);
        }
        spare::give(held);
        self.tap.give_back().into_iter().for_each(spare::give);
        if self.tap.learned().content_event_count > known_count {
            finish.tokens(came);
        }
        self.note(&buf);
        buf
    }

    /// What was held back and goes out with the end.
    fn end(&mut self, mut buf: ChunkBuf, finish: &mut Finish) -> ChunkBuf {
        let mut held = spare::take();
        self.tap.end(&mut held);
        buf.clear();
        buf.extend(&held);
        spare::give(held);
        finish.sent(buf.len());
        self.note(&buf);
        buf
    }

    fn note(&mut self, buf: &ChunkBuf) {
        for &byte in buf.payload().iter().rev().take(4).rev() {
            self.ending.rotate_left(1);
            self.ending[3] = byte;
        }
    }

    fn is_between_events(&self) -> bool {
        self.ending == [0; 4]
            || self.ending.ends_with(b"\n\n")
            || self.ending == *b"\r\n\r\n"
            || self.ending.ends_with(b"\r\r")
    }

    fn report(&self, finish: &mut Finish) {
        let learned = self.tap.learned();
        finish.seen(Some(learned.content_event_count), learned.is_done);
        finish.usage(learned.usage(), learned.absurd_count);
    }
}
