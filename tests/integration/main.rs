//! The built gateway between raw clients and simulated engines, over real sockets.

mod disconnects;
mod http;
mod limits;
mod pair;
mod streams;
