//! What can go wrong on either side, as values.
//!
//! Made by the parsers and the two halves, turned into answers, metrics and retries by the gateway. Never formats an
//! answer and never holds bytes of a peer.

use std::{fmt, io};

use crate::tls::TlsFault;

/// A request that is refused before anybody looks at what it asks.
///
/// Invariant: the connection ends after the answer, since its framing can no longer be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// Status of the answer: 400, 408, 413, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// One sentence for the client, in lower case, without the client's bytes.
    pub message: &'static str,
}

impl Reject {
    pub(crate) const fn new(status: u16, message: &'static str) -> Self {
        Self { status, message }
    }

    /// A 400.
    pub const fn bad(message: &'static str) -> Self {
        Self::new(400, message)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.message)
    }
}

impl std::error::Error for Reject {}

/// Bytes of an engine that are not the HTTP we speak; the text says which rule they break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Why a response body ended badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The connection ended before the length or the last chunk.
    Truncated,
    /// The chunk framing is broken.
    Malformed(Malformed),
    /// The connection failed (reset and the like).
    Io(io::ErrorKind),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("connection closed before the body's end"),
            Self::Malformed(why) => write!(f, "malformed body: {why}"),
            Self::Io(kind) => write!(f, "connection failed: {kind}"),
        }
    }
}

impl std::error::Error for BodyError {}

/// Why no response head came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeError {
    /// No connection: refused, unreachable, out of descriptors.
    Connect(io::ErrorKind),
    /// A connection, but no TLS on it.
    Tls(TlsFault),
    /// No connection within the time for it.
    ConnectTimeout,
    /// The engine closed or reset before the first byte of its answer (and, on a reused connection, again on a fresh
    /// one).
    ClosedBeforeHead,
    /// The connection ended within the head.
    ClosedInHead,
    /// The head breaks a rule.
    Malformed(Malformed),
    /// No complete head within the time for it.
    FirstByteTimeout,
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(kind) => write!(f, "cannot connect: {kind}"),
            Self::Tls(fault) => write!(f, "no TLS: {fault}"),
            Self::ConnectTimeout => f.write_str("cannot connect in time"),
            Self::ClosedBeforeHead => f.write_str("connection closed before an answer"),
            Self::ClosedInHead => f.write_str("connection closed within the response head"),
            Self::Malformed(why) => write!(f, "malformed response head: {why}"),
            Self::FirstByteTimeout => f.write_str("no answer in time"),
        }
    }
}

impl std::error::Error for ExchangeError {}
