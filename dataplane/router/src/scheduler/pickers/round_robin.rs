//! `round-robin`: in turn, whatever the scores. Each core counts each model's pool for itself from a random place on,
//! so that neither models nor cores march in step. Sessions are not followed: it is there to see every engine.

use crate::scheduler::{Candidate, Draw, Picker};

/// See the module.
pub struct RoundRobin;

impl Picker for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn follows_sessions(&self) -> bool {
        false
    }

    fn shortlist(&self, candidates: &mut Vec<Candidate>, draw: &mut Draw<'_>) {
        // Counted in 32 bits; a pool is far smaller.
        let at = *draw.turn as usize % candidates.len().max(1);
        *draw.turn = draw.turn.wrapping_add(1);
        if at < candidates.len() {
            candidates.swap(0, at);
        }
        candidates.truncate(1);
    }

    fn choose(&self, _candidates: &[Candidate], _scores: &[f32], _draw: &mut Draw<'_>) -> usize {
        0
    }
}
