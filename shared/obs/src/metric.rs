//! The cells a number lives in: counter, gauge, histogram.
//!
//! A cell has ONE writing thread (a core, or the side runtime) and any number of readers. Writing is a plain load and
//! a plain store, no locked instruction and no fence, so a core pays for a count what an addition costs. Two writers
//! would lose counts; nothing would break. Readers see each cell whole, and different cells at slightly different
//! moments.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::registry::Bounds;

/// A number that only grows.
///
/// Owner: the one thread that adds; `value` may be called from any.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes both ways. It is signed and shown as it is: a count that fell below zero is a fault to be seen,
/// and one core may hold a negative part of a sum that several cores share.
///
/// Owner: the one thread that changes it; `value` may be called from any.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    pub fn add(&self, amount: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn decrement(&self) {
        self.add(-1);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    pub fn value(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Observations sorted into buckets, with their sum.
///
/// Units: millionths of the metric's unit, microseconds for seconds, so that sums stay exact.
/// Owner: the one thread that observes.
/// Cost: a search over some twenty integers and two stores.
///
/// The number of observations is not stored: it is the sum of the buckets, so a reader never sees a count that
/// disagrees with them.
#[derive(Debug)]
pub struct Histogram {
    bounds: Bounds,
    /// One a bound, then the one for what lies above the last.
    buckets: Box<[Counter]>,
    sum_micros: Counter,
}

impl Histogram {
    pub fn new(bounds: Bounds) -> Self {
        let buckets = (0..=bounds.as_micros().len()).map(|_| Counter::new()).collect();
        Self { bounds, buckets, sum_micros: Counter::new() }
    }

    pub fn observe_micros(&self, micros: u64) {
        let at = self.bounds.as_micros().partition_point(|upper| *upper < micros);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.increment();
        }
        self.sum_micros.add(micros);
    }

    pub fn observe(&self, duration: Duration) {
        self.observe_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Observations in each bucket on its own (not added up), the one above the last bound at the end.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.buckets.iter().map(Counter::value)
    }

    pub fn sum_micros(&self) -> u64 {
        self.sum_micros.value()
    }
}

/// One writer's cells on cache lines of their own, so that two cores that count side by side do not slow each other.
///
/// Aligned to two lines, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct OwnLines<T>(T);

impl<T> OwnLines<T> {
    pub const fn new(cells: T) -> Self {
        Self(cells)
    }
}

impl<T> std::ops::Deref for OwnLines<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::DURATION;

    #[test]
    fn a_reader_sees_what_the_writer_counted() {
        let (counter, gauge) = (Counter::new(), Gauge::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..1000 {
                    counter.increment();
                    gauge.increment();
                }
                gauge.add(-1000);
            });
            let mut last = 0;
            while last < 1000 {
                let value = counter.value();
                assert!(value >= last, "a counter never goes back");
                last = value;
            }
        });
        assert_eq!((counter.value(), gauge.value()), (1000, 0));
    }

    #[test]
    fn two_cores_cells_share_no_line() {
        let cores = [OwnLines::new(Counter::new()), OwnLines::new(Counter::new())];
        let [a, b] = cores.each_ref().map(|cells| std::ptr::from_ref::<Counter>(cells).addr());
        assert_eq!((a % 128, a.abs_diff(b) % 128), (0, 0));
        assert_ne!(a, b);
    }

    #[test]
    fn a_gauge_below_zero_is_shown_as_it_is() {
        let gauge = Gauge::new();
        gauge.decrement();
        assert_eq!(gauge.value(), -1);
    }

    #[test]
    fn an_observation_on_a_bound_belongs_to_that_bound() {
        let histogram = Histogram::new(Bounds::micros(&[0, 10, 20]));
        for micros in [0, 1, 10, 11, 20, 21, u64::MAX >> 1] {
            histogram.observe_micros(micros);
        }
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [1, 2, 2, 2]);
        assert_eq!(histogram.sum_micros(), 63 + (u64::MAX >> 1));
    }

    #[test]
    fn a_forty_minute_reply_and_an_empty_one_are_both_counted_under_a_bound() {
        let histogram = Histogram::new(DURATION);
        histogram.observe(Duration::ZERO);
        histogram.observe(Duration::from_secs(40 * 60));
        histogram.observe(Duration::from_secs(3600));
        let buckets: Vec<u64> = histogram.buckets().collect();
        assert_eq!(buckets.last(), Some(&0), "nothing beyond the last bound");
        assert_eq!(buckets.iter().sum::<u64>(), 3);
        assert_eq!(histogram.sum_micros(), 6_000_000_000);
    }

    #[test]
    fn an_absurd_duration_is_counted_above_all_bounds() {
        let histogram = Histogram::new(DURATION);
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.buckets().last(), Some(1));
    }
}
