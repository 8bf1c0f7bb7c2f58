//! `breaker`: the endpoint is not cooling down, and its breaker lets this request through.
//!
//! Before `out_until` nothing passes, whatever the breaker's state: that covers a cooldown and an open breaker alike.
//! After it, an open breaker is as a half-open one: one request at a time, over all cores, is let through as a trial.

use crate::endpoint::BreakerState;
use crate::scheduler::{Candidate, Context, Filter};

/// See the module.
pub struct Breaker;

impl Filter for Breaker {
    fn name(&self) -> &'static str {
        "breaker"
    }

    #[inline]
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool {
        let cells = ctx.board.endpoint(candidate.slot);
        if ctx.now < cells.out_until() {
            return false;
        }
        match cells.breaker() {
            BreakerState::Closed => true,
            BreakerState::Open | BreakerState::HalfOpen => ctx.board.is_trial_free(candidate.slot, ctx.now),
        }
    }
}
