//! `p2c`, power of two choices: two drawn at random, the better one. Reads two endpoints whatever the pool's size, and
//! does not herd when many cores decide on the same numbers.

use crate::scheduler::{Candidate, Draw, Picker};

/// See the module.
pub struct PowerOfTwo;

impl Picker for PowerOfTwo {
    fn name(&self) -> &'static str {
        "p2c"
    }

    fn shortlist(&self, candidates: &mut Vec<Candidate>, draw: &mut Draw<'_>) {
        let count = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
        if count <= 2 {
            return;
        }
        let first = draw.chance.below(count);
        let second = (first + 1 + draw.chance.below(count - 1)) % count;
        candidates.swap(0, first as usize);
        // The first draw may have moved what the second one named.
        let second = if second == 0 { first } else { second };
        candidates.swap(1, second as usize);
        candidates.truncate(2);
    }

    fn choose(&self, candidates: &[Candidate], scores: &[f32], draw: &mut Draw<'_>) -> usize {
        super::MaxScore.choose(candidates, scores, draw)
    }
}
