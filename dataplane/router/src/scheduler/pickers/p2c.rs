//! `p2c`, power of two choices: two drawn at random, the better one. Reads two endpoints whatever the pool's size, and
//! does not herd when many cores decide on the same numbers.

use llmgw_kit::chance::Chance;

use crate::scheduler::{Candidate, Picker};

/// See the module.
pub struct PowerOfTwo;

impl Picker for PowerOfTwo {
    fn name(&self) -> &'static str {
        "p2c"
    }

    fn shortlist(&self, candidates: &mut Vec<Candidate>, chance: &mut Chance) {
        let count = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
        if count <= 2 {
            return;
        }
        let first = chance.below(count);
        let second = (first + 1 + chance.below(count - 1)) % count;
        candidates.swap(0, first as usize);
        // The first draw may have moved what the second one named.
        let second = if second == 0 { first } else { second };
        candidates.swap(1, second as usize);
        candidates.truncate(2);
    }

    fn choose(&self, scores: &[f32], chance: &mut Chance) -> usize {
        super::MaxScore.choose(scores, chance)
    }
}
