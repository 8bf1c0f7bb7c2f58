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
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            let requests = ctx.board.in_flight(candidate.slot).max(0);
            let tokens = ctx.board.tokens_in_flight(candidate.slot).max(0);
            *score = (requests * REQUEST_TOKENS + tokens) as f32 / candidate.weight;
        }
        super::invert(scores);
    }
}
