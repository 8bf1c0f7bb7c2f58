//! The end of a request, exactly once, however it comes: by return, by error, or because its task was dropped.
//!
//! [`Finish`] is made with the head and carries what is learned on the way; its drop counts the request and records it.
//! The load board's place has a guard of its own, inside the grant, and goes down before.

use std::rc::Rc;
use std::time::Duration;

use llmgw_kit::clock::{Mono, Wall};
use llmgw_obs::access::time_per_token;
use llmgw_obs::rows::RowIdx;
use llmgw_openai::stored::IdTap;
use llmgw_openai::style::ErrorStyle;
use llmgw_openai::usage::Usage;
use llmgw_router::access::AccessRecord;
use llmgw_router::limiter::{Now, Truth};
use llmgw_router::metrics::status_row;
use llmgw_router::prefix::{Decision, Prefilling};
use llmgw_router::scheduler::cached::Reuse;
use llmgw_types::snapshot::Units;
use llmgw_types::tenants::Caller;
use llmgw_types::{BoardSlot, RequestId, UsageRecord};

use crate::account::{Account, Recorded, Used};
use crate::core::Core;
use crate::handlers::stored::subject;
use crate::limits::Held;
use crate::prompt::Sent;
use crate::quota::Rates;
use crate::reserve::Reserved;
use crate::retry::Granted;
use crate::route::{Route, UsageReport};

/// A client that left before an answer began, in metrics and logs.
const CLIENT_GONE: u16 = 499;

/// What is known of a request so far.
pub(crate) struct Finish {
    core: Rc<Core>,
    id: RequestId,
    began: Mono,
    began_wall: Wall,
    method: &'static str,
    route: &'static str,
    status: u16,
    reason: Option<&'static str>,
    metric_row: u32,
    slot: Option<BoardSlot>,
    errors: ErrorStyle,
    usage_report: UsageReport,
    is_inference: bool,
    is_streamed: bool,
    attempt_count: u32,
    received: Option<Mono>,
    routed: Option<Mono>,
    connect_time: Option<Duration>,
    first_byte: Option<Mono>,
    first_token: Option<Mono>,
    last_token: Option<Mono>,
    overhead_us: Option<u64>,
    /// In queues for a place.
    waited: Duration,
    usage: Option<Usage>,
    sent_bytes: u64,
    explanation: Option<String>,
    /// Looks for the id of a response that the engine may hold, and which engine that is.
    watch: Option<(IdTap, BoardSlot)>,
    /// What became of its prompt at the newest attempt.
    decision: Option<Decision>,
    reuse: Option<Reuse>,
    /// Its prompt as it was sent.
    sent: Option<Sent>,
    /// What its engine has to prefill of it, until it did.
    prefilling: Option<Prefilling>,
    /// What it holds of its limits.
    held: Option<Held>,
    /// What is left of them.
    rates: Option<Rates>,
    /// Whether an engine may have heard of it.
    has_run: bool,
    /// What it used.
    account: Account,
}

impl Finish {
    /// A request whose head has arrived.
    pub(crate) fn begin(core: &Rc<Core>, now: Mono, method: &[u8]) -> Self {
        core.cells.in_flight.increment();
        let wall = Wall::now();
        let method = match method {
            b"POST" => "POST",
            b"GET" => "GET",
            b"HEAD" => "HEAD",
            _ => "other",
        };
        Self {
            core: core.clone(),
            id: core.request_id(wall),
            began: now,
            began_wall: wall,
            method,
            route: "other",
            status: CLIENT_GONE,
            reason: None,
            metric_row: RowIdx::OTHER.0,
            slot: None,
            errors: ErrorStyle::OpenAi,
            usage_report: UsageReport::Never,
            is_inference: false,
            is_streamed: false,
            attempt_count: 0,
            received: None,
            routed: None,
            connect_time: None,
            first_byte: None,
            first_token: None,
            last_token: None,
            overhead_us: None,
            waited: Duration::ZERO,
            usage: None,
            sent_bytes: 0,
            explanation: None,
            watch: None,
            decision: None,
            reuse: None,
            sent: None,
            prefilling: None,
            held: None,
            rates: None,
            has_run: false,
            account: Account::default(),
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    /// When its head arrived.
    pub(crate) fn began_wall(&self) -> Wall {
        self.began_wall
    }

    /// The moment, for limits: a fresh one, in whose second the time that passed since the head arrived is counted.
    pub(crate) fn now(&self) -> Now {
        self.moment(Mono::now())
    }

    fn moment(&self, now: Mono) -> Now {
        let passed = u64::try_from(now.since(self.began).as_millis()).unwrap_or(u64::MAX);
        Now::of(now, Wall(self.began_wall.0.saturating_add(passed)))
    }

    /// Whose key it came with, whether or not that works.
    pub(crate) fn is_of(&mut self, caller: Caller) {
        self.account.caller = Some(caller);
    }

    /// See [`Self::is_of`].
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.account.caller.as_ref()
    }

    pub(crate) fn route(&mut self, route: Route<'_>) {
        self.route = route.word();
        if let Route::Inference(route) = route {
            self.is_inference = true;
            self.usage_report = route.usage;
        }
    }

    /// Answers end their connections.
    pub(crate) fn is_closing(&self) -> bool {
        self.core.is_closing.get()
    }

    /// The shape in which this request's errors are.
    pub(crate) fn errors_as(&mut self, style: ErrorStyle) {
        self.errors = style;
    }

    /// See [`Self::errors_as`].
    pub(crate) fn errors(&self) -> ErrorStyle {
        self.errors
    }

    /// The body has been received whole.
    pub(crate) fn received(&mut self, at: Mono) {
        self.received = Some(at);
    }

    /// It has waited for a place, so long in all.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Time in queues for a place.
    pub(crate) fn queue_time(&self) -> Duration {
        self.waited
    }

    /// It goes on the record, whatever comes of it.
    pub(crate) fn on_the_record(&mut self, asked: Recorded) {
        self.account.asked = Some(asked);
    }

    /// The pool and endpoint of an attempt that begins `now`, and what its use costs.
    pub(crate) fn attempt(&mut self, metric_row: u32, slot: BoardSlot, units: Units, now: Mono) {
        self.routed.get_or_insert(now);
        self.account.attempt(units, now);
        self.metric_row = metric_row;
        self.slot = Some(slot);
        self.attempt_count += 1;
    }

    /// Where that attempt's prompt went. Call it after [`Self::attempt`].
    pub(crate) fn placed(&mut self, at: &mut Granted) {
        self.core.cells.pools.at(RowIdx(self.metric_row)).count_reuse(at.grant.reuse.as_ref());
        self.decision = Some(at.grant.reuse.map_or(Decision::NoTree, |reuse| reuse.decision));
        (self.reuse, self.sent, self.prefilling) = (at.grant.reuse, at.sent, at.grant.prefilling.take());
    }

    /// What became of its prompt, once it was placed.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.decision
    }

    /// What it holds of its limits until it ends, and what its answer shows of them.
    pub(crate) fn holds(&mut self, reserved: Reserved) {
        if let Some(held) = &reserved.held {
            // It counts in the period in which it was let in, and so does its record.
            let second = u64::from(held.second());
            if self.began_wall.unix_seconds() != second {
                self.account.admitted_at = Some(Wall(second.saturating_mul(1000)));
            }
        }
        (self.held, self.rates) = (reserved.held, reserved.rates);
    }

    /// What its answer shows of its limits, which refuse it.
    pub(crate) fn shows(&mut self, rates: Option<Rates>) {
        self.rates = rates;
    }

    /// See [`Self::holds`].
    pub(crate) fn rates(&self) -> Option<&Rates> {
        self.rates.as_ref()
    }

    /// An engine may have heard of it: from here on it counts, whatever comes of it.
    pub(crate) fn has_run(&mut self) {
        self.has_run = true;
    }

    /// Its engine has prefilled it.
    pub(crate) fn prefilled(&mut self) {
        self.prefilling = None;
    }

    /// Why it went where it went, for a client that asked.
    pub(crate) fn explain(&mut self, explanation: String) {
        self.explanation = Some(explanation);
    }

    pub(crate) fn explanation(&self) -> Option<&str> {
        self.explanation.as_deref()
    }

    /// The status that goes to the client.
    pub(crate) fn answer(&mut self, status: u16) {
        self.status = status;
    }

    /// What went wrong, in the errors' words.
    pub(crate) fn fail(&mut self, code: &'static str) {
        self.reason = Some(code);
    }

    pub(crate) fn stream(&mut self) {
        self.is_streamed = true;
    }

    /// An engine's answer, not its refusal, is about to be passed on.
    pub(crate) fn answering(&mut self) {
        self.account.answering();
    }

    /// So many tokens passed, by our own count if there is one; whether the answer came to its end.
    pub(crate) fn seen(&mut self, tokens: Option<u64>, has_ended: bool) {
        self.account.seen(tokens, has_ended);
    }

    /// What connecting to the engine that answers took; none on a connection used before.
    pub(crate) fn connected(&mut self, time: Option<Duration>) {
        self.connect_time = time;
    }

    /// The head of the engine's answer that is passed on has arrived.
    pub(crate) fn first_byte(&mut self, at: Mono) {
        self.first_byte = Some(at);
    }

    /// One or several tokens arrived then; the first time and the last are remembered.
    pub(crate) fn tokens(&mut self, at: Mono) {
        self.prefilled();
        self.first_token.get_or_insert(at);
        self.last_token = Some(at);
    }

    /// Time per token after the first. An answer that came in one piece shows none, whatever number of tokens it has.
    fn per_token(&self) -> Option<Duration> {
        let (first, last) = self.first_token.zip(self.last_token).filter(|(first, last)| first < last)?;
        let tokens = self.usage.as_ref()?.completion?;
        time_per_token(first.since(self.began), last.since(self.began), tokens)
    }

    /// Time this gateway added before the answer began. Units: microseconds.
    pub(crate) fn overhead(&mut self, micros: u64) {
        self.overhead_us = Some(micros);
        self.core.cells.overhead.observe_micros(micros);
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    /// The answer is one that the engine at `slot` may hold for a later request.
    pub(crate) fn watch(&mut self, tap: IdTap, slot: BoardSlot) {
        self.watch = Some((tap, slot));
    }

    /// A piece of the answer is about to be sent: whoever reads a response's id in it can come back at once.
    pub(crate) fn passing(&mut self, piece: &[u8]) {
        if let Some((tap, slot)) = &mut self.watch
            && let Some(id) = tap.feed(piece)
        {
            self.core.sessions.tell(subject(self.account.caller.as_ref(), id.as_bytes()), Some(*slot));
            self.watch = None;
        }
    }

    /// What the engine reported, and how many of its values made no sense; more than was asked for makes none either.
    /// Where a report is expected and there is none, the answer is counted as one without usage.
    pub(crate) fn usage(&mut self, mut usage: Usage, absurd_count: u32) {
        if self.usage_report == UsageReport::Never {
            return;
        }
        let is_too_much = self.account.asked.is_some_and(|asked| asked.is_exceeded(&usage));
        if is_too_much {
            usage.completion = None;
        }
        if absurd_count > 0 || is_too_much {
            self.core.cells.usage_absent[1].increment();
        } else if usage.is_empty() && self.usage_report == UsageReport::Expected {
            self.core.cells.usage_absent[0].increment();
        }
        self.usage = Some(usage);
    }

    /// Puts what it used on the record. Cost: one push into a ring, no allocation.
    fn account_for(&self, used: Used, now: Mono) {
        let Some((ring, asked)) = self.core.usage.as_ref().zip(self.account.asked) else { return };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let duration_ms = millis(now.since(self.began));
        let record = UsageRecord {
            id: self.id,
            admitted_at: self.account.admitted_at.unwrap_or(self.began_wall).0,
            ended_at: self.began_wall.0.saturating_add(duration_ms),
            key_id: self.account.caller.map(|caller| caller.key_id),
            project_id: self.account.caller.map(|caller| caller.project_id),
            asked_row: asked.row,
            served_row: self.slot.map(|_| self.metric_row),
            slot: self.slot.map(|slot| slot.0),
            status: self.status,
            reason: self.reason,
            tokens: used.tokens,
            units_micros: used.units_micros,
            is_estimated: used.is_estimated,
            ttft_ms: self.first_token.map(|at| millis(at.since(self.began))),
            duration_ms,
            queue_ms: Some(millis(self.waited)).filter(|_| !self.waited.is_zero()),
        };
        if ring.push(record).is_err() {
            self.core.cells.usage_lost.increment();
        }
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        let now = Mono::now();
        let cells = &self.core.cells;
        cells.in_flight.decrement();
        let pool = cells.pools.at(RowIdx(self.metric_row));
        if let Some(count) = pool.requests.get(status_row(self.status)) {
            count.increment();
        }
        let duration = now.since(self.began);
        if self.is_inference {
            pool.duration.observe(duration);
            if let Some(first) = self.first_token {
                pool.first_token.observe(first.since(self.began));
            }
            if let Some(time) = self.per_token() {
                pool.per_token.observe(time);
            }
        }
        let used = self.account.used(&self.usage.unwrap_or_default(), self.sent_bytes, now);
        pool.prompt_tokens.add(used.tokens.prompt);
        pool.completion_tokens.add(used.tokens.completion);
        if let Some(usage) = &self.usage {
            pool.audio_ms.add(usage.audio_ms.unwrap_or(0));
            if let Some((slot, sent)) = self.slot.zip(self.sent) {
                self.core.prompts.answered(slot, sent, self.reuse.as_ref(), usage);
            }
        }
        if let Some(held) = self.held.take() {
            let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
            let tokens = count(used.tokens.prompt.saturating_add(used.tokens.completion));
            let truth = Truth { ran: self.has_run, tokens, units: count(used.units_micros) };
            held.settle(truth, self.moment(now));
        }
        self.account_for(used, now);
        let is_failure = self.status >= 500 || (self.reason.is_some() && self.status < 400);
        self.core.record(|| self.line(duration), is_failure);
    }
}

impl Finish {
    /// What the log says of it.
    fn line(&self, duration: Duration) -> AccessRecord {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let since_head = |at: Option<Mono>| at.map(|at| micros(at.since(self.began)));
        let usage = self.usage.unwrap_or_default();
        AccessRecord {
            id: self.id,
            at_unix_ms: self.began_wall.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
            caller: self.account.caller.map(|caller| (caller.key_id, caller.project_id)),
            method: self.method,
            route: self.route,
            status: self.status,
            reason: self.reason,
            metric_row: self.metric_row,
            slot: self.slot.map(|slot| slot.0),
            is_streamed: self.is_streamed,
            attempt_count: self.attempt_count,
            body_us: since_head(self.received),
            route_us: since_head(self.routed),
            queue_us: Some(micros(self.waited)).filter(|micros| *micros > 0),
            connect_us: self.connect_time.map(micros),
            first_byte_us: since_head(self.first_byte),
            first_token_us: since_head(self.first_token),
            duration_us: micros(duration),
            overhead_us: self.overhead_us,
            prompt_tokens: usage.prompt,
            cached_tokens: usage.cached,
            completion_tokens: usage.completion,
            audio_ms: usage.audio_ms,
            sent_bytes: self.sent_bytes,
        }
    }
}
