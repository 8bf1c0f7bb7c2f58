//! The load generator: closed and open loops, streams, overhead, cancelling and memory, measured from outside.
//!
//! Called by the `llmgw-load` binary, by `cargo x bench`, and by the suites, which borrow its readings of `/proc` and
//! its process guard. It never links the gateway or the engine: what it measures is on the other end of a socket.
//!
//! Gateways are compared (`compare`) over a leaner client (`drive`) and an engine of ready-made bytes (`mock`); where
//! they send prompts (`quality`) over traces and the simulated engine.
//!
//! Reading order: a request (`target`, `prompt`), the client (`client`, `wire`), what is counted (`events`,
//! `tally`, `usage`), the loops (`closed`, `open`, `streams`), the scenarios, and what a person reads (`report`).

pub mod prompt;
pub mod target;
pub mod trace;

pub mod client;
pub mod wire;

pub mod events;
pub mod tally;
pub mod usage;
pub mod watch;

pub mod cancel;
pub mod closed;
mod control;
pub mod drain;
pub mod mixed;
pub mod open;
pub mod overhead;
mod pacer;
pub mod reloads;
pub mod replay;
pub mod ring;
pub mod sessions;
pub mod stalled;
pub mod streams;
pub mod uploads;

pub mod compare;
pub mod drive;
pub mod mock;
mod poll;
pub mod quality;

pub mod progress;
pub mod report;

pub mod fleet;
pub mod metrics;
pub mod process;
pub mod scenario;
