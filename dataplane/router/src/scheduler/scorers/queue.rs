//! `queue`: how much of the allowed queue an engine has left.

use crate::scheduler::{Candidate, Context, Scorer};

/// See the module.
pub struct Queue;

impl Scorer for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        let target = ctx.target_waiting.max(1) as f32;
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            *score = match ctx.sample(candidate.slot) {
                Some(sample) => 1.0 - (sample.waiting as f32 / target).min(1.0),
                None => f32::NAN,
            };
        }
        super::fill_unknown(scores);
    }
}
