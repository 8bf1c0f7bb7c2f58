//! `load`: the time an engine needs for what it works on, at the rate it was seen to complete. Tells a slow engine from
//! a busy one.

use crate::scheduler::{Candidate, Context, Scorer};

/// The rate of an engine that completes nothing, in requests a second.
const RATE_MIN: f32 = 0.001;

/// See the module.
pub struct Load;

impl Scorer for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            let sample = ctx.sample(candidate.slot);
            *score = match sample.and_then(|sample| Some((sample.running, sample.drain_rate?))) {
                Some((running, rate)) => running as f32 / rate.max(RATE_MIN),
                None => f32::NAN,
            };
        }
        super::invert(scores);
        super::fill_unknown(scores);
    }
}
