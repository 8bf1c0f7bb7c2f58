//! The engine behind every gateway in a comparison: one epoll thread that answers from ready-made bytes, so that what
//! is measured is the gateway.
//!
//! Called by the binary's `mock` command. It is no simulation: it has no batch, no cache and no faults (the simulated
//! engine, `llmgw sim-engine`, has). The prompt steers it, since a prompt passes any gateway untouched:
//! `@@c=32,d=20000,p=0@@` asks for a stream of 32 events, 20 ms apart, the first after 0 µs. Without the mark the
//! answer comes whole. Each event carries the monotonic time at which it was written.

mod answers;
mod connection;
mod intake;
mod order;
mod serve;

pub(crate) use answers::{STAMP, STAMP_DIGITS};
pub use order::mark;
pub use serve::Mock;
#[cfg(test)]
pub(crate) use serve::tests::started;
