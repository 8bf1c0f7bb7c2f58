//! A request's share of what its engine has to prefill, counted down however the request goes on.

use std::sync::Arc;

use super::approx::StampTable;
use super::ledger::Prefill;

/// What an engine still has to prefill of one request: dropped at its first token, or with the request. Owner: the core
/// that placed it.
pub struct Prefilling {
    table: Arc<StampTable>,
    prefill: Option<Prefill>,
}

impl Prefilling {
    /// Counted when it was recorded in `table`.
    pub fn new(table: Arc<StampTable>, prefill: Prefill) -> Self {
        Self { table, prefill: Some(prefill) }
    }
}

impl Drop for Prefilling {
    fn drop(&mut self) {
        if let Some(prefill) = self.prefill.take() {
            self.table.ledger().done(prefill);
        }
    }
}
