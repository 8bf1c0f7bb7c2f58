//! What is said of endpoints' breakers: once that one opened and why, and once that it closed again.
//!
//! One task, started by `run`. Cores open and close breakers and write no log: this reads their cells a few times a
//! second. Never writes a cell. That an engine's metrics were lost is said by `scrape`, which knows more of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use llmgw_router::board::Board;
use llmgw_router::endpoint::{BreakerState, OpenedBy};
use llmgw_types::BoardSlot;
use tokio::sync::watch;

use crate::table::View;

/// How often cells are read. A breaker stays open for longer than this, so that none is missed.
const EVERY: Duration = Duration::from_millis(200);

pub(crate) struct BreakerWatch {
    board: Arc<Board>,
    view: watch::Receiver<Arc<View>>,
    /// Endpoints whose breakers are known not to be closed, and whose tenure of the slot that is.
    out: HashMap<BoardSlot, u32>,
}

/// What is to be said of an endpoint.
#[derive(Debug, PartialEq, Eq)]
enum Saying {
    Opened(OpenedBy),
    Closed,
}

impl BreakerWatch {
    pub(crate) fn new(board: Arc<Board>, view: watch::Receiver<Arc<View>>) -> Self {
        Self { board, view, out: HashMap::new() }
    }

    /// Looks until the runtime ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(|replica, saying| match saying {
                Saying::Opened(OpenedBy::Requests) => {
                    tracing::warn!(replica, reason = "its requests fail", "the endpoint's breaker opens");
                }
                Saying::Opened(OpenedBy::Pool) => {
                    let reason = "it fails far more than the others of its pool";
                    tracing::warn!(replica, reason, "the endpoint's breaker opens");
                }
                Saying::Opened(OpenedBy::Metrics) => {}
                Saying::Closed => tracing::info!(replica, "the endpoint's breaker is closed again"),
            });
        }
    }

    /// Compares every cell with what is known. Cost: one load an endpoint.
    fn look(&mut self, mut say: impl FnMut(&str, Saying)) {
        let view = self.view.borrow().clone();
        for (replica, slot) in &view.replicas {
            let cells = self.board.endpoint(*slot);
            let tenure = cells.tenure();
            let was_out = self.out.get(slot) == Some(&tenure);
            match (was_out, cells.breaker() != BreakerState::Closed) {
                (false, true) => {
                    self.out.insert(*slot, tenure);
                    say(replica, Saying::Opened(cells.opened_by()));
                }
                (true, false) => {
                    self.out.remove(slot);
                    say(replica, Saying::Closed);
                }
                (true, true) | (false, false) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use llmgw_kit::clock::Mono;

    use super::*;

    #[test]
    fn a_breaker_is_spoken_of_when_it_opens_and_when_it_closes_and_not_between() {
        let board = Arc::new(Board::new(1, 4));
        let slots = [("a", BoardSlot(0)), ("b", BoardSlot(2))];
        let replicas = slots.map(|(name, slot)| (name.to_owned(), slot)).to_vec();
        let mut names = View::default();
        names.replicas = replicas;
        let view = watch::Sender::new(Arc::new(names));
        let mut watch = BreakerWatch::new(board.clone(), view.subscribe());
        let mut said = || {
            let mut all = Vec::new();
            watch.look(|replica, saying| all.push((replica.to_owned(), saying)));
            all
        };
        let set = |slot, by, state| {
            board.endpoint(slot).set_opened_by(by);
            board.endpoint(slot).set_breaker(state, Mono(9));
        };
        let [(_, a), (_, b)] = slots;
        assert_eq!(said(), []);
        set(a, OpenedBy::Requests, BreakerState::Open);
        set(b, OpenedBy::Pool, BreakerState::Open);
        let opened = |name: &str, by| (name.to_owned(), Saying::Opened(by));
        assert_eq!(said(), [opened("a", OpenedBy::Requests), opened("b", OpenedBy::Pool)]);
        for state in [BreakerState::HalfOpen, BreakerState::Open, BreakerState::HalfOpen] {
            set(a, OpenedBy::Requests, state);
            assert_eq!(said(), [], "a trial that failed is nothing new");
        }
        set(a, OpenedBy::Requests, BreakerState::Closed);
        assert_eq!(said(), [("a".to_owned(), Saying::Closed)]);
        assert_eq!(said(), []);
        view.send_replace(Arc::default());
        assert_eq!(said(), [], "who left the table is not spoken of");
    }
}
