//! Filter, score, pick: which endpoint of a pool gets a request.
//!
//! [`run`] is the pipeline; [`registry`] turns names of the configuration into plugins; [`profile`] is a set of them;
//! [`cached`] is where a prompt is cached; [`explain`] is what a decision says of itself when asked. Each plugin is one
//! file under `filters/`, `scorers/`, `pickers/` and one line in the registry.

pub mod cached;
pub mod explain;
pub mod filters;
pub mod pickers;
pub mod profile;
pub mod registry;
pub mod run;
pub mod scorers;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedPool, ArchivedRouteTable};
use llmgw_types::{BoardSlot, CoreId, EndpointIdx};

use crate::board::Board;
use crate::endpoint::Sample;

use self::cached::Cached;

/// An endpoint that may get the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Row of the route table.
    pub endpoint: EndpointIdx,
    /// Position among the pool's members.
    pub member: u32,
    /// Column of the load board.
    pub slot: BoardSlot,
    /// Share within the pool, above 0: what is configured, less while the endpoint starts slowly.
    pub weight: f32,
    /// Whether it has an address to connect to.
    pub has_addr: bool,
}

/// What filters and scorers may look at.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Cells of cores and engines.
    pub board: &'a Board,
    /// The core that decides.
    pub core: CoreId,
    /// When it decides.
    pub now: Mono,
    /// An engine's sample from before says nothing any more.
    pub fresh_from: Mono,
    /// Requests in an engine's own queue at which it counts as full.
    pub target_waiting: u32,
    /// Fill of an engine's KV cache above which it is avoided.
    pub kv_ceiling: f32,
    /// The pool's priority over that of the model's first pool, 0 to 1.
    pub pool_priority: f32,
    /// Endpoints this request was already tried at.
    pub excluded: &'a [BoardSlot],
    /// The only endpoint that may get it.
    pub pinned: Option<BoardSlot>,
    /// The endpoint its session belongs to.
    pub session: Option<BoardSlot>,
    /// Where its prompt is cached; absent where nobody looks.
    pub cached: Option<Cached<'a>>,
    /// What a token that is not cached weighs, for a profile by cost.
    pub w_overlap: f32,
}

impl<'a> Context<'a> {
    /// What a request to a model's pool is judged by on `core`, before anything is known of the request itself.
    pub fn of(
        board: &'a Board,
        core: CoreId,
        now: Mono,
        table: &ArchivedRouteTable,
        route: &ArchivedModelRoute,
        pool: &ArchivedPool,
    ) -> Self {
        let first = route.pools.first().and_then(|row| table.pools.get(row.to_native() as usize));
        let highest = first.map_or(1, |pool| pool.priority.to_native().max(1));
        Self {
            board,
            core,
            now,
            fresh_from: Mono(now.0.saturating_sub(u64::from(table.stale_after_ms.to_native()) * 1_000_000)),
            target_waiting: pool.thresholds.target_waiting.to_native(),
            kv_ceiling: pool.thresholds.kv_ceiling.to_native(),
            pool_priority: pool.priority.to_native() as f32 / highest as f32,
            excluded: &[],
            pinned: None,
            session: None,
            cached: None,
            w_overlap: 1.0,
        }
    }

    /// The engine's sample, if it is fresh enough to count.
    #[inline]
    pub fn sample(&self, slot: BoardSlot) -> Option<Sample> {
        self.board.endpoint(slot).fresh_sample(self.fresh_from)
    }
}

/// Drops candidates that must not get the request.
pub trait Filter: Sync {
    /// Name in metrics and explanations.
    fn name(&self) -> &'static str;
    /// Whether the candidate stays.
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool;
}

/// Says how good candidates are, 0 to 1, 1 best; below 0 for what is to be avoided.
pub trait Scorer: Sync {
    /// Name in configuration, metrics and explanations.
    fn name(&self) -> &'static str;
    /// Writes one score a candidate.
    ///
    /// Shape: `scores` is as long as `candidates` and in the same order. Cost: no allocation.
    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]);
}

/// What a picker draws from.
pub struct Draw<'a> {
    /// The core's generator.
    pub chance: &'a mut Chance,
    /// The pool's turn on this core; grows by one with each pick in turn.
    pub turn: &'a mut u32,
    /// Of `softmax`.
    pub temperature: f32,
}

/// Chooses from scores.
pub trait Picker: Sync {
    /// Name in configuration.
    fn name(&self) -> &'static str;
    /// Whether a session's endpoint comes before what this picker would choose.
    fn follows_sessions(&self) -> bool {
        true
    }
    /// Leaves in `candidates` only those that need a score, so that not all have to be read.
    fn shortlist(&self, candidates: &mut Vec<Candidate>, draw: &mut Draw<'_>);
    /// The position of the chosen one. `candidates` is not empty and `scores` as long.
    fn choose(&self, candidates: &[Candidate], scores: &[f32], draw: &mut Draw<'_>) -> usize;
}
