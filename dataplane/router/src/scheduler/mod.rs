//! Filter, score, pick: which endpoint of a pool gets a request.
//!
//! [`run`] is the pipeline; [`registry`] turns names of the configuration into plugins; [`profile`] is a set of them.
//! Each plugin is one file under `filters/`, `scorers/`, `pickers/` and one line in the registry.

pub mod filters;
pub mod pickers;
pub mod profile;
pub mod registry;
pub mod run;
pub mod scorers;

use llmgw_types::{BoardSlot, EndpointIdx};

use crate::board::Board;

/// An endpoint that may get the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Row of the route table.
    pub endpoint: EndpointIdx,
    /// Position among the pool's members.
    pub member: u32,
    /// Column of the load board.
    pub slot: BoardSlot,
    /// Share within the pool, 1 or more.
    pub weight: u32,
    /// Whether it has an address to connect to.
    pub has_addr: bool,
}

/// What filters and scorers may look at.
pub struct Context<'a> {
    /// Cells of cores and engines.
    pub board: &'a Board,
    /// Endpoints this request was already tried at.
    pub excluded: &'a [BoardSlot],
}

/// Drops candidates that must not get the request.
pub trait Filter: Sync {
    /// Name in configuration, metrics and explanations.
    fn name(&self) -> &'static str;
    /// Whether the candidate stays.
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool;
}

/// Says how good candidates are, 0 to 1, 1 best.
pub trait Scorer: Sync {
    /// Name in configuration, metrics and explanations.
    fn name(&self) -> &'static str;
    /// Writes one score a candidate.
    ///
    /// Shape: `scores` is as long as `candidates` and in the same order. Cost: no allocation.
    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]);
}

/// Chooses from scores.
pub trait Picker: Sync {
    /// Name in configuration.
    fn name(&self) -> &'static str;
    /// Leaves in `candidates` only those that need a score, so that not all have to be read.
    fn shortlist(&self, candidates: &mut Vec<Candidate>, chance: &mut llmgw_kit::chance::Chance);
    /// The position of the chosen one. `scores` is not empty.
    fn choose(&self, scores: &[f32], chance: &mut llmgw_kit::chance::Chance) -> usize;
}
