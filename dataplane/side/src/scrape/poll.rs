//! One endpoint's loop: ask for its page, at the scrape interval give or take a tenth, over one kept connection, and
//! write what it says onto the load board.

use std::sync::Arc;
use std::time::Duration;

use llmgw_config::{EndpointConfig, MetricsPath};
use llmgw_engines::contract;
use llmgw_engines::kind::engine;
use llmgw_engines::names::Names;
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::board::Board;
use llmgw_router::endpoint::{BreakerState, MetricsState};
use llmgw_router::message::CoreMessage;
use llmgw_router::prefix::StampTable;
use llmgw_types::BoardSlot;
use tokio::sync::{Semaphore, watch};

use super::learn::Learner;
use super::told::Inquiry;
use super::watch::{Outcome, Pulse, Saying, Sign, Watch};
use crate::lanes::Lanes;
use crate::pace::Pace;
use crate::probe::Verdict;
use crate::probe::client::{Answer, Body, Buffers, Client, Fault};
use crate::table::Addrs;

/// Scrapes that may be under way at once, over all endpoints.
pub(crate) const SCRAPES_MAX: usize = 128;
/// A longer page is not read.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// A longer answer about the batch is not read.
const TOLD_BYTES_MAX: usize = 1 << 20;

/// What a scraper needs beside its endpoint.
#[derive(Clone)]
pub(crate) struct Shared {
    pub board: Arc<Board>,
    pub lanes: Lanes,
    pub prefixes: Arc<StampTable>,
    pub addrs: watch::Receiver<Addrs>,
    pub permits: Arc<Semaphore>,
    /// For pages.
    pub buffers: Buffers,
    pub pace: Pace,
    /// Between two scrapes of an endpoint.
    pub interval: Duration,
    /// For connecting; an answer has a limit of its own.
    pub connect_time: Duration,
}

/// One endpoint's loop. The only writer of its sample, its capacities and the state of its metrics.
pub(crate) struct Scraper {
    endpoint: EndpointConfig,
    slot: BoardSlot,
    shared: Shared,
    client: Client,
    path: String,
    names: Names,
    learner: Learner,
    inquiry: Inquiry,
    watch: Watch,
    pulse: Pulse,
    chance: Chance,
}

impl Scraper {
    /// What is configured goes onto the board at once. `None` for an endpoint whose metrics are off.
    pub(crate) fn new(endpoint: EndpointConfig, slot: BoardSlot, shared: Shared) -> Option<Self> {
        let cells = shared.board.endpoint(slot);
        cells.set_batch_capacity(endpoint.batch_capacity.unwrap_or(0));
        cells.set_capacity_limit(endpoint.batch_capacity.is_some());
        cells.set_kv_capacity_tokens(endpoint.kv_capacity_tokens.unwrap_or(0));
        let path = match &endpoint.metrics_path {
            MetricsPath::Off => {
                cells.set_metrics(MetricsState::Unread);
                return None;
            }
            MetricsPath::Path(path) => path.clone(),
            MetricsPath::Default => engine(endpoint.engine).metrics_path.to_owned(),
        };
        let mut names = Names::of(endpoint.engine);
        for (field, name) in &endpoint.metrics {
            if let Err(error) = names.replace(field, name) {
                tracing::warn!(replica = endpoint.name, %error, "metric name not used");
            }
        }
        Some(Self {
            slot,
            client: Client::new(&endpoint, shared.connect_time, shared.buffers.clone()),
            path,
            names,
            inquiry: Inquiry::of(match endpoint.batch_capacity {
                Some(_) => &[],
                None => engine(endpoint.engine).capacity,
            }),
            learner: Learner::new(endpoint.batch_capacity, endpoint.kv_capacity_tokens),
            watch: Watch::default(),
            pulse: Pulse::default(),
            chance: Chance::from_system(),
            endpoint,
            shared,
        })
    }

    /// Scrapes until the runtime ends.
    pub(crate) async fn run(mut self) {
        let url = self.endpoint.url.clone();
        let _ = self.shared.addrs.wait_for(|addrs| addrs.was_tried(&url)).await;
        self.turn().await;
        let (pace, interval) = (self.shared.pace, self.shared.interval);
        tokio::time::sleep_until(pace.first(interval, &mut self.chance)).await;
        loop {
            let next = pace.next(interval, &mut self.chance);
            self.turn().await;
            tokio::time::sleep_until(next).await;
        }
    }

    async fn turn(&mut self) {
        self.inquire().await;
        let outcome = self.scrape().await;
        if matches!(outcome, Outcome::Unanswered(_)) {
            // What answers next may be another.
            self.inquiry.again();
        }
        let is_ready = self.shared.board.is_ready(self.slot);
        self.tell_owner(outcome.sign(), is_ready);
        let replica = self.endpoint.name.as_str();
        let url = &self.endpoint.url;
        match self.watch.hear(outcome, is_ready) {
            Some(Saying::Broken(reason)) => {
                tracing::warn!(replica, %url, reason, "metric contract broken");
            }
            Some(Saying::Unanswered(reason)) => tracing::warn!(replica, %url, reason, "metrics not answered"),
            Some(Saying::Healed) => tracing::info!(replica, %url, "metric contract kept again"),
            None => {}
        }
    }

    /// Asks how many requests the engine runs at once, as long as there is something to ask.
    async fn inquire(&mut self) {
        while let Some(path) = self.inquiry.path() {
            let Ok(Answer { status, body }) = self.fetch(path, TOLD_BYTES_MAX).await else { return };
            if let Some(batch) = self.inquiry.hear(status, &body) {
                let cells = self.shared.board.endpoint(self.slot);
                cells.set_batch_capacity(self.learner.told(batch));
                cells.set_capacity_limit(true);
            } else if self.inquiry.path() == Some(path) {
                // Not now.
                return;
            }
        }
    }

    /// What the endpoint's breaker should know. An endpoint that is not ready gets no requests anyway.
    fn tell_owner(&mut self, sign: Sign, is_ready: bool) {
        let is_closed = self.shared.board.endpoint(self.slot).breaker() == BreakerState::Closed;
        if self.pulse.hear(sign) && is_ready {
            if is_closed {
                tracing::warn!(replica = self.endpoint.name, "metrics lost: the endpoint's breaker opens");
            }
            self.shared.lanes.tell_owner(self.slot, CoreMessage::MetricsLost(self.slot));
        } else if sign == Sign::Alive && !is_closed {
            self.shared.lanes.tell_owner(self.slot, CoreMessage::MetricsBack(self.slot));
        }
    }

    /// Asks once and writes the board.
    async fn scrape(&mut self) -> Outcome {
        let own_before = self.own_requests();
        let outcome = match self.page().await {
            Ok(page) => {
                let own = own_before.max(self.own_requests());
                match contract::read(&page, &self.names) {
                    Ok(stats) => {
                        self.take(&stats, own);
                        return Outcome::Kept;
                    }
                    Err(violation) => {
                        if let Some(stats) = &violation.rest {
                            self.take(stats, own);
                            return Outcome::Broken(violation);
                        }
                        Outcome::Broken(violation)
                    }
                }
            }
            Err(outcome) => outcome,
        };
        self.shared.board.endpoint(self.slot).set_metrics(MetricsState::Stale);
        outcome
    }

    fn take(&mut self, stats: &contract::EngineStats, own: u32) {
        let lesson = self.learner.take(stats, own, Mono::now());
        let cells = self.shared.board.endpoint(self.slot);
        if lesson.is_anew {
            self.shared.prefixes.ledger().forget(self.slot);
            self.inquiry.again();
        }
        cells.set_batch_capacity(lesson.batch_capacity);
        cells.set_capacity_limit(lesson.is_capacity_limit);
        let there = lesson.sample.running.saturating_add(lesson.sample.waiting);
        cells.set_foreign(there.saturating_sub(own));
        cells.set_kv_capacity_tokens(lesson.kv_capacity_tokens.unwrap_or(0));
        cells.set_sample(&lesson.sample);
        cells.set_metrics(MetricsState::Fresh);
    }

    /// Our own requests there. Those that end while the engine is asked may still be in its answer, so the greater
    /// number of before and after counts.
    fn own_requests(&self) -> u32 {
        u32::try_from(self.shared.board.in_flight(self.slot).max(0)).unwrap_or(u32::MAX)
    }

    async fn page(&mut self) -> Result<Body, Outcome> {
        let path = self.path.clone();
        match self.fetch(&path, PAGE_BYTES_MAX).await? {
            Answer { status: 200..=299, body } => Ok(body),
            Answer { status, .. } => Err(Outcome::NoPage { status, reason: self.no_page(status) }),
        }
    }

    async fn fetch(&mut self, path: &str, bytes_max: usize) -> Result<Answer, Outcome> {
        let Ok(_permit) = self.shared.permits.clone().acquire_owned().await else {
            return Err(Outcome::Unanswered(String::new()));
        };
        let Some(addr) = self.shared.addrs.borrow().of(&self.endpoint.url) else {
            return Err(Outcome::Unanswered(format!("host name {:?} does not resolve", self.endpoint.url.host)));
        };
        match self.client.get(addr, path, bytes_max).await {
            Ok(answer) => Ok(answer),
            Err(Fault::TooLarge(status)) => {
                let reason = format!("{path} is longer than {bytes_max} bytes");
                Err(Outcome::NoPage { status, reason })
            }
            Err(fault) => match fault.into() {
                Verdict::NotReady { reason, .. } => Err(Outcome::Unanswered(reason)),
                Verdict::Ready => Err(Outcome::Unanswered(String::new())),
            },
        }
    }

    /// Why there is no page, and what would help.
    fn no_page(&self, status: u16) -> String {
        let path = &self.path;
        let kind = self.endpoint.engine;
        let off = "set metrics_path: off if it publishes none";
        match (status, engine(kind).metrics_flag) {
            (401 | 403, _) => format!("{path} answered {status}: the engine wants another key"),
            (_, Some(flag)) => format!("{path} answered {status}; start {kind} with {flag}, or {off}"),
            (_, None) => format!("{path} answered {status}; set metrics_path if it is another, or {off}"),
        }
    }
}
