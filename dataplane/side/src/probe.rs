//! May an engine get requests? One task an endpoint asks it again and again and says so when the answer changes.
//!
//! Started by `run`; writes the load board's ready cells and the gateway's readiness. `judge` decides, `client` asks,
//! `models` reads the engine's list.
//!
//! An endpoint is ready when its health path answers 2xx and, at every turn to ready, its `/v1/models` lists what
//! it is configured to serve: an engine that is up and still loading gets nothing. Where an engine has no such
//! list, keeps it from us or answers with something else, that is said once and its health alone counts.

pub(crate) mod client;
mod door;
mod judge;
mod models;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llmgw_config::EndpointConfig;
use llmgw_engines::kind::engine;
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::board::Board;
use llmgw_router::readiness::Readiness;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::EngineAddr;
use tokio::sync::{Notify, Semaphore, watch};

use self::client::{Answer, Buffers, Client, Fault};
pub(crate) use self::judge::Verdict;
use self::judge::{Cause, Change, Judge};
use self::models::Listing;
use crate::pace::Pace;
use crate::table::Addrs;

/// Probes that may be under way at once, over all endpoints.
pub(crate) const PROBES_MAX: usize = 128;
/// What of a health answer is read; more ends the connection, not the verdict.
const HEALTH_BYTES_MAX: usize = 64 << 10;
/// What of a list of models is read.
const MODELS_BYTES_MAX: usize = 1 << 20;
const MODELS_PATH: &str = "/v1/models";

/// Who is ready, counted once: the only writer of ready cells and of [`Readiness`]' numbers.
pub(crate) struct Census {
    board: Arc<Board>,
    readiness: Arc<Readiness>,
    counts: Mutex<Counts>,
    /// Called whenever an endpoint became ready or ceased to be.
    changed: Arc<Notify>,
    first_round: watch::Sender<bool>,
}

#[derive(Default)]
struct Counts {
    /// To be judged before the start is over.
    first: u32,
    known: u32,
    ready: u32,
    judged: u32,
}

impl Census {
    /// Nobody is there yet; the first round ends when `first` endpoints were judged.
    pub(crate) fn new(board: Arc<Board>, readiness: Arc<Readiness>, first: u32) -> Self {
        readiness.set_endpoints(0, 0);
        readiness.set_starting(first > 0);
        let counts = Mutex::new(Counts { first, ..Counts::default() });
        Self { board, readiness, counts, changed: Arc::default(), first_round: watch::Sender::new(first == 0) }
    }

    /// Becomes true when every endpoint was judged once.
    pub(crate) fn first_round(&self) -> watch::Receiver<bool> {
        self.first_round.subscribe()
    }

    fn set(&self, slot: BoardSlot, is_ready: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.board.is_ready(slot) != is_ready {
            // Whoever is there when the gateway starts may have served for long; who comes later begins slowly.
            if is_ready && counts.judged >= counts.first {
                self.board.endpoint(slot).set_ready_since(Mono::now());
            }
            self.board.set_ready(slot, is_ready);
            counts.ready = if is_ready { counts.ready + 1 } else { counts.ready.saturating_sub(1) };
            // Room for its requests is made before anybody hears that it is ready, or as near to that as it goes.
            self.changed.notify_one();
            self.readiness.set_endpoints(counts.ready, counts.known);
        }
    }

    /// Calls whenever an endpoint became ready or ceased to be.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Where it counts.
    pub(crate) fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    /// One endpoint more.
    pub(crate) fn enlist(&self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.known += 1;
        self.readiness.set_endpoints(counts.ready, counts.known);
    }

    /// One endpoint less. Its task must have been stopped.
    pub(crate) fn strike(&self, slot: BoardSlot) {
        self.set(slot, false);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.known = counts.known.saturating_sub(1);
        self.readiness.set_endpoints(counts.ready, counts.known);
    }

    fn judged_first(&self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.judged += 1;
        if counts.judged >= counts.first {
            self.end_first_round();
        }
    }

    /// Ends the first round also where endpoints have not answered yet.
    pub(crate) fn end_first_round(&self) {
        self.readiness.set_starting(false);
        self.first_round.send_replace(true);
    }
}

/// What a probe needs beside its endpoint.
#[derive(Clone)]
pub(crate) struct Shared {
    pub census: Arc<Census>,
    pub addrs: watch::Receiver<Addrs>,
    pub permits: Arc<Semaphore>,
    /// For answers.
    pub buffers: Buffers,
    pub pace: Pace,
    /// Between two probes of a ready endpoint.
    pub interval: Duration,
    /// For connecting.
    pub connect_time: Duration,
}

/// One endpoint's loop.
pub(crate) struct Prober {
    endpoint: EndpointConfig,
    slot: BoardSlot,
    shared: Shared,
    client: Client,
    judge: Judge,
    chance: Chance,
    is_list_doubt_told: bool,
}

impl Prober {
    pub(crate) fn new(endpoint: EndpointConfig, slot: BoardSlot, shared: Shared) -> Self {
        let client = Client::new(&endpoint, shared.connect_time, shared.buffers.clone());
        let chance = Chance::from_system();
        Self { endpoint, slot, shared, client, judge: Judge::default(), chance, is_list_doubt_told: false }
    }

    /// Asks until the runtime ends.
    pub(crate) async fn run(mut self) {
        // A name that is being looked up for the first time is not a name that does not resolve.
        let url = self.endpoint.url.clone();
        let _ = self.shared.addrs.wait_for(|addrs| addrs.was_tried(&url)).await;
        self.turn().await;
        self.shared.census.judged_first();
        loop {
            self.wait().await;
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let verdict = self.ask().await;
        let change = self.judge.hear(verdict);
        self.shared.census.set(self.slot, self.judge.is_ready());
        let replica = self.endpoint.name.as_str();
        match change {
            Some(Change::Ready) => tracing::info!(replica, url = %self.endpoint.url, "endpoint ready"),
            Some(Change::NotReady(reason)) => {
                tracing::warn!(replica, url = %self.endpoint.url, reason, "endpoint not ready");
            }
            None => {}
        }
    }

    /// Until the next turn is due, or the endpoint's address is another.
    async fn wait(&mut self) {
        let next = self.shared.pace.next(self.judge.pause(self.shared.interval), &mut self.chance);
        let url = &self.endpoint.url;
        let known = self.shared.addrs.borrow().of(url);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            Ok(_) = self.shared.addrs.wait_for(|addrs| addrs.of(url) != known) => {}
        }
    }

    async fn ask(&mut self) -> Verdict {
        let Ok(_permit) = self.shared.permits.clone().acquire_owned().await else {
            return Verdict::no(Cause::Silent, "");
        };
        let addr = self.shared.addrs.borrow().of(&self.endpoint.url);
        let Some(addr) = addr else {
            return Verdict::no(Cause::Unresolved, format!("host name {:?} does not resolve", self.endpoint.url.host));
        };
        let path = match &self.endpoint.health_path {
            Some(path) => path.clone(),
            None => engine(self.endpoint.engine).health_path.to_owned(),
        };
        let status = match self.client.get(addr.clone(), &path, HEALTH_BYTES_MAX).await {
            Ok(Answer { status, .. }) | Err(Fault::TooLarge(status)) => status,
            Err(fault) => return fault.into(),
        };
        match status {
            200..=299 if self.judge.is_ready() => Verdict::Ready,
            200..=299 => self.ask_models(addr).await,
            _ => self.refused(&path, status),
        }
    }

    /// A health answer that is no success.
    fn refused(&self, path: &str, status: u16) -> Verdict {
        match status {
            401 | 403 => Verdict::no(Cause::KeyRefused, format!("{path} answered {status}: {}", self.key_hint())),
            400..=499 => {
                Verdict::no(Cause::WrongPath, format!("{path} answered {status}; set health_path if it is another"))
            }
            _ => Verdict::no(Cause::Unhealthy, format!("{path} answered {status}")),
        }
    }

    fn key_hint(&self) -> String {
        match &self.endpoint.api_key_source {
            Some(source) => format!("the engine refuses the key from {source}"),
            None => "the engine wants a key; name it in api_key_env".to_owned(),
        }
    }

    async fn ask_models(&mut self, addr: EngineAddr) -> Verdict {
        let answer = match self.client.get(addr, MODELS_PATH, MODELS_BYTES_MAX).await {
            Ok(answer) => answer,
            Err(Fault::TooLarge(_)) => {
                return self.doubt(format!("{MODELS_PATH} is longer than {MODELS_BYTES_MAX} bytes"));
            }
            Err(fault) => return fault.into(),
        };
        match answer.status {
            200..=299 => {}
            401 | 403 => return self.doubt(format!("{MODELS_PATH} answered {}: {}", answer.status, self.key_hint())),
            400..=499 => return self.doubt(format!("{MODELS_PATH} answered {}", answer.status)),
            status => return Verdict::no(Cause::Unhealthy, format!("{MODELS_PATH} answered {status}")),
        }
        match models::compare(self.endpoint.engine, &self.endpoint.models, &answer.body) {
            Listing::Listed => Verdict::Ready,
            Listing::Absent(reason) => Verdict::no(Cause::ModelAbsent, reason),
            Listing::Doubtful(reason) => self.doubt(reason),
        }
    }

    /// Judges by health alone, and says once why.
    fn doubt(&mut self, reason: String) -> Verdict {
        if !std::mem::replace(&mut self.is_list_doubt_told, true) {
            let replica = self.endpoint.name.as_str();
            tracing::warn!(replica, url = %self.endpoint.url, reason, "endpoint judged by its health alone");
        }
        Verdict::Ready
    }
}

#[cfg(test)]
mod tests {
    use llmgw_router::readiness::Standing;

    use super::*;

    #[test]
    fn the_census_counts_each_endpoint_once_whatever_it_is_told_again() {
        let (board, readiness) = (Arc::new(Board::new(1, 4)), Arc::new(Readiness::default()));
        let census = Census::new(board.clone(), readiness.clone(), 2);
        (0..2).for_each(|_| census.enlist());
        let first_round = census.first_round();
        let (a, b) = (BoardSlot(0), BoardSlot(3));
        for (slot, is_ready, expected) in
            [(a, false, 0), (a, true, 1), (a, true, 1), (b, true, 2), (a, false, 1), (a, false, 1), (b, true, 1)]
        {
            census.set(slot, is_ready);
            assert_eq!((readiness.endpoints(), board.is_ready(slot)), ((expected, 2), is_ready));
        }
        census.strike(b);
        assert_eq!((readiness.endpoints(), board.is_ready(b)), ((0, 1), false), "struck with what it counted");
        census.judged_first();
        assert!(!*first_round.borrow());
        let is_wanted = || readiness.judge(&Standing { known: 2, ready: 1, draining: 0, out: 0 }).0;
        assert!(!is_wanted(), "all traffic would go to the first");
        census.judged_first();
        assert!(is_wanted());
        assert!(*first_round.borrow());
    }

    #[test]
    fn an_endpoint_begins_slowly_when_it_becomes_ready_after_the_start() {
        let board = Arc::new(Board::new(1, 2));
        let census = Census::new(board.clone(), Arc::default(), 2);
        let (a, b) = (BoardSlot(0), BoardSlot(1));
        let since = |slot| board.endpoint(slot).ready_since();
        census.set(a, true);
        census.judged_first();
        census.judged_first();
        assert_eq!((since(a), since(b)), (None, None), "it was there at the start");
        census.set(b, true);
        assert!(since(b).is_some(), "it came later");
        let first = since(b);
        census.set(b, true);
        assert_eq!(since(b), first, "it has been ready all the time");
        census.set(a, false);
        census.set(a, true);
        assert!(since(a) >= first, "it came back");
    }

    #[test]
    fn endpoints_that_do_not_answer_do_not_hold_up_the_start() {
        let census = Census::new(Arc::new(Board::new(1, 1)), Arc::default(), 1);
        census.end_first_round();
        assert!(*census.first_round().borrow());
        assert!(
            *Census::new(Arc::new(Board::new(1, 1)), Arc::default(), 0).first_round().borrow(),
            "nobody to wait for"
        );
    }
}
