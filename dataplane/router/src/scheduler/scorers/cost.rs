//! `cost`: what the request costs an engine, in tokens of prefill: what is not cached of its prompt, times the
//! profile's `w_overlap`, and what the engine has to do before and was given lately beyond its share. Stands alone: a
//! profile by cost has no other weights. Above the ceiling of its KV cache an engine is taken only when all are there.

use super::kv::PENALTY;
use crate::scheduler::cached::work;
use crate::scheduler::{Candidate, Context, Scorer};

/// See the module.
pub struct Cost;

impl Scorer for Cost {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        let mut lowest = f32::INFINITY;
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            let prompt = ctx.cached.map(|cached| (cached.tokens_left(candidate), cached.beyond(ctx.core, candidate)));
            let (left, beyond) = prompt.unwrap_or_default();
            *score = work(ctx, candidate).cost(ctx.w_overlap, left, beyond);
            lowest = lowest.min(*score);
        }
        // What all cost alike says nothing, and may be below 0.
        scores.iter_mut().for_each(|score| *score -= lowest);
        super::invert(scores);
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            let usage = ctx.sample(candidate.slot).and_then(|sample| sample.kv_usage_ratio);
            if usage.is_some_and(|usage| usage > ctx.kv_ceiling) {
                *score -= PENALTY;
            }
        }
    }
}
