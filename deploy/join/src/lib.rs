//! Where the planes meet in every program that serves, `llmgw server` and the conventional gateway: rooms that do not
//! know each other, put together once.
//!
//! Reading order: `keys` (which store there is, the admin API on it, which keys were used), `usage` (from the journal
//! into the store). Called by programs while they start; holds no state of its own and decides nothing that a room
//! below could.

pub mod keys;
pub mod usage;
