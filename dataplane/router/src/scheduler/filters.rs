//! Filters: what a candidate must be.

mod excluded;
mod ready;

pub use excluded::Excluded;
pub use ready::Ready;
