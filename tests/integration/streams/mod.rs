//! Streams through the gateway: what an engine sends reaches the client as it was, at once, and is counted right.

mod bytes;
mod cut;
mod drivers;
mod errors;
mod headers;
mod limits;
mod pace;
mod protocol;
pub(crate) mod rig;
mod slow_engine;
pub(crate) mod sse;
mod usage;
