//! The control plane at work: what operators do to organisations, teams, projects, keys and limits.
//!
//! Reading order: `desk` (a question comes in, an answer goes out), `routes` (the whole table of questions), `api`
//! (what each does), `find` (from what an operator writes to a row), `refusal`, `openapi`; beside them [`tenants`]
//! (what cores are told). Called by the binary, for the admin address of a server that runs and for a command line on
//! the store's file alone. Every change is written with its event of the audit trail in one transaction. Knows no
//! HTTP, no SQL, and never runs on a core.

mod api;
pub mod desk;
mod find;
mod openapi;
mod refusal;
mod routes;
pub mod tenants;
#[cfg(test)]
mod tests;

pub use desk::{Answer, Ask, Deed, Desk, Verb};
