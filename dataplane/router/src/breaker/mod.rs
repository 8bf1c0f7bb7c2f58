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
use crate::endpoint::OpenedBy;

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
        if has_opened {
            self.board.endpoint(failure.slot).set_opened_by(OpenedBy::Requests);
        }
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
            self.board.endpoint(slot).set_opened_by(OpenedBy::Pool);
            self.show(now, slot);
        }
        has_opened.then_some(Change::Opened)
    }

    /// Hears that the endpoint's metrics were not to be had again and again.
    pub fn metrics_lost(&mut self, now: Mono, slot: BoardSlot) -> Option<Change> {
        let has_opened = self.owned.entry(slot).or_default().breaker.metrics_lost(now);
        if has_opened {
            self.board.endpoint(slot).set_opened_by(OpenedBy::Metrics);
        }
        self.show(now, slot);
        has_opened.then_some(Change::Opened)
    }

    /// Hears that the endpoint's metrics were read again: of use only where the want of them opened its breaker.
    pub fn metrics_back(&mut self, now: Mono, slot: BoardSlot) {
        let changes = self.owned.get_mut(&slot).is_some_and(|owned| owned.breaker.metrics_back(now));
        if changes {
            self.show(now, slot);
        }
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

#[cfg(test)]
mod tests {
    use llmgw_types::{CoreId, RouteTable, Snapshot};

    use super::*;
    use crate::endpoint::BreakerState;

    const SLOT: BoardSlot = BoardSlot(1);
    const NOW: Mono = Mono(1_000_000_000);
    const COOLDOWN: Duration = Duration::from_secs(15);

    fn breakers() -> (Arc<Board>, Breakers) {
        let board = Arc::new(Board::new(2, 2));
        (board.clone(), Breakers::new(board, Chance::seeded(1)))
    }

    fn failure(kind: FailureKind, retry_after_seconds: Option<u32>) -> Failure {
        Failure { slot: SLOT, kind, retry_after_seconds }
    }

    #[test]
    fn who_failed_cools_down_once_and_who_is_busy_for_as_long_as_it_says() {
        for (kind, asked, cools_for) in [
            (FailureKind::Failed, None, Some(15)),
            (FailureKind::Busy, None, Some(15)),
            (FailureKind::Busy, Some(3), Some(3)),
            (FailureKind::Failed, Some(1_000), Some(60)),
            (FailureKind::Faulty, None, None),
        ] {
            let (board, mut breakers) = breakers();
            let first = breakers.failure(NOW, &failure(kind, asked), COOLDOWN);
            assert_eq!(first[0], cools_for.map(|_| Change::Cooled), "{kind:?}");
            assert_eq!(breakers.failure(NOW, &failure(kind, asked), COOLDOWN)[0], None, "it cools down already");
            let time = board.endpoint(SLOT).out_until().since(NOW).as_secs_f64();
            let expected = f64::from(cools_for.unwrap_or(0));
            assert!((expected..=expected * 1.1).contains(&time), "{kind:?} {asked:?}: {time}");
            assert_eq!(board.endpoint(SLOT).breaker(), BreakerState::Closed);
        }
    }

    #[test]
    fn the_cells_show_an_open_breaker_and_the_trial_is_free_again_with_its_end() {
        let (board, mut breakers) = breakers();
        let fail = |breakers: &mut Breakers, now| {
            board.count_failure(CoreId(1), SLOT);
            breakers.failure(now, &failure(FailureKind::Faulty, None), COOLDOWN)[1]
        };
        let mut opened = None;
        for _ in 0..state::CONSECUTIVE_MAX {
            assert_eq!(opened, None);
            opened = fail(&mut breakers, NOW);
        }
        assert_eq!((opened, board.endpoint(SLOT).breaker()), (Some(Change::Opened), BreakerState::Open));
        assert_eq!(board.endpoint(SLOT).opened_by(), OpenedBy::Requests);
        assert_eq!(breakers.success(NOW, SLOT), None, "its time is not up");
        let up = board.endpoint(SLOT).out_until();
        assert!(board.take_trial(SLOT, up, up + COOLDOWN));
        assert_eq!(fail(&mut breakers, up), Some(Change::Opened));
        let up = board.endpoint(SLOT).out_until();
        assert!(board.take_trial(SLOT, up, up + COOLDOWN));
        assert_eq!(breakers.success(up, SLOT), Some(Change::Closed));
        assert_eq!((board.endpoint(SLOT).breaker(), board.endpoint(SLOT).out_until()), (BreakerState::Closed, Mono(0)));
        assert!(board.is_trial_free(SLOT, up));
    }

    #[test]
    fn lost_metrics_show_as_an_open_breaker_and_a_trial_is_free_when_they_are_back() {
        let (board, mut breakers) = breakers();
        assert_eq!(breakers.metrics_lost(NOW, SLOT), Some(Change::Opened));
        assert_eq!(board.endpoint(SLOT).opened_by(), OpenedBy::Metrics);
        let first = board.endpoint(SLOT).out_until();
        let later = NOW + Duration::from_secs(2);
        assert_eq!(breakers.metrics_lost(later, SLOT), None);
        assert!(board.endpoint(SLOT).out_until() > first && board.endpoint(SLOT).breaker() == BreakerState::Open);
        breakers.metrics_back(later, SLOT);
        assert_eq!((board.endpoint(SLOT).breaker(), board.endpoint(SLOT).out_until()), (BreakerState::HalfOpen, later));
        assert!(board.is_trial_free(SLOT, later));
        assert_eq!(breakers.success(later, SLOT), Some(Change::Closed));
        breakers.metrics_back(later, BoardSlot(0));
        assert_eq!(board.endpoint(BoardSlot(0)).breaker(), BreakerState::Closed, "nobody knew it");
    }

    #[test]
    fn busy_endpoints_never_open_a_breaker_and_what_left_the_table_is_forgotten() {
        let (board, mut breakers) = breakers();
        for _ in 0..100 {
            assert_eq!(breakers.failure(NOW, &failure(FailureKind::Busy, None), COOLDOWN)[1], None);
        }
        assert_eq!(breakers.eject(NOW, SLOT), Some(Change::Opened));
        assert_eq!(breakers.eject(NOW, SLOT), None);
        assert_eq!(board.endpoint(SLOT).opened_by(), OpenedBy::Pool);
        assert_eq!(board.endpoint(SLOT).breaker(), BreakerState::Open);
        breakers.keep_to(Snapshot::of(&RouteTable::default()).unwrap().table());
        assert_eq!(breakers.eject(NOW, SLOT), Some(Change::Opened), "nothing is known of it any more");
    }
}
