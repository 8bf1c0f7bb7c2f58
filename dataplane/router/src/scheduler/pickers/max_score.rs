//! `max-score`: the highest score. Ties are drawn by weight, so that equals share and a larger one takes more.

use crate::scheduler::{Candidate, Draw, Picker};

/// See the module.
pub struct MaxScore;

impl Picker for MaxScore {
    fn name(&self) -> &'static str {
        "max-score"
    }

    fn shortlist(&self, _candidates: &mut Vec<Candidate>, _draw: &mut Draw<'_>) {}

    fn choose(&self, candidates: &[Candidate], scores: &[f32], draw: &mut Draw<'_>) -> usize {
        let mut best = 0;
        let (mut best_score, mut tied_weight) = (f32::NEG_INFINITY, 0.0f64);
        for (at, (candidate, &score)) in candidates.iter().zip(scores).enumerate() {
            let weight = f64::from(candidate.weight);
            if score > best_score {
                (best, best_score, tied_weight) = (at, score, weight);
            } else if score == best_score {
                // An equal takes over with its weight's part of all equals so far: each ends up chosen in proportion,
                // in one pass.
                tied_weight += weight;
                if draw.chance.unit() * tied_weight < weight {
                    best = at;
                }
            }
        }
        best
    }
}
