//! Scorers: how good a candidate is.

mod inflight;

pub use inflight::Inflight;
