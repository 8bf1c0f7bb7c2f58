//! What threads say to cores. Every message names who sends it, its bound and what its loss costs.

use llmgw_types::BoardSlot;

use crate::breaker::Failure;

/// A message in a core's mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreMessage {
    /// A newer [`crate::feed::Feed`] lies ready.
    ///
    /// From: side. Bound: one a publication. Loss: the next publication says it again.
    FeedReady,
    /// A request failed at an endpoint that the receiver owns.
    ///
    /// From: any core. Bound: one an attempt. Loss: where the lane is full the next failure says it again.
    Failure(Failure),
    /// An endpoint that the receiver owns answered while its breaker was not closed.
    ///
    /// From: any core. Bound: one an attempt, and only then. Loss: the next trial says it again.
    Success(BoardSlot),
    /// An endpoint that the receiver owns fails far more than the others of a pool.
    ///
    /// From: the core that owns the pool. Bound: one an endpoint and look. Loss: the next look says it again.
    Eject(BoardSlot),
    /// Answer on with `Connection: close`, so that clients move elsewhere; the listener stays open.
    ///
    /// From: side, once a process. Loss: never, it waits in the outbox.
    Settle,
    /// Accept no more, close idle connections, end when the last request has.
    ///
    /// From: side, once a process. Loss: never, it waits in the outbox.
    Drain,
    /// As `Drain`, and what runs is cut now.
    ///
    /// From: side, once a process. Loss: never, it waits in the outbox.
    Cut,
}
