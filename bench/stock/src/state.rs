//! What all requests share: one set of everything, behind locks that are held for a few lines.
//!
//! The decision code keeps cells with one writer each. Here the writer is whoever holds the lock beside them, and there
//! is one core, number 0, for the whole process.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use llmgw_gateway::error::{ApiError, Reason};
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::{Mono, Wall};
use llmgw_obs::rows::RowIdx;
use llmgw_router::access::{AccessLog, AccessRecord, AccessRing};
use llmgw_router::breaker::budget::RetryBudget;
use llmgw_router::breaker::outlier::Lookout;
use llmgw_router::breaker::{Breakers, Change, Failure, FailureKind};
use llmgw_router::endpoint::BreakerState;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::ratio::Ratios;
use llmgw_router::prefix::{Decision, Seed, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::session_table::{SessionTable, Subject};
use llmgw_router::settings::Settings;
use llmgw_router::usage::UsageRing;
use llmgw_router::{Board, Choice, Decider};
use llmgw_types::snapshot::ArchivedRouteTable;
use llmgw_types::tenants::Caller;
use llmgw_types::{BoardSlot, CoreId, RequestId, UsageRecord};
use tokio::sync::Notify;

use crate::keys::{Keys, Pass};
use crate::pool::Pool;
use crate::tables::Tables;

/// The only core there is.
pub(crate) const CORE: CoreId = CoreId(0);
/// How long one request may keep the trial of a half-open endpoint to itself; then the next one may try as well.
const TRIAL_TIME: Duration = Duration::from_secs(10);
/// Endpoints remembered as refusing `stream_options`; more are asked each time.
const REFUSING_MAX: usize = 1024;

/// See the module.
pub(crate) struct Gateway {
    pub(crate) board: Arc<Board>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) pool: Pool,
    /// Where prompts are cached.
    pub(crate) prefixes: Arc<StampTable>,
    /// Where their hashes begin.
    pub(crate) seed: Seed,
    cells: Arc<CoreCells>,
    /// Held to write any cell but those of decisions, cooldowns and limits.
    counting: Mutex<()>,
    deciding: Mutex<Deciding>,
    judging: Mutex<Judging>,
    responses: Mutex<SessionTable>,
    tables: RwLock<Option<Arc<Tables>>>,
    /// Endpoints that answered 400 to an option we added; asked without it from then on.
    refusing_usage: RwLock<Vec<BoardSlot>>,
    access: Arc<AccessRing>,
    access_log: AccessLog,
    /// Where callers need a key.
    pub(crate) keys: Option<Arc<Keys>>,
    /// Where records of what requests used go; none: nobody keeps them.
    usage: Option<Arc<UsageRing>>,
    /// Requests are passed on and nothing else.
    pub(crate) is_bare: bool,
    /// Whose turn it is then.
    pub(crate) next: AtomicUsize,
    /// Answers end their connections.
    pub(crate) is_closing: AtomicBool,
    /// Connections end as soon as they are idle.
    pub(crate) is_draining: AtomicBool,
    /// What still runs is to end now.
    pub(crate) is_cut: AtomicBool,
    /// One of the two has changed.
    pub(crate) drains: Notify,
}

/// What decides, and what counts what was decided: board cells, decision cells.
pub(crate) struct Deciding {
    pub(crate) decider: Decider,
    /// Bytes a token, by model.
    pub(crate) ratios: Ratios,
    pub(crate) budget: RetryBudget,
}

/// What makes of failures who is kept from requests.
struct Judging {
    breakers: Breakers,
    lookout: Lookout,
}

/// What a gateway is made of.
pub(crate) struct Parts {
    pub(crate) board: Arc<Board>,
    pub(crate) prefixes: Arc<StampTable>,
    pub(crate) cells: Arc<CoreCells>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) access: Arc<AccessRing>,
    pub(crate) access_log: AccessLog,
    pub(crate) keys: Option<Arc<Keys>>,
    pub(crate) usage: Option<Arc<UsageRing>>,
    pub(crate) is_bare: bool,
}

impl Gateway {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { board, prefixes, cells, readiness, access, access_log, keys, usage, is_bare } = parts;
        Self {
            deciding: Mutex::new(Deciding {
                decider: Decider::new(Scheduler::new(Chance::from_system())).with_table(prefixes.clone()),
                ratios: Ratios::default(),
                budget: RetryBudget::default(),
            }),
            judging: Mutex::new(Judging {
                breakers: Breakers::new(board.clone(), Chance::from_system()),
                lookout: Lookout::default(),
            }),
            responses: Mutex::new(SessionTable::new(board.clone(), CORE)),
            pool: Pool::default(),
            counting: Mutex::new(()),
            tables: RwLock::new(None),
            refusing_usage: RwLock::default(),
            is_closing: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            drains: Notify::new(),
            board,
            prefixes,
            seed: Seed::drawn(&mut Chance::from_system()),
            readiness,
            cells,
            access,
            access_log,
            keys,
            usage,
            is_bare,
            next: AtomicUsize::new(0),
        }
    }

    /// The tables requests begin with from now on; none before the first publication.
    pub(crate) fn tables(&self) -> Option<Arc<Tables>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a newer publication.
    pub(crate) fn swap(&self, tables: Arc<Tables>) {
        let generation = tables.routes().generation.to_native();
        self.judging().breakers.keep_to(tables.routes());
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = Some(tables);
        self.refusing_usage.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.board.set_generation(CORE, generation);
    }

    /// Counts something.
    pub(crate) fn count<T>(&self, change: impl FnOnce(&CoreCells) -> T) -> T {
        let _writer = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        change(&self.cells)
    }

    /// Requests between head and end.
    pub(crate) fn in_flight(&self) -> i64 {
        self.cells.in_flight.value()
    }

    /// Decides something, and counts what the decision went through.
    pub(crate) fn decide<T>(&self, act: impl FnOnce(&mut Deciding) -> T) -> T {
        let mut deciding = self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = act(&mut deciding);
        let tally = deciding.decider.take_tally();
        if tally.considered > 0 {
            self.cells.decisions.count(&tally);
        }
        outcome
    }

    /// Counts what became of a request's prompt. For whoever decides.
    pub(crate) fn decided(&self, table: &ArchivedRouteTable, choice: &Choice) {
        let row = table.pools.get(choice.pool.idx()).map_or(RowIdx::OTHER, |pool| RowIdx(pool.metric_row.to_native()));
        self.cells.pools.at(row).count_reuse(choice.reuse.as_ref());
    }

    /// Counts that nobody may get a request to row `model`.
    pub(crate) fn decided_nobody(&self, table: &ArchivedRouteTable, model: u32) {
        let first = table.models.get(model as usize).and_then(|route| route.pools.first());
        let pool = first.and_then(|row| table.pools.get(row.to_native() as usize));
        let row = pool.map_or(RowIdx::OTHER, |pool| RowIdx(pool.metric_row.to_native()));
        self.decide(|_| self.cells.pools.at(row).count_decision(Decision::NoHealthyWorker));
    }

    /// The endpoint that holds a stored response, as far as it is known and still there.
    pub(crate) fn find_response(&self, hash: u64) -> Option<BoardSlot> {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        let holder = responses.find(Mono::now(), Subject::Response(hash))?;
        self.board.is_current(holder).then_some(holder.slot)
    }

    /// Remembers which endpoint holds a stored response; none, when it was deleted.
    pub(crate) fn place_response(&self, hash: u64, slot: Option<BoardSlot>) {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        match slot {
            Some(slot) => responses.put(Mono::now(), Subject::Response(hash), self.board.holder(slot)),
            None => responses.forget(Subject::Response(hash)),
        }
    }

    /// The engine's metrics were not to be had several times in a row.
    pub(crate) fn metrics_lost(&self, slot: BoardSlot) {
        self.judging().breakers.metrics_lost(Mono::now(), slot);
    }

    /// They were read again.
    pub(crate) fn metrics_back(&self, slot: BoardSlot) {
        self.judging().breakers.metrics_back(Mono::now(), slot);
    }

    fn judging(&self) -> MutexGuard<'_, Judging> {
        self.judging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An engine answered as it should.
    pub(crate) fn answered(&self, slot: BoardSlot) {
        let mut judging = self.judging();
        self.board.count_answer(CORE, slot);
        if self.board.endpoint(slot).breaker() != BreakerState::Closed {
            judging.breakers.success(Mono::now(), slot);
        }
    }

    /// An engine failed.
    pub(crate) fn failed(&self, failure: Failure, settings: &Settings) {
        let mut judging = self.judging();
        if failure.kind != FailureKind::Busy {
            self.board.count_failure(CORE, failure.slot);
        }
        let changes = judging.breakers.failure(Mono::now(), &failure, settings.cooldown);
        if changes.contains(&Some(Change::Cooled)) {
            self.cells.cooldowns.increment();
        }
    }

    /// An attempt or an answer broke for this reason. Whatever is no fault of the engine changes nothing.
    pub(crate) fn broke(&self, slot: BoardSlot, reason: Reason, settings: &Settings) {
        if reason.is_engines_fault() {
            self.failed(Failure { slot, kind: FailureKind::Failed, retry_after_seconds: None }, settings);
        }
    }

    /// The trial of the endpoint, where its breaker wants one: `Err` when another request has it.
    pub(crate) fn trial(self: &Arc<Self>, slot: BoardSlot, now: Mono) -> Result<Option<Trial>, ()> {
        if self.board.endpoint(slot).breaker() == BreakerState::Closed {
            return Ok(None);
        }
        let is_ours = self.board.take_trial(slot, now, now + TRIAL_TIME);
        if is_ours { Ok(Some(Trial { gateway: self.clone(), slot })) } else { Err(()) }
    }

    /// Looks for endpoints that fail far more than their pools, copies the pool's counts, and lets go of what counts
    /// nothing. Called now and then.
    pub(crate) fn keep_house(&self) {
        let now = Mono::now();
        self.pool.sweep(now);
        self.count(|cells| self.pool.publish_counts(cells));
        if let Some(keys) = &self.keys {
            keys.limits.tick();
        }
        let Some(tables) = self.tables() else { return };
        let mut judging = self.judging();
        for slot in judging.lookout.look(&self.board, tables.routes(), now, |_| true) {
            judging.breakers.eject(now, slot);
        }
    }

    /// Whether the endpoint refused `stream_options` before.
    pub(crate) fn refuses_usage(&self, slot: BoardSlot) -> bool {
        self.refusing_usage.read().unwrap_or_else(PoisonError::into_inner).contains(&slot)
    }

    /// Remembers that the endpoint refuses `stream_options`.
    pub(crate) fn remember_refusal(&self, slot: BoardSlot) {
        let mut refusing = self.refusing_usage.write().unwrap_or_else(PoisonError::into_inner);
        if refusing.len() < REFUSING_MAX && !refusing.contains(&slot) {
            refusing.push(slot);
        }
    }

    /// Hands a record to the log, when it is one to be written. Loss: counted, by whoever counts what `cells` are.
    pub(crate) fn record(&self, record: AccessRecord, is_failure: bool, cells: &CoreCells) {
        let is_written = is_failure || self.access_log == AccessLog::All;
        if is_written && self.access.push(record).is_err() {
            cells.access_lines_lost.increment();
        }
    }

    /// What a caller may ask by; none where nobody is asked for a key.
    ///
    /// Errors: nobody knows yet.
    pub(crate) fn pass(&self, caller: Option<Caller>) -> Result<Option<Pass>, ApiError> {
        self.keys.as_ref().zip(caller).map(|(keys, caller)| keys.pass(caller)).transpose()
    }

    /// Whether anybody keeps records of what requests used.
    pub(crate) fn keeps_usage(&self) -> bool {
        self.usage.is_some()
    }

    /// Puts what a request used on the record. Loss: counted, by whoever counts what `cells` are.
    pub(crate) fn put_usage(&self, record: UsageRecord, cells: &CoreCells) {
        if self.usage.as_ref().is_some_and(|ring| ring.push(record).is_err()) {
            cells.usage_lost.increment();
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// From here on connections end with their last request.
    pub(crate) fn drain(&self) {
        self.is_closing.store(true, Relaxed);
        self.is_draining.store(true, Relaxed);
        self.drains.notify_waiters();
    }

    /// From here on nothing is waited for.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Relaxed);
        self.drain();
    }
}

/// A fresh id for a request that came `now`.
pub(crate) fn request_id(now: Wall) -> RequestId {
    thread_local! {
        static CHANCE: RefCell<Chance> = RefCell::new(Chance::from_system());
    }
    RequestId::new(now.0, CORE, CHANCE.with_borrow_mut(Chance::next_u64))
}

/// The only request that a half-open endpoint gets for now; given back when dropped.
pub(crate) struct Trial {
    gateway: Arc<Gateway>,
    slot: BoardSlot,
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.gateway.board.free_trial(self.slot);
    }
}
