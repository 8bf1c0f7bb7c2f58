//! `pool-priority`: the pool's priority, relative to the model's first pool. The same for all members of a pool: pools
//! are tried in that order in any case, so it shows in explanations and moves nothing within a pool.

use crate::scheduler::{Candidate, Context, Scorer};

/// See the module.
pub struct PoolPriority;

impl Scorer for PoolPriority {
    fn name(&self) -> &'static str {
        "pool-priority"
    }

    fn score(&self, ctx: &Context<'_>, _candidates: &[Candidate], scores: &mut [f32]) {
        scores.fill(ctx.pool_priority);
    }
}
