//! `excluded`: the request was not tried there yet.

use crate::scheduler::{Candidate, Context, Filter};

/// See the module.
pub struct Excluded;

impl Filter for Excluded {
    fn name(&self) -> &'static str {
        "excluded"
    }

    #[inline]
    fn keeps(&self, ctx: &Context<'_>, candidate: &Candidate) -> bool {
        !ctx.excluded.contains(&candidate.slot)
    }
}
