//! Where the planes meet in every program that serves, `llmgw server` and the conventional gateway: rooms that do not
//! know each other, put together once.
//!
//! Reading order: `keys` (which store there is, the admin API on it), `tenants` (who may ask and what they are held to,
//! as requests are given it) and `limits` behind it, `usage` (from the journal into the store). Called by programs
//! while they start and by the thread that watches the store; decides nothing that a room below could.

pub mod keys;
mod limits;
pub mod tenants;
pub mod usage;
