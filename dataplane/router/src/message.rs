//! What threads say to cores. Every message names who sends it, its bound and what its loss costs.

use llmgw_types::{BoardSlot, CoreId};

use crate::breaker::Failure;
use crate::session_table::{Holder, Subject};

/// A question, to be named by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Who asks.
    pub core: CoreId,
    /// Its own for the life of that core.
    pub number: u64,
}

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
    /// The metrics of an endpoint that the receiver owns were not to be had several times in a row.
    ///
    /// From: side. Bound: one a scrape. Loss: the next failed scrape says it again.
    MetricsLost(BoardSlot),
    /// They were read again.
    ///
    /// From: side. Bound: one a scrape, while the endpoint's breaker is not closed. Loss: the next scrape says it
    /// again.
    MetricsBack(BoardSlot),
    /// Who has a session or a stored response that the receiver owns? Answered by [`CoreMessage::Located`].
    ///
    /// From: any core, for a session that may be away from its own engine and for a stored response. Bound: one a
    /// request. Loss: the request goes on as for something unknown.
    Locate(Subject, Ticket),
    /// The answer to the receiver's question.
    ///
    /// From: the core that owns what was asked for. Bound: one a question. Loss: the wait for it has a bound.
    Located(Ticket, Option<Holder>),
    /// Who has a session or a stored response that the receiver owns; nobody, when it is to be forgotten.
    ///
    /// From: any core. Bound: one an attempt whose session is not where it was known to be, one a stored answer. Loss:
    /// a session is placed anew; a follow-up to the answer goes to any engine.
    Placed(Subject, Option<Holder>),
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
