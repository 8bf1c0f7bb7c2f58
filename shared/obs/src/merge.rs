//! Adds up the cells of all cores, so that a page shows one number a series.
//!
//! Called by the side runtime when a page is asked for. Reads cells only; keeps nothing between two calls.

use crate::metric::{Counter, Gauge, Histogram};
use crate::registry::Bounds;

pub fn counters<'a>(cells: impl IntoIterator<Item = &'a Counter>) -> u64 {
    cells.into_iter().fold(0, |sum, cell| sum.wrapping_add(cell.value()))
}

pub fn gauges<'a>(cells: impl IntoIterator<Item = &'a Gauge>) -> i64 {
    cells.into_iter().fold(0, |sum, cell| sum.wrapping_add(cell.value()))
}

pub fn histograms<'a>(bounds: Bounds, cells: impl IntoIterator<Item = &'a Histogram>) -> HistogramSum {
    let mut sum = HistogramSum::new(bounds);
    cells.into_iter().for_each(|cell| sum.add(cell));
    sum
}

/// Several cores' histograms as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSum {
    bounds: Bounds,
    buckets: Vec<u64>,
    sum_micros: u64,
}

impl HistogramSum {
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, buckets: vec![0; bounds.as_micros().len() + 1], sum_micros: 0 }
    }

    /// Adds one core's observations. Panics if its bounds are others: then two metrics were mixed up in the program.
    pub fn add(&mut self, cell: &Histogram) {
        assert_eq!(self.bounds, cell.bounds(), "only histograms of one metric add up");
        for (sum, bucket) in self.buckets.iter_mut().zip(cell.buckets()) {
            *sum = sum.wrapping_add(bucket);
        }
        self.sum_micros = self.sum_micros.wrapping_add(cell.sum_micros());
    }

    /// Upper bound in millionths (`None` is infinity) and the observations at or below it, in ascending order.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let uppers = self.bounds.as_micros().iter().copied().map(Some).chain([None]);
        uppers.zip(self.buckets.iter().scan(0u64, |below, bucket| {
            *below = below.wrapping_add(*bucket);
            Some(*below)
        }))
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.wrapping_add(*bucket))
    }

    pub fn sum_micros(&self) -> u64 {
        self.sum_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds::micros(&[10, 20]);

    #[test]
    fn what_two_cores_counted_is_one_number() {
        let (a, b) = (Counter::new(), Counter::new());
        a.add(2);
        b.add(3);
        assert_eq!(counters([&a, &b]), 5);

        let (up, down) = (Gauge::new(), Gauge::new());
        up.add(2);
        down.add(-2);
        assert_eq!(gauges([&up, &down]), 0);

        let (one, two) = (Histogram::new(BOUNDS), Histogram::new(BOUNDS));
        one.observe_micros(5);
        one.observe_micros(15);
        two.observe_micros(15);
        two.observe_micros(99);
        let sum = histograms(BOUNDS, [&one, &two]);
        assert_eq!(sum.cumulative().collect::<Vec<_>>(), [(Some(10), 1), (Some(20), 3), (None, 4)]);
        assert_eq!((sum.count(), sum.sum_micros()), (4, 134));
    }

    #[test]
    fn no_core_at_all_adds_up_to_nothing() {
        assert_eq!((counters([]), gauges([])), (0, 0));
        assert_eq!(histograms(BOUNDS, []).count(), 0);
    }
}
