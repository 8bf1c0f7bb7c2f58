//! Where requests go, asked of the built gateway.

mod spread;
mod wishes;
