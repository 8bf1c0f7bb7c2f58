//! The table of who may ask, as the cores take it: made from the store, and made again when the store changes.
//!
//! Reading order: `build` (rows of the store to a table), `book` (which row of the table is whose, for the life of the
//! process), `watch` (when). Runs on a thread of its own, off the cores and off the side runtime.

mod book;
mod build;
#[cfg(test)]
mod tests;
mod watch;

pub use build::{BuildError, Builder, Built};
pub use watch::{LOOK, Seats, Waker, Watch};
