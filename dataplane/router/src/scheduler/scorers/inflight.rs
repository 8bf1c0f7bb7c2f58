//! `inflight`: what this gateway itself has running there, prompts weighted by their tokens, relative to the endpoint's
//! weight. Always on: engines' own numbers are as old as their last sample, this one is exact.

use crate::scheduler::{Candidate, Context, Scorer};

/// What a request weighs before its first prompt token, in tokens: its place in the batch and its answer.
pub(crate) const REQUEST_TOKENS: i64 = 256;

/// See the module.
pub struct Inflight;

impl Scorer for Inflight {
    fn name(&self) -> &'static str {
        "inflight"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        let mut most = 0.0f32;
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            let requests = ctx.board.in_flight(candidate.slot).max(0);
            let tokens = ctx.board.tokens_in_flight(candidate.slot).max(0);
            let load = (requests * REQUEST_TOKENS + tokens) as f32 / candidate.weight.max(1) as f32;
            *score = load;
            most = most.max(load);
        }
        for score in scores {
            *score = if most > 0.0 { 1.0 - *score / most } else { 1.0 };
        }
    }
}
