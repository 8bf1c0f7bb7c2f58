//! Message heads: found in raw bytes, parsed with httparse, kept in reusable owned structs.
//!
//! `scan` finds a head's end while bytes arrive, `request` and `response` parse and judge it, `fields` stores it: one
//! byte buffer and one list of ranges, reused, so that a head costs no allocation once a connection is warm. Changes
//! with the rules of RFC 9112 we enforce. Never reads from a connection and never answers.

mod fields;
mod request;
mod response;
mod scan;

pub use fields::Headers;
pub use request::RequestHead;
pub use response::{AnswerTo, ResponseHead};
pub(crate) use scan::{HeadScan, ScanError};

/// Version of a message; everything else is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0: no chunks, one request a connection.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

impl Version {
    fn from_minor(minor: Option<u8>) -> Self {
        if minor == Some(0) { Self::Http10 } else { Self::Http11 }
    }
}
