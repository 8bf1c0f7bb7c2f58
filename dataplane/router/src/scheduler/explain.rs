//! What a decision says of itself, for whoever asked: every candidate with the filter that dropped it or its scores,
//! the weights, and what the pick was drawn from. Enough to take the decision again.

use llmgw_types::{BandRank, BoardSlot, EndpointIdx};

use super::cached::Reuse;

/// The pools that were looked at for one request, in order; those of a later attempt after those of an earlier one.
///
/// Bound: [`POOLS_MAX`] pools; what comes after is counted and not kept.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Explanation {
    /// One for each look at a pool.
    pub pools: Vec<PoolLook>,
    /// Looks that found no room.
    pub lost: u32,
    /// The attempt that is looked for, from 1 on; whoever asks for decisions counts it up.
    pub attempt: u32,
    /// Who was asked because nobody was in order: the model's row and the endpoint.
    pub last_resort: Option<(u32, EndpointIdx)>,
    /// What was found at the gates, by whoever admits requests; none where nobody does.
    pub admission: Option<AdmissionLook>,
    /// The last attempt that was decided on was not made: the retry budget was spent.
    pub is_over_budget: bool,
}

/// How a request came by its place.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct AdmissionLook {
    /// Row of the model.
    pub model: u32,
    /// The request's band: its position among the model's.
    pub band: usize,
    /// Gates that were tried, in order, with what stood there.
    pub gates: Vec<GateLook>,
    /// Time in queues, in milliseconds.
    pub waited_ms: u64,
}

/// One gate as it was tried, right after.
#[derive(Debug, Clone, PartialEq)]
pub struct GateLook {
    /// Row of the pool.
    pub pool: u32,
    /// Requests that held a place there.
    pub load: i64,
    /// Requests there might be for one of the band to be the last of them.
    pub room: i32,
    /// The highest rank that waited for it.
    pub waiting: BandRank,
}

/// Looks at pools that one explanation keeps.
pub const POOLS_MAX: usize = 16;

/// One look at one pool.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct PoolLook {
    /// The attempt it was for.
    pub attempt: u32,
    /// Row of the model: the one that was asked for or one that stands in for it.
    pub model: u32,
    /// Row of the route table.
    pub pool: u32,
    /// Every member, in the pool's order.
    pub candidates: Vec<CandidateLook>,
    /// Scorers with their weights.
    pub scorers: Vec<(&'static str, f32)>,
    /// The picker.
    pub picker: &'static str,
    /// Of `softmax`.
    pub temperature: f32,
    /// Seed of the generator that the picker drew from.
    pub seed: u64,
    /// The turn that the picker began with.
    pub turn: u32,
    /// The member that the request's session belongs to.
    pub session: Option<u32>,
    /// The member that was chosen.
    pub chosen: Option<u32>,
    /// Of a profile by cost: what a token that is not cached weighs.
    pub w_overlap: Option<f32>,
    /// What became of the prompt; absent where nobody looked for it.
    pub reuse: Option<Reuse>,
}

/// One member.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateLook {
    /// Row of the route table.
    pub endpoint: EndpointIdx,
    /// Column of the load board.
    pub slot: BoardSlot,
    /// Its weight as it counted.
    pub weight: f32,
    /// The filter that dropped it.
    pub dropped_by: Option<&'static str>,
    /// Blocks of the prompt that it is taken to have; absent where nobody looked.
    pub cached: Option<u32>,
    /// Tokens of prefill that this core gave it lately beyond its share; absent where they do not count.
    pub beyond: Option<f32>,
    /// One a scorer; empty where the picker asked for none.
    pub scores: Vec<f32>,
}

impl Explanation {
    /// A look at a pool of a model, to be filled, while there is room.
    pub(crate) fn next(&mut self, model: u32, pool: u32) -> Option<&mut PoolLook> {
        if self.pools.len() >= POOLS_MAX {
            self.lost += 1;
            return None;
        }
        self.pools.push(PoolLook { attempt: self.attempt, model, pool, ..PoolLook::default() });
        self.pools.last_mut()
    }
}
