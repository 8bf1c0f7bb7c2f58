//! A stream passed on as it comes: each piece an engine sends goes to the client in the same turn, but for the usage
//! event that we asked for and the client did not.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use llmgw_gateway::error::Reason;
use llmgw_kit::clock::Mono;
use llmgw_openai::error::ErrorBody;
use llmgw_openai::tap::{StreamTap, Withhold};
use llmgw_router::breaker::{Failure, FailureKind};

use crate::answer::Aborted;
use crate::finish::Finish;
use crate::limit::Limit;
use crate::retry::Granted;
use crate::state::Gateway;
use crate::tables::Tables;
use crate::turn::Turn;
use crate::upstream::Upstream;

/// How long a client may take to take in that its stream broke.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long an engine may take to end its answer once it has said that it is done.
const AFTER_END_MARK: Duration = Duration::from_secs(1);

/// What the answers that are passed on have in common.
pub(crate) struct Course {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) turn: Arc<Turn>,
    pub(crate) granted: Granted,
    pub(crate) finish: Box<Finish>,
    pub(crate) replica: String,
    pub(crate) deadline: Mono,
}

/// See the module.
pub(crate) struct Streaming {
    course: Course,
    /// What came together with the head.
    first: Option<Bytes>,
    /// None once it is over.
    upstream: Option<Upstream>,
    tap: StreamTap,
    held: Vec<u8>,
    /// The last bytes that were passed on.
    ending: [u8; 4],
    event_count: u64,
    last_event: Mono,
    /// When a piece went to the client that has not asked for the next one.
    passed_at: Option<Mono>,
    engine_deadline: Mono,
    step: Step,
}

enum Step {
    Passes,
    /// The error event is on its way; so long for it.
    Breaks(Mono),
    Over,
}

impl Streaming {
    /// A stream of which `first` came together with its head.
    pub(crate) fn new(
        mut course: Course,
        upstream: Upstream,
        first: Option<Bytes>,
        withhold: Withhold,
        sent_at: Mono,
    ) -> Self {
        course.finish.is_streamed = true;
        course.finish.account.answering();
        Self {
            engine_deadline: course.deadline,
            course,
            first,
            upstream: Some(upstream),
            tap: StreamTap::new(withhold),
            held: Vec::new(),
            ending: [0; 4],
            event_count: 0,
            last_event: sent_at,
            passed_at: None,
            step: Step::Passes,
        }
    }

    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        match self.step {
            Step::Passes => {
                if let Some(at) = self.passed_at.take() {
                    // A client that took its time, maybe in the middle of an event, is no silence of the engine.
                    self.last_event = self.last_event + Mono::now().since(at);
                }
                let polled = self.pass_on(cx);
                if polled.is_ready() {
                    self.passed_at = Some(Mono::now());
                }
                polled
            }
            Step::Over => Poll::Ready(None),
            Step::Breaks(until) => {
                // hyper throws away what it holds when a body fails: the event must be out first. It is once nothing is
                // blocked after a turn in which it could be written.
                let turn = &self.course.turn;
                let was_tried = std::mem::replace(&mut self.ending, [1; 4]) == [1; 4];
                let is_late = Mono::now() >= until || !turn.is_cut() && turn.poll_until(cx, until).is_ready();
                if was_tried && !turn.is_write_blocked() || is_late {
                    self.step = Step::Over;
                    return Poll::Ready(Some(Err(Aborted)));
                }
                if !was_tried {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    fn pass_on(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        loop {
            let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
            let piece = match self.first.take() {
                Some(first) => Poll::Ready(Some(Ok(first))),
                None => upstream.poll_piece(cx),
            };
            match piece {
                Poll::Ready(Some(Ok(piece))) => {
                    let piece = self.pass(piece);
                    if !piece.is_empty() {
                        self.course.finish.sent_bytes += piece.len() as u64;
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(self.end()),
                // The client has its whole answer: how the engine hangs up is its own affair.
                Poll::Ready(Some(Err(_))) if self.tap.learned().is_done => return Poll::Ready(self.end()),
                Poll::Ready(Some(Err((reason, why)))) => {
                    let why = format!("replica {}: {why}", self.course.replica);
                    return Poll::Ready(Some(Ok(self.break_off(reason, &why))));
                }
                Poll::Pending => return self.wait(cx),
            }
        }
    }

    /// Nothing has come: for how long?
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        let learned = self.tap.learned();
        if learned.is_done && self.engine_deadline == self.course.deadline {
            self.engine_deadline = self.course.deadline.min(Mono::now() + AFTER_END_MARK);
        }
        let settings = self.course.tables.settings();
        let limit = Limit::of_piece(settings, self.engine_deadline, self.last_event, learned.has_first_token());
        if self.course.turn.poll_until(cx, limit.until).is_pending() {
            return Poll::Pending;
        }
        if learned.is_done {
            return Poll::Ready(self.end());
        }
        let (reason, why) = if self.course.turn.is_cut() {
            (Reason::ShuttingDown, "this gateway is shutting down; the answer is not complete".to_owned())
        } else {
            (limit.reason, format!("replica {}: {}", self.course.replica, limit.sentence(settings)))
        };
        Poll::Ready(Some(Ok(self.break_off(reason, &why))))
    }

    /// What of a piece goes to the client.
    fn pass(&mut self, piece: Bytes) -> Bytes {
        let finish = &mut self.course.finish;
        finish.passing(&piece);
        let known_count = self.tap.learned().content_event_count;
        let range = self.tap.feed(&piece, &mut self.held);
        let out = if self.held.is_empty() {
            if range.len() == piece.len() { piece } else { piece.slice(range) }
        } else {
            self.held.extend_from_slice(piece.get(range).unwrap_or_default());
            Bytes::copy_from_slice(&self.held)
        };
        let learned = self.tap.learned();
        if learned.content_event_count > known_count {
            finish.tokens_now();
        }
        if learned.has_first_token() && learned.event_count > self.event_count {
            (self.event_count, self.last_event) = (learned.event_count, Mono::now());
        }
        self.note(&out);
        out
    }

    /// The engine has sent all there is.
    fn end(&mut self) -> Option<Result<Bytes, Aborted>> {
        self.tap.end(&mut self.held);
        let last = Bytes::copy_from_slice(&self.held);
        self.note(&last);
        let learned = *self.tap.learned();
        if !learned.is_done && !learned.has_error {
            let why = format!("replica {}: the stream ended without its end marker", self.course.replica);
            let event = self.break_off(Reason::EngineClosed, &why);
            return Some(Ok([last, event].concat().into()));
        }
        self.step = Step::Over;
        let Course { gateway, tables, granted, finish, .. } = &mut self.course;
        finish.account.seen(Some(learned.content_event_count), learned.is_done);
        finish.usage(learned.usage(), learned.absurd_count);
        let slot = granted.choice.slot;
        if learned.has_error {
            finish.fail("engine_error");
            finish.broken_stream();
            let failure = Failure { slot, kind: FailureKind::Faulty, retry_after_seconds: None };
            gateway.failed(failure, tables.settings());
        } else {
            gateway.answered(slot);
        }
        if let Some(mut upstream) = self.upstream.take()
            && upstream.is_at_end()
        {
            upstream.release(&gateway.pool, Mono::now());
        }
        finish.sent_bytes += last.len() as u64;
        (!last.is_empty()).then_some(Ok(last))
    }

    /// The event that tells the client that its stream broke.
    fn break_off(&mut self, reason: Reason, why: &str) -> Bytes {
        self.upstream = None;
        let learned = *self.tap.learned();
        let Course { gateway, tables, granted, finish, .. } = &mut self.course;
        finish.account.seen(Some(learned.content_event_count), learned.is_done);
        finish.usage(learned.usage(), learned.absurd_count);
        finish.fail(reason.code());
        if reason != Reason::ShuttingDown {
            finish.broken_stream();
        }
        gateway.broke(granted.choice.slot, reason, tables.settings());
        let mut event = Vec::new();
        if !is_between_events(self.ending) {
            event.extend_from_slice(b"\n\n");
        }
        let error = ErrorBody { message: why, kind: reason.kind(), param: None, code: Some(reason.code()) };
        finish.errors.write_event(&mut event, reason.status(), &error);
        self.ending = [0; 4];
        self.step = Step::Breaks(Mono::now() + LAST_WORD);
        event.into()
    }

    fn note(&mut self, passed: &[u8]) {
        for &byte in passed.get(passed.len().saturating_sub(4)..).unwrap_or_default() {
            self.ending.rotate_left(1);
            self.ending[3] = byte;
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        // A client that left: what was learned so far counts.
        if matches!(self.step, Step::Passes) {
            let learned = self.tap.learned();
            let finish = &mut self.course.finish;
            finish.account.seen(Some(learned.content_event_count), learned.is_done);
            finish.usage(learned.usage(), learned.absurd_count);
        }
    }
}

/// Whether a stream whose last bytes these are stands between two events.
fn is_between_events(ending: [u8; 4]) -> bool {
    ending == [0; 4] || ending.ends_with(b"\n\n") || ending == *b"\r\n\r\n" || ending.ends_with(b"\r\r")
}
