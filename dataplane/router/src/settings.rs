//! What requests are held to, as it travels to the cores: sizes, times, habits that may change while the gateway runs.
//!
//! Made by the side runtime from the configuration, carried by every [`crate::feed::Feed`]. A request keeps the
//! settings it began with. What cannot change while the gateway runs is not here.

use std::time::Duration;

/// How requests are treated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bounds on what clients send.
    pub limits: Limits,
    /// Bounds on how long each step may take.
    pub timeouts: Timeouts,
    /// How often a request may be tried again at another endpoint.
    pub retries: u16,
    /// How long an endpoint that failed gets no requests.
    pub cooldown: Duration,
    /// Whether usage is asked for on behalf of clients that did not.
    pub inject_usage: bool,
}

/// The largest requests taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and header fields together.
    pub header_bytes: usize,
    /// Number of header fields.
    pub headers: usize,
    /// The body.
    pub body_bytes: u64,
}

/// Time limits. Those towards engines end the request with an error that names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For all connections that a request tries.
    pub connect: Duration,
    /// From the request sent to the answer's head, and to a stream's first token.
    pub first_token: Duration,
    /// Between two events of a stream, or two pieces of another answer.
    pub between_events: Duration,
    /// For the whole request.
    pub total: Duration,
    /// For requests still running when the core is told to end.
    pub drain: Duration,
    /// For a client to send its head.
    pub client_header: Duration,
    /// For a client to send its body, piece by piece.
    pub client_body: Duration,
    /// For an idle client connection.
    pub client_idle: Duration,
}
