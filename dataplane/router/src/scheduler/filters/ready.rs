//! `ready`: the endpoint has an address and answered its last check.

use crate::scheduler::{Candidate, Context, Filter};

/// See the module.
pub struct Ready;

impl Filter for Ready {
    fn name(&self) -> &'static str {
        "ready"
    }

    #[inline]
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool {
        candidate.has_addr && ctx.board.is_ready(candidate.slot)
    }
}
