//! The load generator's scenarios against a simulated engine: good where nothing stands in between, and not good where
//! something stands in between that a gateway must not be.

mod common;
mod endings;
mod memory;
