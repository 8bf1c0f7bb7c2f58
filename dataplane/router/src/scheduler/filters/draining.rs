//! `draining`: the endpoint takes new work.

use crate::scheduler::{Candidate, Context, Filter};

/// See the module.
pub struct Draining;

impl Filter for Draining {
    fn name(&self) -> &'static str {
        "draining"
    }

    #[inline]
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool {
        !ctx.board.endpoint(candidate.slot).is_draining()
    }
}
