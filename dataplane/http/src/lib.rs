//! HTTP/1.1 in both directions, strict and bounded.
//!
//! The gateway serves clients with it and asks engines with it; both over the runtime's two-method connection. Pure
//! parsers first (`head`, `body`), then the two halves built on them.
//!
//! Rules that hold everywhere here:
//! - a pending read is never dropped while its connection lives (it would lose bytes): it is stored and taken up later;
//! - peer bytes can fail, never panic; every size and wait has a bound in `limits`;
//! - framing and connection headers are written in one place and never copied from a peer.

pub mod body;
pub mod chunk_buf;
pub mod client;
pub mod draft;
pub mod error;
pub mod head;
pub mod limits;
pub mod name;
pub mod pool;
mod read_ahead;
pub mod scripted;
pub mod server;
pub mod spare;
pub mod tls;
