//! `max-score`: the highest score; ties are drawn, so that equals share.

use llmgw_kit::chance::Chance;

use crate::scheduler::{Candidate, Picker};

/// See the module.
pub struct MaxScore;

impl Picker for MaxScore {
    fn name(&self) -> &'static str {
        "max-score"
    }

    fn shortlist(&self, _candidates: &mut Vec<Candidate>, _chance: &mut Chance) {}

    fn choose(&self, scores: &[f32], chance: &mut Chance) -> usize {
        let (mut best, mut ties) = (0, 1u32);
        for (at, score) in scores.iter().enumerate().skip(1) {
            if *score > scores[best] {
                (best, ties) = (at, 1);
            } else if *score == scores[best] {
                // The k-th equal takes over with chance 1/k: every one of them is as likely, in one pass.
                ties += 1;
                if chance.below(ties) == 0 {
                    best = at;
                }
            }
        }
        best
    }
}
