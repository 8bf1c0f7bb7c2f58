//! What a core makes of how engines answer: counted on the load board, told to the core that owns the endpoint, and
//! acted on for the endpoints it owns itself.
//!
//! Called by the request path after every attempt and by the core for what others tell it, the side runtime's word on
//! an engine's metrics included. Never decides where a
//! request goes: filters read the cells that the owners write.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use llmgw_http::head::ResponseHead;
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::Board;
use llmgw_router::breaker::budget::RetryBudget;
use llmgw_router::breaker::outlier::Lookout;
use llmgw_router::breaker::{Breakers, Change, Failure, FailureKind};
use llmgw_router::endpoint::BreakerState;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::ArchivedRouteTable;

use crate::error::Reason;
use crate::lanes::Lanes;

/// How long one request may keep the trial of a half-open endpoint to itself; then the next one may try as well.
const TRIAL_TIME: Duration = Duration::from_secs(10);

/// See the module. Owner: one core.
pub(crate) struct Evidence {
    lanes: Rc<Lanes>,
    board: Arc<Board>,
    cells: Arc<CoreCells>,
    breakers: RefCell<Breakers>,
    lookout: RefCell<Lookout>,
    pub(crate) budget: RefCell<RetryBudget>,
}

impl Evidence {
    pub(crate) fn new(lanes: Rc<Lanes>, board: Arc<Board>, cells: Arc<CoreCells>) -> Self {
        Self {
            lanes,
            breakers: RefCell::new(Breakers::new(board.clone(), Chance::from_system())),
            lookout: RefCell::default(),
            budget: RefCell::default(),
            board,
            cells,
        }
    }

    /// An engine answered as it should.
    pub(crate) fn answered(&self, slot: BoardSlot) {
        self.board.count_answer(self.lanes.core, slot);
        if self.board.endpoint(slot).breaker() != BreakerState::Closed {
            self.tell(CoreMessage::Success(slot), slot, Duration::ZERO);
        }
    }

    /// An engine failed. `cooldown` is what is configured.
    pub(crate) fn failed(&self, failure: Failure, cooldown: Duration) {
        if failure.kind != FailureKind::Busy {
            self.board.count_failure(self.lanes.core, failure.slot);
        }
        self.tell(CoreMessage::Failure(failure), failure.slot, cooldown);
    }

    /// An attempt or an answer broke for this reason. Whatever is no fault of the engine changes nothing.
    pub(crate) fn broke(&self, slot: BoardSlot, reason: Reason, cooldown: Duration) {
        if reason.is_engines_fault() {
            self.failed(Failure { slot, kind: FailureKind::Failed, retry_after_seconds: None }, cooldown);
        }
    }

    /// What the status of an answer says. Answers below 500 count when they are whole: see [`Self::answered`].
    pub(crate) fn status(&self, slot: BoardSlot, head: &ResponseHead, cooldown: Duration) {
        let kind = match head.status() {
            429 => FailureKind::Busy,
            502..=504 => FailureKind::Failed,
            500.. => FailureKind::Faulty,
            300.. => return self.answered(slot),
            _ => return,
        };
        let retry_after_seconds = match kind {
            FailureKind::Faulty => None,
            FailureKind::Failed | FailureKind::Busy => retry_after(head),
        };
        self.failed(Failure { slot, kind, retry_after_seconds }, cooldown);
    }

    /// The trial of the endpoint, where its breaker wants one: `Err` when another request has it.
    pub(crate) fn trial(&self, slot: BoardSlot, now: Mono) -> Result<Option<Trial>, ()> {
        if self.board.endpoint(slot).breaker() == BreakerState::Closed {
            return Ok(None);
        }
        let is_ours = self.board.take_trial(slot, now, now + TRIAL_TIME);
        if is_ours { Ok(Some(Trial { board: self.board.clone(), slot })) } else { Err(()) }
    }

    /// Takes what another core or the side runtime says of an endpoint that this one owns.
    pub(crate) fn hear(&self, message: CoreMessage, cooldown: Duration) {
        let now = Mono::now();
        let mut breakers = self.breakers.borrow_mut();
        let changes = match message {
            CoreMessage::Failure(failure) => breakers.failure(now, &failure, cooldown),
            CoreMessage::Success(slot) => [breakers.success(now, slot), None],
            CoreMessage::Eject(slot) => [breakers.eject(now, slot), None],
            CoreMessage::MetricsLost(slot) => [breakers.metrics_lost(now, slot), None],
            CoreMessage::MetricsBack(slot) => {
                breakers.metrics_back(now, slot);
                [None, None]
            }
            CoreMessage::FeedReady
            | CoreMessage::TenantsReady
            | CoreMessage::Locate(..)
            | CoreMessage::Located(..)
            | CoreMessage::Enqueue(_)
            | CoreMessage::Withdraw(_)
            | CoreMessage::Nudge(_)
            | CoreMessage::Granted(..)
            | CoreMessage::Refused(..)
            | CoreMessage::Placed(..)
            | CoreMessage::ToLimiter(_)
            | CoreMessage::FromLimiter(_)
            | CoreMessage::Settle
            | CoreMessage::Drain
            | CoreMessage::Cut => [None, None],
        };
        if changes.contains(&Some(Change::Cooled)) {
            self.cells.cooldowns.increment();
        }
    }

    /// Looks for endpoints that fail far more than their pools, among the pools this core owns.
    pub(crate) fn look(&self, table: &ArchivedRouteTable) {
        let is_ours = |pool: u32| self.lanes.owner_of_number(pool) == self.lanes.core;
        let found = self.lookout.borrow_mut().look(&self.board, table, Mono::now(), is_ours);
        for slot in found {
            self.tell(CoreMessage::Eject(slot), slot, Duration::ZERO);
        }
    }

    /// Follows a newer table.
    pub(crate) fn keep_to(&self, table: &ArchivedRouteTable) {
        self.breakers.borrow_mut().keep_to(table);
    }

    fn tell(&self, message: CoreMessage, slot: BoardSlot, cooldown: Duration) {
        let owner = self.lanes.owner_of_number(slot.0);
        if owner == self.lanes.core {
            self.hear(message, cooldown);
        } else {
            // A full lane: the next one says it again.
            let _ = self.lanes.send(owner, message);
        }
    }
}

/// How long a trial that has ended stays taken, for its verdict to reach the endpoint's owner. The owner gives it back
/// as soon as it has heard; without this the next request would slip through while the verdict crosses the lane.
const HANDOVER: Duration = Duration::from_millis(100);

/// The only request that a half-open endpoint gets for now; given back when dropped, once its verdict had time to
/// arrive.
pub(crate) struct Trial {
    board: Arc<Board>,
    slot: BoardSlot,
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.board.hold_trial(self.slot, Mono::now() + HANDOVER);
    }
}

/// `Retry-After` in seconds; a date counts as nothing said.
fn retry_after(head: &ResponseHead) -> Option<u32> {
    let value = head.header("retry-after")?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
