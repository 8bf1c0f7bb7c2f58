//! The end of a request, exactly once, however it comes: by return, by error, or because its task was dropped.
//!
//! Made with the head, in a box, since it is handed on a dozen times; goes with the request, then with the body of its
//! answer, and counts and records when that is dropped. The words and cells are those of the gateway's own `finish`.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderValue;
use llmgw_gateway::account::{Account, Used};
use llmgw_gateway::error::Reason;
use llmgw_gateway::identity::scope;
use llmgw_gateway::quota::Rates;
use llmgw_gateway::route::{Route, UsageReport};
use llmgw_kit::clock::{Mono, Wall};
use llmgw_obs::access::time_per_token;
use llmgw_obs::rows::RowIdx;
use llmgw_openai::stored::IdTap;
use llmgw_openai::style::ErrorStyle;
use llmgw_openai::usage::Usage;
use llmgw_router::access::AccessRecord;
use llmgw_router::limiter::{Now, Truth};
use llmgw_router::metrics::status_row;
use llmgw_router::prefix::Decision;
use llmgw_router::session::key_hash;
use llmgw_types::snapshot::Units;
use llmgw_types::tenants::Caller;
use llmgw_types::{BoardSlot, RequestId, UsageRecord};

use crate::limits::Held;
use crate::prompt::{self, Placed};
use crate::state::{Gateway, request_id};
use crate::turn::{Phase, Turn};

/// A client that left before an answer began, in metrics and logs.
const CLIENT_GONE: u16 = 499;

/// What is known of a request so far.
pub(crate) struct Finish {
    gateway: Arc<Gateway>,
    turn: Arc<Turn>,
    id: RequestId,
    began: Mono,
    began_wall: Wall,
    method: &'static str,
    pub(crate) route: &'static str,
    pub(crate) errors: ErrorStyle,
    pub(crate) explanation: Option<String>,
    pub(crate) received: Option<Mono>,
    pub(crate) connect_time: Option<Duration>,
    pub(crate) first_byte: Option<Mono>,
    pub(crate) sent_bytes: u64,
    pub(crate) is_streamed: bool,
    status: u16,
    reason: Option<&'static str>,
    metric_row: u32,
    slot: Option<BoardSlot>,
    usage_report: UsageReport,
    is_inference: bool,
    attempt_count: u32,
    routed: Option<Mono>,
    first_token: Option<Mono>,
    last_token: Option<Mono>,
    overhead_us: Option<u64>,
    usage: Option<(Usage, u32)>,
    has_broken: bool,
    /// Looks for the id of a response that the engine may hold, and which engine that is.
    watch: Option<(IdTap, BoardSlot)>,
    /// Its prompt at the newest attempt.
    prompt: Option<Placed>,
    /// What it holds of its limits.
    held: Option<Held>,
    /// What is left of them.
    pub(crate) rates: Option<Rates>,
    /// Whether an engine may have heard of it: by any attempt, and by those before the newest.
    has_run: (bool, bool),
    /// Whose it is, and what it used.
    pub(crate) account: Account,
}

impl Finish {
    /// A request whose head has arrived.
    pub(crate) fn begin(gateway: &Arc<Gateway>, turn: &Arc<Turn>, method: Option<&Method>) -> Box<Self> {
        gateway.count(|cells| cells.in_flight.increment());
        let method = match method {
            Some(&Method::POST) => "POST",
            Some(&Method::GET) => "GET",
            Some(&Method::HEAD) => "HEAD",
            _ => "other",
        };
        let began_wall = Wall::now();
        Box::new(Self {
            gateway: gateway.clone(),
            turn: turn.clone(),
            id: request_id(began_wall),
            began: Mono::now(),
            began_wall,
            method,
            route: "other",
            errors: ErrorStyle::OpenAi,
            explanation: None,
            received: None,
            connect_time: None,
            first_byte: None,
            sent_bytes: 0,
            is_streamed: false,
            status: CLIENT_GONE,
            reason: None,
            metric_row: RowIdx::OTHER.0,
            slot: None,
            usage_report: UsageReport::Never,
            is_inference: false,
            attempt_count: 0,
            routed: None,
            first_token: None,
            last_token: None,
            overhead_us: None,
            usage: None,
            has_broken: false,
            watch: None,
            prompt: None,
            held: None,
            rates: None,
            has_run: (false, false),
            account: Account::default(),
        })
    }

    /// The request's id as a header says it.
    pub(crate) fn id(&self) -> HeaderValue {
        HeaderValue::from_str(self.id.text().as_str()).unwrap_or_else(|_| HeaderValue::from_static("req-"))
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

    /// What it holds of its limits until it ends, and what its answer shows of them; nothing where nothing limits it.
    pub(crate) fn holds(&mut self, reserved: Option<(Held, Option<Rates>)>) {
        let Some((held, rates)) = reserved else { return };
        // It counts in the period in which it was let in, and so does its record.
        let second = u64::from(held.second());
        if self.began_wall.unix_seconds() != second {
            self.account.admitted_at = Some(Wall(second.saturating_mul(1000)));
        }
        (self.held, self.rates) = (Some(held), rates);
    }

    /// What its answer shows of its limits, which refuse it.
    pub(crate) fn shows(&mut self, rates: Option<Rates>) {
        self.rates = rates;
    }

    /// Whose key it came with, whether or not that works.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.account.caller
    }

    pub(crate) fn route(&mut self, route: &Route<'_>) {
        self.route = route.word();
        if let Route::Inference(route) = route {
            self.is_inference = true;
            self.usage_report = route.usage;
        }
    }

    /// The pool and endpoint of an attempt, and what its use costs.
    pub(crate) fn attempt(&mut self, metric_row: u32, slot: BoardSlot, units: Units) {
        let now = Mono::now();
        self.routed.get_or_insert(now);
        self.account.attempt(units, now);
        self.metric_row = metric_row;
        self.slot = Some(slot);
        self.attempt_count += 1;
        // From here on it counts, whatever comes of it: nobody says when its client left.
        self.has_run = (true, self.has_run.0);
    }

    /// The newest attempt had no connection.
    pub(crate) fn was_not_heard(&mut self) {
        self.has_run.0 = self.has_run.1;
    }

    /// Where that attempt's prompt went.
    pub(crate) fn placed(&mut self, prompt: Placed) {
        self.prefilled();
        self.prompt = Some(prompt);
    }

    /// What became of its prompt, once it was placed.
    pub(crate) fn decision(&self) -> Option<Decision> {
        let reuse = self.prompt.as_ref()?.reuse;
        Some(reuse.map_or(Decision::NoTree, |reuse| reuse.decision))
    }

    /// Its engine has prefilled it.
    fn prefilled(&mut self) {
        if let Some(prefilling) = self.prompt.as_mut().and_then(|prompt| prompt.prefilling.take()) {
            self.gateway.decide(|_| drop(prefilling));
        }
    }

    /// The status that goes to the client.
    pub(crate) fn answer(&mut self, status: u16) {
        self.status = status;
    }

    /// What went wrong, in the errors' words.
    pub(crate) fn fail(&mut self, code: &'static str) {
        self.reason = Some(code);
    }

    /// A stream that an engine cut.
    pub(crate) fn broken_stream(&mut self) {
        self.has_broken = true;
    }

    /// One or several tokens have arrived; the first time and the last are remembered.
    pub(crate) fn tokens_now(&mut self) {
        let now = Mono::now();
        self.prefilled();
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
    }

    /// Time this gateway added before the answer began. Units: microseconds.
    pub(crate) fn overhead(&mut self, micros: u64) {
        self.overhead_us = Some(micros);
    }

    /// The answer is one that the engine at `slot` may hold for a later request.
    pub(crate) fn watch(&mut self, tap: IdTap, slot: BoardSlot) {
        self.watch = Some((tap, slot));
    }

    /// A piece of the answer is about to be sent.
    pub(crate) fn passing(&mut self, piece: &[u8]) {
        if let Some((tap, slot)) = &mut self.watch
            && let Some(id) = tap.feed(piece)
        {
            let name = key_hash(id.as_bytes()).wrapping_add(scope(self.account.caller.as_ref()));
            self.gateway.place_response(name, Some(*slot));
            self.watch = None;
        }
    }

    /// What the engine reported, and how many of its values made no sense; more than was asked for makes none either.
    pub(crate) fn usage(&mut self, mut usage: Usage, absurd_count: u32) {
        if self.usage_report == UsageReport::Never {
            return;
        }
        let is_too_much = self.account.asked.is_some_and(|asked| asked.is_exceeded(&usage));
        if is_too_much {
            usage.completion = None;
        }
        self.usage = Some((usage, absurd_count + u32::from(is_too_much)));
    }

    /// What it used in truth goes to its limits.
    fn settle(&mut self, used: &Used, now: Mono) {
        let Some(held) = self.held.take() else { return };
        let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let tokens = count(used.tokens.prompt.saturating_add(used.tokens.completion));
        held.settle(Truth { ran: self.has_run.0, tokens, units: count(used.units_micros) }, self.moment(now));
    }

    /// What it used, where that goes on the record.
    fn usage_record(&self, used: Used, now: Mono) -> Option<UsageRecord> {
        let asked = self.account.asked.filter(|_| self.gateway.keeps_usage())?;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let duration_ms = millis(now.since(self.began));
        Some(UsageRecord {
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
            queue_ms: None,
        })
    }

    /// Time per token after the first.
    fn per_token(&self) -> Option<Duration> {
        let (first, last) = self.first_token.zip(self.last_token).filter(|(first, last)| first < last)?;
        let tokens = self.usage.as_ref()?.0.completion?;
        time_per_token(first.since(self.began), last.since(self.began), tokens)
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        let now = Mono::now();
        if self.turn.is_overdue() {
            self.reason = Some(Reason::TotalTimeout.code());
        }
        self.turn.enter(Phase::Answered);
        self.prefilled();
        if let (Some(slot), Some(Placed { sent: Some(sent), reuse, .. }), Some((usage, _))) =
            (self.slot, &self.prompt, &self.usage)
        {
            prompt::answered(&self.gateway, slot, *sent, reuse.as_ref(), usage);
        }
        let duration = now.since(self.began);
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let since_head = |at: Option<Mono>| at.map(|at| micros(at.since(self.began)));
        let usage = self.usage.map(|(usage, _)| usage).unwrap_or_default();
        let record = AccessRecord {
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
            queue_us: None,
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
        };
        let used = self.account.used(&usage, self.sent_bytes, now);
        self.settle(&used, now);
        let kept = self.usage_record(used, now);
        let is_failure = self.status >= 500 || (self.reason.is_some() && self.status < 400);
        self.gateway.count(|cells| {
            cells.in_flight.decrement();
            let pool = cells.pools.at(RowIdx(self.metric_row));
            if let Some(count) = pool.requests.get(status_row(self.status)) {
                count.increment();
            }
            if self.is_inference {
                pool.duration.observe(duration);
                if let Some(first) = self.first_token {
                    pool.first_token.observe(first.since(self.began));
                }
                if let Some(time) = self.per_token() {
                    pool.per_token.observe(time);
                }
            }
            if let Some(micros) = self.overhead_us {
                cells.overhead.observe_micros(micros);
            }
            if let Some((usage, absurd_count)) = &self.usage {
                pool.prompt_tokens.add(usage.prompt.unwrap_or(0));
                pool.completion_tokens.add(usage.completion.unwrap_or(0));
                pool.audio_ms.add(usage.audio_ms.unwrap_or(0));
                if *absurd_count > 0 {
                    cells.usage_absent[1].increment();
                } else if usage.is_empty() && self.usage_report == UsageReport::Expected {
                    cells.usage_absent[0].increment();
                }
            }
            if self.has_broken {
                cells.broken_streams.increment();
            }
            if let Some(kept) = kept {
                self.gateway.put_usage(kept, cells);
            }
            self.gateway.record(record, is_failure, cells);
        });
    }
}
