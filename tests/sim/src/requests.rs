//! Requests of a world, and what became of each: the harness's own books, which the code under test never sees.

use llmgw_engine_sim::batch::JobId;
use llmgw_router::message::{Refusal, TicketPools};
use llmgw_types::{BandRank, PoolSlot};

/// How a request ended. Each ends in exactly one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Served,
    /// Its engine broke and it was not tried again.
    Broken,
    Refused(Refusal),
    Left,
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not there yet, or at the gates.
    New,
    /// Its slot is open: it waits for the owner's answer.
    Queued,
    /// It has a place and an endpoint.
    Running,
    Ended(Verdict),
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) home: usize,
    pub(crate) model: u32,
    pub(crate) band: BandRank,
    pub(crate) tenant: u32,
    pub(crate) cost: u32,
    pub(crate) bytes: u32,
    pub(crate) prompt: u32,
    pub(crate) output: u32,
    /// Tries that are left.
    pub(crate) retries: u32,
    pub(crate) state: State,
    pub(crate) deadline: u64,
    /// Pools it waits for, once it asked.
    pub(crate) pools: TicketPools,
    pub(crate) owner: usize,
    pub(crate) gate: u64,
    /// The table it asked by.
    pub(crate) generation: u64,
    /// The instance it runs at, and its job there once it arrived.
    pub(crate) instance: Option<usize>,
    pub(crate) job: Option<JobId>,
    /// The pool in which it holds a place: from the gate or the owner's grant to the end.
    pub(crate) holds: Option<PoolSlot>,
    /// Whether its home core counts it in that pool.
    pub(crate) counts: bool,
    /// How often it asked an owner.
    pub(crate) asks: u32,
    /// Answers its owner gave to the last, and ways in which it ended.
    pub(crate) answers: u32,
    pub(crate) verdicts: u32,
}

impl Request {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }
}
