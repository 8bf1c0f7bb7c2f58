//! The driver of comparisons: closed and open loops and streams over one epoll thread, cheap enough to load the fastest
//! proxies from half a core.
//!
//! Called by `compare`, which owns the processes. The loops of `closed`, `open` and `streams` tell more about each call
//! (bytes compared, retries of stale connections); this one costs a third of them. Blocks its thread while it runs.

mod call;
mod cost;
mod door;
mod outcome;
mod pulse;
mod run;
mod schedule;

pub use outcome::{GatewayCost, Outcome};
pub use run::{Arrivals, Drive, run};
