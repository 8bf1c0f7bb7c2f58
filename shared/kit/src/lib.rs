//! Clock, randomness, bounded containers, units: small tools with no I/O of their own.

pub mod chance;
pub mod clock;
pub mod percent;
pub mod secret;
pub mod units;
