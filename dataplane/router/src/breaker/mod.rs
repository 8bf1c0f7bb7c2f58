//! What keeps requests from endpoints that fail: cooldowns and breakers, each owned by one core, and the retry budget.
//!
//! Cores report failures to the endpoint's owner ([`crate::message::CoreMessage`]); the owner keeps [`Breakers`] and
//! writes the endpoint's cells, which filters on every core read. Never reads a clock, never sends a request.

pub mod budget;
pub mod cooldown;
pub mod outlier;
pub mod state;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::ArchivedRouteTable;

use self::state::Breaker;
use crate::board::Board;

/// What a failure says about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection, a stream or an answer that broke, no HTTP, no first token in time, 502, 503 or 504: it cools down
    /// and its breaker hears of it.
    Failed,
    /// Another 5xx, for which one request alone may be to blame: its breaker hears of it.
    Faulty,
    /// 429: it has more than it can take, and is not broken. It cools down.
    Busy,
}

/// A failure as it travels to the core that owns the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The endpoint.
    pub slot: BoardSlot,
    /// What it says.
    pub kind: FailureKind,
    /// What the engine's `Retry-After` asked for.
    pub retry_after_seconds: Option<u32>,
}

/// What one endpoint's owner knows of it.
#[derive(Debug, Default)]
struct Owned {
    breaker: Breaker,
    cooling_until: Mono,
}

/// What became of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It cools down.
    Cooled,
    /// Its breaker opened.
    Opened,
    /// Its breaker closed.
    Closed,
}

/// The breakers of the endpoints that one core owns. Owner: that core.
pub struct Breakers {
    board: Arc<Board>,
    owned: HashMap<BoardSlot, Owned>,
    chance: Chance,
}

impl Breakers {
    /// Nobody failed yet.
    pub fn new(board: Arc<Board>, chance: Chance) -> Self {
        Self { board, owned: HashMap::new(), chance }
    }

    /// Hears of a failure. `cooldown` is what is configured. Answer: what changed.
    pub fn failure(&mut self, now: Mono, failure: &Failure, cooldown: Duration) -> [Option<Change>; 2] {
        let tally = self.board.tally(failure.slot);
        let owned = self.owned.entry(failure.slot).or_default();
        let has_opened = failure.kind != FailureKind::Busy && owned.breaker.failure(now, tally, &mut self.chance);
        let mut has_cooled = false;
        if failure.kind != FailureKind::Faulty {
            let asked = failure.retry_after_seconds.map(|seconds| Duration::from_secs(seconds.into()));
            let until = now + cooldown::length(cooldown, asked, &mut self.chance);
            has_cooled = owned.cooling_until <= now && until > now;
            owned.cooling_until = owned.cooling_until.max(until);
        }
        self.show(now, failure.slot);
        [has_cooled.then_some(Change::Cooled), has_opened.then_some(Change::Opened)]
    }

    /// Hears of an answer: of use only where the breaker is half-open.
    pub fn success(&mut self, now: Mono, slot: BoardSlot) -> Option<Change> {
        let owned = self.owned.get_mut(&slot)?;
        let has_closed = owned.breaker.success(now);
        if has_closed {
            self.show(now, slot);
        }
        has_closed.then_some(Change::Closed)
    }

    /// Opens the breaker of an endpoint that does far worse than its pool.
    pub fn eject(&mut self, now: Mono, slot: BoardSlot) -> Option<Change> {
        let has_opened = self.owned.entry(slot).or_default().breaker.eject(now, &mut self.chance);
        if has_opened {
            self.show(now, slot);
        }
        has_opened.then_some(Change::Opened)
    }

    /// A newer table: what was known of endpoints that left is forgotten. A slot gets another endpoint only after every
    /// core has seen a table without it. Cost: one pass over the endpoints, where any failed at all.
    pub fn keep_to(&mut self, table: &ArchivedRouteTable) {
        if self.owned.is_empty() {
            return;
        }
        let slots: HashSet<BoardSlot> =
            table.endpoints.iter().map(|endpoint| BoardSlot(endpoint.slot.to_native())).collect();
        self.owned.retain(|slot, _| slots.contains(slot));
    }

    fn show(&self, now: Mono, slot: BoardSlot) {
        let Some(owned) = self.owned.get(&slot) else { return };
        let state = owned.breaker.state(now);
        let out_until = owned.cooling_until.max(owned.breaker.until());
        self.board.endpoint(slot).set_breaker(state, out_until);
        self.board.free_trial(slot);
    }
}
