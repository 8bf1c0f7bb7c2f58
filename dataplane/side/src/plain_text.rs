//! Clients that speak plain HTTP where TLS is spoken: said once when they come, not once a client.
//!
//! One task, started by `run`. Cores count them and write no log: this reads their cells. Never writes a cell.

use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_obs::merge;
use llmgw_router::metrics::{CoreCells, TlsOutcome};

/// How often cells are read.
const EVERY: Duration = Duration::from_secs(1);
/// Said again when they come after so long a time without any.
const FORGOTTEN: Duration = Duration::from_secs(600);

pub(crate) struct PlainTextWatch {
    cells: Vec<Arc<CoreCells>>,
    seen: u64,
    last: Option<Mono>,
}

impl PlainTextWatch {
    pub(crate) fn new(cells: Vec<Arc<CoreCells>>) -> Self {
        Self { cells, seen: 0, last: None }
    }

    /// Looks until the runtime ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.is_news(Mono::now()) {
                tracing::warn!(
                    remedy = "they are answered 400; use https://",
                    "clients speak plain HTTP to an address that speaks TLS"
                );
            }
        }
    }

    /// Whether they came after a time without any.
    fn is_news(&mut self, now: Mono) -> bool {
        let cells = self.cells.iter().filter_map(|core| core.tls_handshakes.get(TlsOutcome::PlainText as usize));
        let count = merge::counters(cells);
        if std::mem::replace(&mut self.seen, count) == count {
            return false;
        }
        self.last.replace(now).is_none_or(|last| now.since(last) > FORGOTTEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_and_again_after_a_long_time_without_any() {
        let cells: Vec<Arc<CoreCells>> = (0..2).map(|_| Arc::default()).collect();
        let mut watch = PlainTextWatch::new(cells.clone());
        let at = |seconds| Mono(1) + Duration::from_secs(seconds);
        assert!(!watch.is_news(at(0)));
        cells[1].count_handshake(TlsOutcome::PlainText);
        assert_eq!((watch.is_news(at(1)), watch.is_news(at(2))), (true, false));
        cells[0].count_handshake(TlsOutcome::PlainText);
        cells[0].count_handshake(TlsOutcome::Full);
        assert!(!watch.is_news(at(300)));
        cells[0].count_handshake(TlsOutcome::PlainText);
        assert!(watch.is_news(at(1000)));
    }
}
