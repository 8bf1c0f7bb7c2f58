//! The simulated engine over real sockets: what it says, how it fails on purpose, and what it records.

mod api;
mod control;
mod crowd;
mod endings;
mod faults;
mod http;
mod routes;
mod shapes;
mod support;
