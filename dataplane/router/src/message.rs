//! What threads say to cores. Every message names who sends it, its bound and what its loss costs.

use llmgw_kit::clock::Mono;
use llmgw_types::{BandRank, BoardSlot, CoreId, PoolSlot};

use crate::breaker::Failure;
use crate::limiter::{ToHome, ToOwner};
use crate::session_table::{Holder, Subject};

/// A question, to be named by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Who asks.
    pub core: CoreId,
    /// Its own for the life of that core.
    pub number: u64,
}

/// Pools that one ticket waits for.
pub const TICKET_POOLS_MAX: usize = 5;

/// The pools that a ticket may use, in its order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketPools([u16; TICKET_POOLS_MAX]);

/// No pool; the board has fewer slots.
const NO_POOL: u16 = u16::MAX;

impl TicketPools {
    /// One by one.
    pub fn iter(self) -> impl Iterator<Item = PoolSlot> {
        self.0.into_iter().take_while(|slot| *slot != NO_POOL).map(|slot| PoolSlot(slot.into()))
    }
}

impl FromIterator<PoolSlot> for TicketPools {
    /// The first few, as many as a ticket waits for.
    fn from_iter<I: IntoIterator<Item = PoolSlot>>(pools: I) -> Self {
        let mut slots = [NO_POOL; TICKET_POOLS_MAX];
        for (to, pool) in slots.iter_mut().zip(pools) {
            *to = u16::try_from(pool.0).unwrap_or(NO_POOL);
        }
        Self(slots)
    }
}

/// A request that asks for a place in one of its pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueue {
    /// Who asks, to be named by the answer.
    pub ticket: Ticket,
    /// Hash of the base model's name: whose queue it is.
    pub gate: u64,
    /// The table that names its pools: a slot may be another pool's in another.
    pub generation: u64,
    /// Hash of who shares a turn; two that collide share one.
    pub tenant: u32,
    /// Until when it waits, at the longest.
    pub deadline: Mono,
    /// What it is estimated to cost, tokens.
    pub cost: u32,
    /// What it holds in memory while it waits.
    pub bytes: u32,
    /// Where it may run.
    pub pools: TicketPools,
    /// Its rank.
    pub band: BandRank,
}

/// Why a request was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its band's queue, or the whole queue with nobody below it, is full.
    Full,
    /// It waited as long as it may.
    Ttl,
    /// Its client left. Never sent: the home core is who knows.
    ClientGone,
    /// None of its pools is there any more.
    NoEndpoint,
    /// It made room for one of a higher band.
    Displaced,
    /// The owner has more to do than it can: its lane is full. Never sent: the home core is who knows.
    Overloaded,
}

impl Refusal {
    /// All of them, in the order of metrics.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Ttl, Self::ClientGone, Self::NoEndpoint, Self::Displaced, Self::Overloaded];

    /// The word in metrics and explanations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Ttl => "ttl",
            Self::ClientGone => "client_gone",
            Self::NoEndpoint => "no_endpoint",
            Self::Displaced => "displaced",
            Self::Overloaded => "overloaded",
        }
    }
}

/// A message in a core's mailbox. Small, since every lane holds many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreMessage {
    /// A newer [`crate::feed::Feed`] lies ready.
    ///
    /// From: side. Bound: one a publication. Loss: the next publication says it again.
    FeedReady,
    /// Newer [`crate::tenants::Tenants`] lie ready.
    ///
    /// From: the thread that watches the store. Bound: one a publication. Loss: never, it waits in the outbox.
    TenantsReady,
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
    /// A request asks the owner of its gate for a place. Answered by [`CoreMessage::Granted`] or
    /// [`CoreMessage::Refused`].
    ///
    /// From: a home core whose gates were shut. Bound: one a request. Loss: where the lane is full the request is
    /// refused as overloaded, and the pools it looked at are nudged.
    Enqueue(Enqueue),
    /// The receiver's question does not stand any more: its client left, or its own deadline passed.
    ///
    /// From: the home core that asked. Bound: one an Enqueue. Loss: never, it waits in the outbox.
    Withdraw(Ticket),
    /// A place in the pool was given up, or there is new room, while somebody waits for it.
    ///
    /// From: any core; side. Bound: one a pool on its way out of a core. Loss: never, it is owed until it is sent.
    Nudge(PoolSlot),
    /// The receiver's request has a place in that pool; the sender has counted it, the receiver counts it down.
    ///
    /// From: the owner of the gate. Bound: one an Enqueue. Loss: never, it waits in the outbox.
    Granted(Ticket, PoolSlot),
    /// The receiver's request is not admitted.
    ///
    /// From: the owner of the gate. Bound: one an Enqueue. Loss: never, it waits in the outbox.
    Refused(Ticket, Refusal),
    /// A home core asks for, reports or corrects what is used of an organisation's limits that the receiver owns.
    ///
    /// From: any core. Bound and loss: see [`ToOwner`].
    ToLimiter(ToOwner),
    /// The owner of an organisation's limits answers, or wants its slices back.
    ///
    /// From: the core that owns them. Bound and loss: see [`ToHome`].
    FromLimiter(ToHome),
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

const _: () = assert!(size_of::<CoreMessage>() <= 72);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_carries_its_first_pools_in_order() {
        let pools = |slots: std::ops::Range<u32>| slots.map(PoolSlot).collect::<TicketPools>();
        assert_eq!(pools(3..6).iter().map(|pool| pool.0).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(pools(0..9).iter().count(), TICKET_POOLS_MAX);
        assert_eq!(pools(0..0).iter().count(), 0);
    }
}
