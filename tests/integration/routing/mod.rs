//! Where requests go, asked of the built gateway.

mod prefixes;
mod quality;
mod sessions;
mod spread;
mod wishes;
