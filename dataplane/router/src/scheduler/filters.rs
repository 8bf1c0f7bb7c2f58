//! Filters: what a candidate must be.

mod breaker;
mod draining;
mod excluded;
mod pinned;
mod ready;

pub use breaker::Breaker;
pub use draining::Draining;
pub use excluded::Excluded;
pub use pinned::Pinned;
pub use ready::Ready;
