//! Engines that fail, one after another and all at once: what clients notice of it, and what they must not.

mod breaker;
mod counters;
mod endpoints;
mod failures;
mod fallbacks;
mod leaving;
mod limits;
mod openings;
mod retries;
pub(crate) mod rig;
