//! The built gateway between raw clients and simulated engines, over real sockets.

mod disconnects;
mod streams;
