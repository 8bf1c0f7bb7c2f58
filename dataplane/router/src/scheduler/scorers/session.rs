//! `session`: the endpoint that the request's session belongs to. A profile that names it weighs the session against
//! the rest; in one that does not, the session's endpoint is taken.

use crate::scheduler::{Candidate, Context, Scorer};

/// See the module.
pub struct Session;

impl Scorer for Session {
    fn name(&self) -> &'static str {
        "session"
    }

    fn score(&self, ctx: &Context<'_>, candidates: &[Candidate], scores: &mut [f32]) {
        for (candidate, score) in candidates.iter().zip(scores.iter_mut()) {
            *score = if ctx.session == Some(candidate.slot) { 1.0 } else { 0.0 };
        }
    }
}
