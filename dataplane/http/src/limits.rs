//! Every size and time bound of the two HTTP ends.
//!
//! Read by the server and the client half; the configured ones arrive in `ServerLimits`, the rest are constants named
//! here. Changes when a bound changes. Never decides what happens at a bound: that is said where it is met.

use std::time::Duration;

/// Buffer of a connection that waits for its next head.
pub const IDLE_BUF_BYTES: usize = 4 * 1024;
/// Longest request line, when the limit for whole heads allows it.
pub const REQUEST_LINE_BYTES_MAX: usize = 16 * 1024;
/// Empty lines in front of a request that are skipped.
pub const LEADING_LINES_MAX: usize = 4;
/// More headers than this cannot be configured; the parser's table lives on the stack.
pub const HEADERS_MAX: usize = 256;
/// Names and words in the `Connection` headers of one message.
pub const CONNECTION_OPTIONS_MAX: usize = 32;
/// Longest chunk-size line, its extension included.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// All trailers of one chunked body together.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Longest head an engine may send.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Interim (1xx) answers skipped before the final one.
pub const INTERIM_HEADS_MAX: usize = 8;
/// Room reserved for a body before any of it has come.
pub const BODY_FIRST_RESERVE_BYTES: usize = 1024 * 1024;
/// A sender must bring this much of a body, or its rest, within each `client_body`.
pub const BODY_PROGRESS_BYTES: usize = 64 * 1024;
/// Bytes read and thrown away after an answer to a request whose body was not read.
pub const LINGER_BYTES_MAX: usize = 256 * 1024;
/// Time given to the same.
pub const LINGER_TIME: Duration = Duration::from_secs(1);
/// Head buffers a core's pool keeps for reuse.
pub const SPARE_BUFS_MAX: usize = 64;
/// Largest buffer between an engine and a client.
pub const CHUNK_BUF_BYTES_MAX: usize = 64 * 1024;

/// Bounds on what one client connection may send, and how slowly.
///
/// Units: sizes in bytes. Owner: one per core, shared by its connections.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Whole head, request line included: 431 above.
    pub header_bytes: usize,
    /// Header lines: 431 above. At most [`HEADERS_MAX`].
    pub headers: usize,
    /// Decoded body: 413 above.
    pub body_bytes: u64,
    /// From a head's first byte to its last: 408 after.
    pub client_header: Duration,
    /// For each [`BODY_PROGRESS_BYTES`] of a body: 408 after.
    pub client_body: Duration,
    /// Between two requests of a connection, and for a client to take in a whole answer of ours: closed without a word
    /// after.
    pub client_idle: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            header_bytes: 32 * 1024,
            headers: 128,
            body_bytes: 64 * 1024 * 1024,
            client_header: Duration::from_secs(10),
            client_body: Duration::from_secs(60),
            client_idle: Duration::from_secs(75),
        }
    }
}

/// The part of the bounds a head is held against while it is read.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// First line, without its line end.
    pub first_line_bytes: usize,
    /// Whole head.
    pub bytes: usize,
    /// Header lines.
    pub headers: usize,
}

impl ServerLimits {
    /// The bounds of a request head.
    pub fn head(&self) -> HeadLimits {
        HeadLimits {
            first_line_bytes: self.header_bytes.min(REQUEST_LINE_BYTES_MAX),
            bytes: self.header_bytes,
            headers: self.headers.min(HEADERS_MAX),
        }
    }
}

impl HeadLimits {
    /// The bounds of a response head.
    pub const RESPONSE: Self =
        Self { first_line_bytes: 8 * 1024, bytes: RESPONSE_HEAD_BYTES_MAX, headers: HEADERS_MAX };
}
