//! `pinned`: the request is for one endpoint only. Whoever dispatches asks again without the pin when that one is gone
//! or out.

use crate::scheduler::{Candidate, Context, Filter};

/// See the module.
pub struct Pinned;

impl Filter for Pinned {
    fn name(&self) -> &'static str {
        "pinned"
    }

    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool {
        ctx.pinned.is_none_or(|slot| slot == candidate.slot)
    }
}
