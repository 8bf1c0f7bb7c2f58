//! What threads say to cores. Every message names who sends it, its bound and what its loss costs.

/// A message in a core's mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreMessage {
    /// A newer [`crate::feed::Feed`] lies ready.
    ///
    /// From: side. Bound: one a publication. Loss: the next publication says it again.
    FeedReady,
    /// Answer on with `Connection: close`, so that clients move elsewhere; the listener stays open.
    ///
    /// From: side, once a process. Loss: never, it waits in the outbox.
    Settle,
    /// Accept no more, close idle connections, end when the last request has.
    ///
    /// From: side, once a process. Loss: never, it waits in the outbox.
    Drain,
}
