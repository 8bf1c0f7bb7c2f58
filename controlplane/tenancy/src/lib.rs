//! Who is asking: organisations, teams, projects and keys, the limits on each, and what follows from them together.
//!
//! Reading order: `name` (what things may be called), `scope` (the levels and their rows), `key` (how a key is written,
//! hashed and shown), `limits` (what a level may be held to), `calendar` (when budgets begin anew), `id` (names nobody
//! chose). Used by the store, which keeps the rows, and by the control plane, which changes them. Never does I/O, reads
//! no clock, draws no randomness.

pub mod calendar;
pub mod id;
pub mod key;
pub mod limits;
pub mod name;
pub mod scope;

pub use key::{KeyHash, KeyRow, OldSecret};
pub use limits::{LimitsRow, Period};
pub use scope::{Organization, Project, Scope, ScopeKind, Team};
