//! `prefix`: the part of the prompt that an engine has cached. Nothing for anybody where the prompt is not to be
//! followed, or nobody looked.

use crate::scheduler::{Candidate, Context, Scorer};

/// See the module.
pub struct Prefix;

impl Scorer for Prefix {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        let cached = ctx.cached.filter(|cached| cached.is_followed);
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            *score = cached.map_or(0.0, |cached| cached.part(candidate));
        }
    }
}
