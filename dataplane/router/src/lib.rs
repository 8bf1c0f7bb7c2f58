//! Where a request goes. No I/O, no task, no clock: what it needs is handed in, what to do is handed back, so that the
//! same code runs on a core, in a test and in a simulator.
//!
//! Reading order: [`dispatcher`] (pick and count in one step), [`board`] (who writes which cell), [`admission`]
//! (when: the gate and the queue behind it), [`scheduler`] (where: filter, score, pick), [`prefix`] (where a prompt is
//! likely cached), [`limiter`] (who may use what is left of a tenant's limits, which [`quota`] counts), [`session`]
//! (whose engine a session belongs to), [`session_table`] (what must be remembered of it), [`breaker`] (who is kept
//! from requests), [`feed`], [`tenants`] and [`message`] (what cores are told), [`metrics`].
//!
//! Invariants: a request that was counted up is counted down exactly once, whatever ends it; nothing is sent to an
//! endpoint that a filter dropped; a decision allocates nothing.

pub mod access;
pub mod admission;
pub mod board;
pub mod breaker;
pub mod dispatcher;
pub mod endpoint;
pub mod feed;
pub mod limiter;
pub mod message;
pub mod metrics;
pub mod prefix;
pub mod quota;
pub mod readiness;
pub mod scheduler;
pub mod session;
pub mod session_table;
pub mod settings;
pub mod tenants;
pub mod usage;

pub use board::Board;
pub use dispatcher::{Choice, Decider, Dispatcher, Grant, Map, NoEndpoint, Place, View, Wanted};
