//! What must survive a restart, in SQLite: who may ask, what was used, who changed what.
//!
//! Not stored is whatever describes the fleet: nodes, replicas, models. A database that describes the cluster can be
//! wrong; the cluster cannot. It is found again from the fleet and from the configuration.
//!
//! Reading order: `store` (the handle: write, read, back up), `writer` (the one thread that writes), `open` and
//! `migrate` (a file becomes a store), then one file a family of tables: `scopes`, `keys`, `limits`, `audit`, `usage`
//! with `usage_batch` and `usage_add`, `usage_sums`, `rollup`, `retention`; `backup`, `error`. Called by the control
//! plane, never by a core: every call may wait for a disk or for another process. The only room that knows SQL, and
//! nothing of SQLite leaves it, so that another database is another folder of migrations, another `open` and another
//! connection behind [`Rows`] and [`Tx`].

pub mod audit;
mod backup;
pub mod error;
mod keys;
mod limits;
mod migrate;
mod open;
mod retention;
mod rollup;
#[cfg(test)]
mod rollup_tests;
mod scopes;
mod store;
#[cfg(test)]
mod test_world;
pub mod usage;
mod usage_add;
mod usage_batch;
pub mod usage_sums;
#[cfg(test)]
mod usage_tests;
mod writer;

pub use error::StoreError;
pub use keys::USED_EVERY;
pub use open::OpenOptions;
pub use retention::Retention;
pub use store::{Rows, Store, Tx};
pub use usage_batch::Batch;
