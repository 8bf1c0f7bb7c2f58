//! How metrics and logs are recorded, not what is recorded.
//!
//! Every crate describes its own metrics (`registry`) and holds its own cells (`metric`, `rows`); the side runtime
//! adds the cores' cells up (`merge`) and writes the page (`expose`). Logs go through one bounded queue to one thread
//! (`log`, `sink`), so that a slow standard error holds up nobody; what a request did is one line of it (`access`).
//!
//! Nothing here knows a model, a route or a core, reads the environment, or waits on the caller's thread.

pub mod registry;

pub mod expose;
pub mod merge;
pub mod metric;
pub mod rows;

pub mod document;

pub mod access;
pub mod log;
mod sink;
pub mod stamp;
