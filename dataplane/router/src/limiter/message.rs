//! What home cores and owners of limits say to each other. Lanes keep the order of two cores' messages: a slice reaches
//! its home core before a recall that was sent after it.

use llmgw_types::CoreId;

use crate::quota::{Amounts, Measure, Measures, Scope};

/// From a home core to the owner of an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToOwner {
    Reserve(Reserve),
    Report(Report),
    Settle(Settle),
    Look(Look),
}

/// Asks for so much of every level of a chain. Answered by one [`Verdict`].
///
/// Bound: one a request that its lease does not cover, one refill a lease at a time. Loss: where the lane is full the
/// request is refused as overloaded; a refill is made later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    pub home: CoreId,
    /// Named by the verdict.
    pub number: u64,
    pub org: u64,
    pub chain: u32,
    /// The low half of the table's generation by which it asks.
    pub generation: u32,
    pub ask: Amounts,
    /// Of what the home core has little in hand: of nothing else is more lent to it.
    pub lacks: Measures,
    pub what: Want,
}

/// What is wanted of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// What is asked for, and a slice if there is one.
    Use,
    /// A slice alone, large enough for some requests as this one.
    Refill,
}

/// What was used from a lease, and what of it goes back.
///
/// Bound: a few a lease and tick, one a recall; where there is no lease, one a request that held of a stock. Loss:
/// never, it waits in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub home: CoreId,
    pub chain: u32,
    pub used_requests: i32,
    pub used_tokens: i64,
    pub used_units: i64,
    pub back: Amounts,
    /// When requests and tokens were used.
    pub tick: u32,
    /// In which second's period units were.
    pub second: u32,
    /// The newest slice that had arrived.
    pub slices: u16,
    /// Whether nothing of the slices is left at home, nor will be put there.
    pub closes: bool,
    /// Whether this answers a recall.
    pub answers: bool,
}

/// Corrects what a request was charged when it was admitted.
///
/// Bound: one a request, where there is no lease; else a few a tick. Loss: never, it waits in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    pub org: u64,
    pub chain: u32,
    /// Of the chain by which it was charged.
    pub version: u32,
    /// When it was admitted; for more than was reserved, when it ended.
    pub tick: u32,
    /// Not used after all; negative: used beyond what was reserved.
    pub requests: i32,
    pub tokens: i64,
}

/// Asks what is used of one level of a chain, for its holder to read. Answered by [`ToHome::Stands`].
///
/// Bound: one at a time for each question. Loss: the wait for the answer has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub home: CoreId,
    pub number: u64,
    pub chain: u32,
    /// Position in the chain.
    pub nth: u8,
}

/// From the owner of an organisation to a home core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHome {
    Verdict(Verdict),
    /// Everything that is left of the slices of a chain is to be reported now. Answered by one [`Report`].
    ///
    /// Bound: one at a time for each lease. Loss: never, it waits in the outbox.
    Recall {
        chain: u32,
        org: u64,
        /// The newest slice that was sent.
        slices: u16,
    },
    Stands(Standing),
}

/// The owner's answer. Bound: one a [`Reserve`]. Loss: never, it waits in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Of the question.
    pub number: u64,
    /// What is left at the owner after it, at the tightest level.
    pub remaining: Remaining,
    pub word: Word,
}

/// What is left of a window, as far as it is known; at most what a header can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    pub requests: i32,
    pub tokens: i64,
}

/// See [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It is charged, at that tick and second.
    Yes {
        slice: Amounts,
        version: u32,
        tick: u32,
        second: u32,
        slices: u16,
    },
    No(Refused),
    /// Nothing limits that chain any more.
    Free,
}

/// What a request was refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub measure: Measure,
    pub scope: Scope,
    pub of_model: bool,
    /// What that level is held to.
    pub limit: i64,
    /// Units: seconds; `None` where waiting does not help.
    pub retry_s: Option<u32>,
}

/// What is used of one level at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Of the question.
    pub number: u64,
    /// In the window, as far as home cores have reported.
    pub requests: i64,
    pub tokens: i64,
    /// Spent in the period.
    pub units: i64,
    /// Reserved by what runs, lent to home cores, and not reported yet.
    pub held: Amounts,
    /// When the budget's period ends. Units: unix seconds; the highest number where it has none.
    pub period_end: u32,
}
