//! Who may ask, as requests find it: the newest table behind a lock that is held to clone its handle, and whoever puts
//! a newer one there, with the limits that go with it. The decisions are those of the gateway's own `identity`.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use hyper::HeaderMap;
use llmgw_control::tenants::{Builder, Seats, Watch};
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::identity::{self, Rights, Stranger};
use llmgw_join::tenants::Publications;
use llmgw_kit::clock::Wall;
use llmgw_router::metrics::CoreCells;
use llmgw_router::tenants::Tenants;
use llmgw_store::Store;
use llmgw_types::tenants::Caller;
use llmgw_types::{KeyIdx, TenantSnapshot};

use crate::limits::Limits;
use crate::state::CORE;

/// See the module.
pub(crate) struct Keys {
    newest: RwLock<Option<Arc<Tenants>>>,
    pub(crate) limits: Arc<Limits>,
}

impl Keys {
    fn newest(&self) -> Result<Arc<Tenants>, ApiError> {
        let newest = self.newest.read().unwrap_or_else(PoisonError::into_inner).clone();
        newest.ok_or_else(|| ApiError::new(Reason::NoEndpoint, "who may ask is not known yet"))
    }

    /// Who sends a request with these headers.
    ///
    /// Errors: why it is not let in.
    pub(crate) fn identify(&self, headers: &HeaderMap, now: Wall) -> Result<Caller, Stranger> {
        let tenants = self.newest()?;
        let lines = headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let caller = identity::caller(tenants.snapshot.table(), lines, now)?;
        tenants.note(CORE, caller.key, now);
        Ok(caller)
    }

    /// What a caller may ask by, at this moment.
    ///
    /// Errors: nobody knows yet.
    pub(crate) fn pass(&self, caller: Caller) -> Result<Pass, ApiError> {
        Ok(Pass { tenants: self.newest()?, caller })
    }
}

/// A caller, and the table that says what it may.
pub(crate) struct Pass {
    tenants: Arc<Tenants>,
    pub(crate) caller: Caller,
}

impl Pass {
    /// What it may. Errors: its key works no more.
    pub(crate) fn rights(&self) -> Result<Rights<'_>, ApiError> {
        Rights::of(self.tenants.snapshot.table(), &self.caller)
    }
}

/// Publishes the first table, and has a thread publish those that follow.
///
/// Errors: the store cannot be read; no thread left.
pub(crate) fn watch(store: &Store, cells: Arc<CoreCells>) -> io::Result<(Arc<Keys>, Watch)> {
    let mut builder = Builder::default();
    let built = builder.build(store).map_err(io::Error::other)?;
    let keys = Arc::new(Keys { newest: RwLock::default(), limits: Limits::new(cells) });
    let (publications, first) = Publications::begin(store, 1, built.snapshot).map_err(io::Error::other)?;
    let seat = Seat { keys: keys.clone(), publications };
    seat.put(first);
    Ok((keys, Watch::start(store.clone(), builder, built.generation, seat)?))
}

/// Where tables go.
struct Seat {
    keys: Arc<Keys>,
    publications: Publications,
}

impl Seat {
    fn put(&self, tenants: Arc<Tenants>) {
        // Before a key works for which they are there.
        self.keys.limits.keep_to(tenants.limits.clone());
        *self.keys.newest.write().unwrap_or_else(PoisonError::into_inner) = Some(tenants);
    }
}

impl Seats for Seat {
    fn publish(&mut self, snapshot: Arc<TenantSnapshot>) {
        let newer = self.publications.next(snapshot);
        newer.into_iter().for_each(|newer| self.put(newer));
    }

    fn tend(&mut self) {
        let newer = self.publications.tend();
        newer.into_iter().for_each(|newer| self.put(newer));
    }

    fn used(&mut self) -> Vec<(KeyIdx, i64)> {
        self.publications.used()
    }
}
