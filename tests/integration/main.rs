//! The built gateway between raw clients and simulated engines, over real sockets.

mod admission;
mod attacks;
mod auth;
mod disconnects;
mod golden;
mod http;
mod keys;
mod limits;
mod pair;
mod reliability;
mod reload;
mod routes;
mod routing;
mod streams;
mod tls;
mod transports;
mod usage;
