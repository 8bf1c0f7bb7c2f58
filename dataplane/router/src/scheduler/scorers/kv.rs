//! `kv`: how much of an engine's KV cache is free. Above the ceiling an engine is taken only when all are there.

use crate::scheduler::{Candidate, Context, Scorer};

/// Taken off above the ceiling: more than all other scorers of a profile give together at usual weights.
pub(crate) const PENALTY: f32 = 8.0;

/// See the module.
pub struct Kv;

impl Scorer for Kv {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            *score = match ctx.sample(candidate.slot).and_then(|sample| sample.kv_usage_ratio) {
                Some(usage) if usage > ctx.kv_ceiling => 1.0 - usage - PENALTY,
                Some(usage) => 1.0 - usage,
                None => f32::NAN,
            };
        }
        super::fill_unknown(scores);
    }
}
