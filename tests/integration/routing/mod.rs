//! Where requests go, asked of the built gateway.

mod sessions;
mod spread;
mod wishes;
