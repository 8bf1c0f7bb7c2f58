//! What the connections share: the model, the recording, the counts, and the task that drives the model in real time.
//!
//! Everything runs on one thread, so the lock is free in practice; it is a lock so that a test may look in from its own
//! thread. It is never held across an await.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llmgw_kit::chance::Chance;
use serde::Serialize;
use tokio::sync::{Notify, watch};

use crate::batch::{Batch, Event, Job, JobId};
use crate::config::EngineConfig;
use crate::faults::Faults;
use crate::record::{Outcome, Received, Recording};

/// The number of a request to a control route.
pub(crate) const UNRECORDED: u64 = u64::MAX;

/// How far a job has come; read by its connection, written by the driver.
#[derive(Debug)]
pub(crate) struct Progress {
    produced: AtomicU32,
    /// [`NOT_LOOKED_UP`] until it is.
    cached: AtomicU32,
    /// [`OPEN`], [`FINISHED`] or [`REFUSED`].
    end: AtomicU32,
}

const OPEN: u32 = 0;
const FINISHED: u32 = 1;
const REFUSED: u32 = 2;
const NOT_LOOKED_UP: u32 = u32::MAX;

impl Progress {
    fn new() -> Progress {
        Progress { produced: AtomicU32::new(0), cached: AtomicU32::new(NOT_LOOKED_UP), end: AtomicU32::new(OPEN) }
    }

    pub(crate) fn produced(&self) -> u32 {
        self.produced.load(Ordering::Relaxed)
    }

    pub(crate) fn cached_tokens(&self) -> u32 {
        match self.cached.load(Ordering::Relaxed) {
            NOT_LOOKED_UP => 0,
            cached => cached,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed) != OPEN
    }
}

/// What was given to clients under one of the engine's names: counted when it is handed to the system, so that of an
/// answer that breaks off as much counts as went out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Generated answers that began.
    pub answers: u64,
    /// Their prompts, what was cached included.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

struct Watched {
    progress: Arc<Progress>,
    wake: Arc<Notify>,
    /// Whoever waits writes the first token alone and then so many at once: it sleeps on until they are there.
    every: u32,
    wake_at: u32,
}

pub(crate) struct State {
    pub(crate) cfg: EngineConfig,
    pub(crate) batch: Batch,
    watched: HashMap<JobId, Watched>,
    pub(crate) recording: Recording,
    pub(crate) dice: Chance,
    pub(crate) open_connections: u64,
    pub(crate) accepted_connections: u64,
    /// Requests between their head and the end of their reply.
    pub(crate) open_requests: u64,
    pub(crate) received_requests: u64,
    pub(crate) client_closed_requests: u64,
    /// Requests that were taken and get no answer, by a fault.
    pub(crate) blackholed_requests: u64,
    /// By the name that was asked for, of those that there are.
    pub(crate) served: BTreeMap<String, Served>,
    /// Streams that pace themselves, outside the batch.
    pub(crate) self_paced: u64,
    pub(crate) self_paced_tokens: u64,
    /// Responses kept for later requests that name them; the oldest go.
    pub(crate) responses: VecDeque<(String, serde_json::Value)>,
    pub(crate) finished_stop: u64,
    pub(crate) finished_length: u64,
    /// From when `unready_us` and `models_empty_us` count.
    pub(crate) configured_at_ns: u64,
}

pub(crate) struct Shared {
    start: Instant,
    started_unix_ns: u64,
    state: Mutex<State>,
    driver: Notify,
    /// Counts calls of `POST /sim/release`.
    release: watch::Sender<u64>,
    pub(crate) stop: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(cfg: EngineConfig) -> Shared {
        let now = std::time::SystemTime::now();
        let state = State {
            batch: Batch::new(cfg.batch),
            watched: HashMap::new(),
            recording: Recording::default(),
            dice: Chance::seeded(cfg.seed),
            open_connections: 0,
            accepted_connections: 0,
            open_requests: 0,
            received_requests: 0,
            client_closed_requests: 0,
            blackholed_requests: 0,
            served: BTreeMap::new(),
            self_paced: 0,
            self_paced_tokens: 0,
            responses: VecDeque::new(),
            finished_stop: 0,
            finished_length: 0,
            configured_at_ns: 0,
            cfg,
        };
        Shared {
            start: Instant::now(),
            started_unix_ns: now.duration_since(std::time::UNIX_EPOCH).map_or(0, nanos),
            state: Mutex::new(state),
            driver: Notify::new(),
            release: watch::Sender::new(0),
            stop: watch::Sender::new(false),
        }
    }

    /// Nanoseconds since the engine's start.
    pub(crate) fn now_ns(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Nanoseconds since 1970.
    pub(crate) fn unix_ns(&self) -> u64 {
        self.started_unix_ns.saturating_add(self.now_ns())
    }

    /// Seconds since 1970.
    pub(crate) fn unix_s(&self) -> u64 {
        self.unix_ns() / 1_000_000_000
    }

    /// When the engine started, in nanoseconds since 1970: what tells two engines apart.
    pub(crate) fn started_unix_ns(&self) -> u64 {
        self.started_unix_ns
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next `POST /sim/release`.
    pub(crate) async fn released(&self) {
        let mut release = self.release.subscribe();
        // The sender lives as long as `self`.
        let _ = release.changed().await;
    }

    /// Ends every stall and blackhole that is under way.
    pub(crate) fn release(&self) {
        self.release.send_modify(|count| *count += 1);
    }

    /// Puts a job in the model; dropping the lease takes it out again. `wake` is told of the first token, then of each
    /// `every`th, and of the end.
    pub(crate) fn submit(self: &Arc<Shared>, job: Job, wake: Arc<Notify>, every: u32) -> Lease {
        let progress = Arc::new(Progress::new());
        let now = self.now_ns();
        let id = {
            let mut state = self.lock();
            let id = state.batch.submit(now, job);
            state.watched.insert(id, Watched { progress: progress.clone(), wake, every: every.max(1), wake_at: 1 });
            id
        };
        self.driver.notify_one();
        Lease { shared: self.clone(), id, progress }
    }

    /// Drives the model until the engine stops.
    pub(crate) async fn drive(&self) {
        loop {
            let next = {
                let now = self.now_ns();
                let mut state = self.lock();
                let events = state.batch.advance(now);
                for event in events {
                    state.apply(event);
                }
                state.batch.next_event_at()
            };
            match next.map(|at| at.saturating_sub(self.now_ns())) {
                None => self.driver.notified().await,
                Some(0) => tokio::task::yield_now().await,
                Some(wait) => tokio::select! {
                    () = tokio::time::sleep(Duration::from_nanos(wait)) => {}
                    () = self.driver.notified() => {}
                },
            }
        }
    }

    /// Replaces the faults of all requests.
    pub(crate) fn set_faults(&self, faults: Faults) {
        let now = self.now_ns();
        let mut state = self.lock();
        state.configured_at_ns = now;
        state.cfg.faults = faults;
    }

    /// Applies `change` to the recorded request, if it is still kept.
    pub(crate) fn with_record(&self, seq: u64, change: impl FnOnce(&mut Received)) {
        if let Some(received) = self.lock().recording.find(seq) {
            change(received);
        }
    }

    /// Records how a request ended; `again` when an end was recorded that did not come about.
    pub(crate) fn record_end(&self, seq: u64, outcome: Outcome, again: bool) {
        if seq == UNRECORDED {
            return;
        }
        let now = self.now_ns();
        let mut state = self.lock();
        state.open_requests -= u64::from(!again);
        if outcome == Outcome::ClientClosed {
            state.client_closed_requests += 1;
        }
        if let Some(received) = state.recording.find(seq) {
            received.outcome = outcome;
            received.ended_at_ns = Some(now);
            if outcome == Outcome::ClientClosed {
                received.client_closed_at_ns = Some(now);
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// An answer to that prompt begins.
    pub(crate) fn begin(&mut self, model: &str, prompt_tokens: usize) {
        let served = self.served.entry(model.to_owned()).or_default();
        served.answers += 1;
        served.prompt_tokens += prompt_tokens as u64;
    }

    /// So many tokens of an answer that began are given out.
    pub(crate) fn give(&mut self, model: &str, tokens: u64) {
        if let Some(served) = self.served.get_mut(model) {
            served.completion_tokens += tokens;
        }
    }

    fn apply(&mut self, event: Event) {
        let id = match event {
            Event::Admitted { id, .. }
            | Event::Token { id, .. }
            | Event::Finished { id, .. }
            | Event::Preempted { id, .. }
            | Event::Refused { id, .. } => id,
        };
        let Some(Watched { progress, wake, every, wake_at }) = self.watched.get_mut(&id) else { return };
        match event {
            // After a preemption, be it before the first token, the request finds its own blocks: that is neither
            // counted nor what the client is told.
            Event::Admitted { cached_tokens, .. } if progress.cached.load(Ordering::Relaxed) == NOT_LOOKED_UP => {
                progress.cached.store(cached_tokens, Ordering::Relaxed);
                return;
            }
            Event::Admitted { .. } | Event::Preempted { .. } => return,
            Event::Token { produced, .. } => {
                progress.produced.store(produced, Ordering::Relaxed);
                if produced < *wake_at {
                    return;
                }
                *wake_at = wake_at.saturating_add(*every);
            }
            Event::Finished { .. } => progress.end.store(FINISHED, Ordering::Relaxed),
            Event::Refused { .. } => progress.end.store(REFUSED, Ordering::Relaxed),
        }
        wake.notify_one();
    }
}

/// A job in the model.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    id: JobId,
    pub(crate) progress: Arc<Progress>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = self.shared.now_ns();
        let mut state = self.shared.lock();
        state.watched.remove(&self.id);
        if state.batch.abort(now, self.id) {
            drop(state);
            self.shared.driver.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::JobId;

    #[tokio::test]
    async fn what_a_request_found_is_told_as_it_was_counted_though_it_is_put_back_before_its_first_token() {
        let shared = Arc::new(Shared::new(EngineConfig::default()));
        let job = Job { prompt: vec![1; 100], output_tokens: 1, priority: 0, salt: 0, answer_seed: 0 };
        let lease = shared.submit(job, Arc::new(Notify::new()), 1);
        let id = lease.id;
        let tell = |event| shared.lock().apply(event);
        assert_eq!(lease.progress.cached_tokens(), 0);
        for (cached_tokens, expected) in [(16, 16), (64, 16)] {
            tell(Event::Admitted { id, at: 0, cached_tokens });
            assert_eq!(lease.progress.cached_tokens(), expected);
            tell(Event::Preempted { id, at: 0 });
        }
    }

    #[tokio::test]
    async fn whoever_writes_many_tokens_at_once_is_woken_for_the_first_for_many_and_for_the_end() {
        let shared = Arc::new(Shared::new(EngineConfig::default()));
        let wake = Arc::new(Notify::new());
        let job = Job { prompt: vec![1], output_tokens: 20, priority: 0, salt: 0, answer_seed: 0 };
        let lease = shared.submit(job, wake.clone(), 8);
        let is_woken = |event| {
            shared.lock().apply(event);
            is_told(&wake)
        };
        let id: JobId = lease.id;
        let woken = (1..=20).filter(|&produced| is_woken(Event::Token { id, at: 0, produced })).collect::<Vec<u32>>();
        assert_eq!(woken, [1, 9, 17]);
        assert!(is_woken(Event::Finished { id, at: 0 }));
        assert!(!is_woken(Event::Preempted { id, at: 0 }));
    }

    /// Whether a call would go on at once.
    fn is_told(wake: &Notify) -> bool {
        use std::future::Future as _;
        let mut notified = std::pin::pin!(wake.notified());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        notified.as_mut().poll(&mut cx).is_ready()
    }
}
