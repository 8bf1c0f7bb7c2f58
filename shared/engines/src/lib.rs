//! One folder per engine: what it is called, where it answers, what its metrics are named.
//!
//! Adding an engine is adding a folder with its habits and its vocabulary, and one line in `kind`. The side runtime
//! reads engines' metrics pages here (`contract`, over `promtext`); the cores' pools learn how long an engine keeps
//! an idle connection. Nothing here opens a connection or starts a process.

pub mod kind;

pub mod contract;
pub mod names;
mod tally;

pub mod promtext;

mod llamacpp;
mod sglang;
mod sim;
mod vllm;
