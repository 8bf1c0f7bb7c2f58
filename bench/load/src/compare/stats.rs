//! Medians, spreads and ratios over rounds. Pure.

use serde::Serialize;

/// Below this a difference on a shared machine is none.
pub(crate) const NO_DIFFERENCE: f64 = 0.15;

/// The middle and the ends of one figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let upper = *sorted.get(count / 2)?;
        let lower = *sorted.get((count - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), min, max, count })
    }

    /// The ratio of two figures, round by round: a slow round then falls on both.
    pub(crate) fn ratio(ours: &[(usize, f64)], theirs: &[(usize, f64)]) -> Option<Self> {
        let of_round = |round| theirs.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
        Self::of(ours.iter().filter_map(|(round, value)| Some(value / of_round(*round).filter(|other| *other > 0.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expected: Option<(f64, f64, f64)>) {
        let found = Spread::of(values.iter().copied()).map(|spread| (spread.median, spread.min, spread.max));
        assert_eq!(found, expected, "{values:?}");
    }

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        check(&[], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[9.0, 1.0, 2.0], Some((2.0, 1.0, 9.0)));
        check(&[4.0, 1.0, 2.0, 10.0], Some((3.0, 1.0, 10.0)));
        check(&[f64::NAN, 1.0], Some((1.0, 1.0, 1.0)));
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let ours = [(0, 10.0), (1, 40.0), (2, 7.0)];
        let theirs = [(0, 5.0), (1, 20.0), (3, 1.0)];
        let ratio = Spread::ratio(&ours, &theirs).expect("two rounds have both");
        assert_eq!((ratio.median, ratio.min, ratio.max, ratio.count), (2.0, 2.0, 2.0, 2));
        assert_eq!(Spread::ratio(&ours, &[(0, 0.0)]), None);
    }
}
