//! Who may ask and what they are held to, as one publication after another: for whoever watches the store and hands
//! them to requests.

use std::sync::Arc;

use llmgw_router::tenants::{Kept, Tenants};
use llmgw_store::{Store, StoreError};
use llmgw_types::{KeyIdx, TenantSnapshot};

use crate::limits::Limiting;

/// See the module.
pub struct Publications {
    kept: Kept,
    limiting: Limiting,
    /// The newest table, to be published again when its calendars are old.
    newest: Arc<TenantSnapshot>,
    /// The newest is not published, since what was spent could not be read.
    is_behind: bool,
}

impl Publications {
    /// Begins with the first table, for that many cores.
    ///
    /// Errors: what was spent cannot be read. It is not to be forgotten: without it nothing is served.
    pub fn begin(store: &Store, cores: usize, first: Arc<TenantSnapshot>) -> Result<(Self, Arc<Tenants>), StoreError> {
        let (kept, limiting) = (Kept::new(cores), Limiting::new(store.clone()));
        let mut publications = Self { kept, limiting, newest: first, is_behind: false };
        let first = publications.newest()?;
        Ok((publications, first))
    }

    /// A newer table with its limits; none while it cannot be read what was spent: then requests keep what they have.
    pub fn next(&mut self, snapshot: Arc<TenantSnapshot>) -> Option<Arc<Tenants>> {
        self.newest = snapshot;
        let newest = self.newest();
        let warn = |error: &StoreError| {
            tracing::warn!(%error, "keys and limits stay as they are until it can be read what was spent");
        };
        newest.inspect_err(warn).ok()
    }

    /// Called now and then: lets go of what no request has any more. Answer: what is to be published again.
    pub fn tend(&mut self) -> Option<Arc<Tenants>> {
        // Where it fails again, it was said before.
        let again = (self.is_behind || self.limiting.is_old()).then(|| self.newest().ok()).flatten();
        self.kept.let_go();
        again
    }

    /// Keys that were used since this was asked last, and when, unix milliseconds.
    pub fn used(&mut self) -> Vec<(KeyIdx, i64)> {
        let used = self.kept.used().into_iter();
        used.map(|(key, at)| (key, i64::try_from(at).unwrap_or(i64::MAX))).collect()
    }

    fn newest(&mut self) -> Result<Arc<Tenants>, StoreError> {
        let limits = self.limiting.table(&self.newest);
        self.is_behind = limits.is_err();
        Ok(self.kept.publication(self.newest.clone(), limits?))
    }
}
