//! `pinned`: the request is for one endpoint, and no other can serve it.

use crate::scheduler::{Candidate, Context, Filter};

/// See the module.
pub struct Pinned;

impl Filter for Pinned {
    fn name(&self) -> &'static str {
        "pinned"
    }

    #[inline]
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool {
        ctx.pinned.is_none_or(|slot| slot == candidate.slot)
    }
}
