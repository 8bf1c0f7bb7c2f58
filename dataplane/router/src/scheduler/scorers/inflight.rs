//! `inflight`: what this gateway itself has running there, prompts weighted by their tokens, relative to the endpoint's
//! weight. Always on: engines' own numbers are as old as their last sample, this one is exact.

use crate::board::InFlight;
use crate::scheduler::{Candidate, Context, Scorer};

/// What a request weighs before its first prompt token, in tokens: its place in the batch and its answer.
pub(crate) const REQUEST_TOKENS: i64 = 256;

/// Candidates whose cells are added up together: a core's cells for them are then read one after the other.
const AT_ONCE: usize = 64;

/// See the module.
pub struct Inflight;

impl Scorer for Inflight {
    fn name(&self) -> &'static str {
        "inflight"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        for (candidates, scores) in candidates.chunks(AT_ONCE).zip(scores.chunks_mut(AT_ONCE)) {
            let mut loads = [InFlight::default(); AT_ONCE];
            ctx.board.add_loads(candidates.iter().map(|candidate| candidate.slot), &mut loads);
            for ((candidate, score), load) in candidates.iter().zip(scores).zip(loads) {
                *score = (load.requests() * REQUEST_TOKENS + load.tokens()) as f32 / candidate.weight;
            }
        }
        super::invert(scores);
    }
}
