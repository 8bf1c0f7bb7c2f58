//! One request's life on a core, from the client's first byte to the last.
//!
//! [`core_main`] is everything a core runs; [`serve`] is the request path, top to bottom, in one function; the other
//! rooms are its steps in the order in which it takes them. Started by the binary, once per core.
//!
//! Never blocks, never opens a file, never waits for another thread: what a core must know comes by the feed, what it
//! has to say goes into cells and rings.

pub mod core_main;
pub mod setup;

// What is decided or said of a request without touching a connection. The conventional gateway of bench/stock does
// with the same.
pub mod account;
pub mod error;
pub mod explain;
pub mod forward;
pub mod identity;
pub mod intake;
pub mod me;
pub mod quota;
pub mod resolve;
pub mod route;
pub mod tail;

mod admission;
mod arrived;
mod attempt;
mod connection;
mod core;
mod cut;
mod door;
mod evidence;
mod finish;
mod gates;
mod handlers;
mod lanes;
mod limits;
mod piece;
mod prompt;
mod relay;
mod reserve;
mod respond;
mod retry;
mod routing;
mod serve;
mod sessions;
mod snapshot;
mod submit;
mod whole;

pub use core_main::run;
pub use setup::CoreSetup;
