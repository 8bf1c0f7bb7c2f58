//! `softmax`: drawn with a chance of weight × e^(score / temperature). Temperature 0 is `max-score`; a small one breaks
//! the swing of many cores that decide alike.

use crate::scheduler::{Candidate, Draw, Picker};

/// See the module.
pub struct Softmax;

impl Picker for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn shortlist(&self, _candidates: &mut Vec<Candidate>, _draw: &mut Draw<'_>) {}

    fn choose(&self, candidates: &[Candidate], scores: &[f32], draw: &mut Draw<'_>) -> usize {
        if draw.temperature <= 0.0 {
            return super::MaxScore.choose(candidates, scores, draw);
        }
        // Against the best, so that no power overflows: the best has e^0.
        let best = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let temperature = draw.temperature;
        let chance_of = |candidate: &Candidate, score: f32| {
            f64::from(candidate.weight) * f64::from((score - best) / temperature).exp()
        };
        let sum: f64 = candidates.iter().zip(scores).map(|(candidate, &score)| chance_of(candidate, score)).sum();
        let mut left = draw.chance.unit() * sum;
        for (at, (candidate, &score)) in candidates.iter().zip(scores).enumerate() {
            left -= chance_of(candidate, score);
            if left < 0.0 {
                return at;
            }
        }
        // Rounding left a rest: the best takes it.
        scores.iter().position(|&score| score == best).unwrap_or(0)
    }
}
