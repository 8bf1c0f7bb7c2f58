//! When calls are due. Pure.

use std::time::Duration;

/// A constant rate from a start: call `n` is due `n` gaps after it, whatever became of the earlier ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constant {
    start_ns: u64,
    gap_ns: f64,
    next: u64,
}

impl Constant {
    pub(crate) fn new(start_ns: u64, calls_per_second: f64) -> Self {
        Self { start_ns, gap_ns: 1e9 / calls_per_second.max(1e-3), next: 0 }
    }

    /// When the next call is due.
    pub(crate) fn next_ns(&self) -> u64 {
        self.start_ns + (self.next as f64 * self.gap_ns) as u64
    }

    /// Takes the next call if it is due by now, with the time at which it was.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns();
        (due <= now_ns).then(|| {
            self.next += 1;
            due
        })
    }
}

/// When each of so many connections begins, spread evenly over a time.
pub(crate) fn ramp(start_ns: u64, count: usize, over: Duration) -> impl Fn(usize) -> u64 {
    let step = over.as_nanos() as f64 / count.max(1) as f64;
    move |idx| start_ns + (idx as f64 * step) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_of_the_generator_does_not_move_what_is_due() {
        let mut schedule = Constant::new(1000, 1e6);
        assert_eq!(schedule.take(999), None);
        assert_eq!(schedule.take(1000), Some(1000));
        assert_eq!(schedule.take(1500), None);
        let late: Vec<u64> = std::iter::from_fn(|| schedule.take(6000)).collect();
        assert_eq!(late, [2000, 3000, 4000, 5000, 6000]);
        assert_eq!(schedule.next_ns(), 7000);
    }

    #[test]
    fn the_rate_does_not_drift() {
        let mut schedule = Constant::new(0, 7.0);
        for _ in 0..7_000 {
            schedule.take(u64::MAX);
        }
        assert_eq!(schedule.next_ns(), 1_000_000_000_000);
    }

    #[test]
    fn a_ramp_spreads_the_starts() {
        let at = ramp(10, 4, Duration::from_nanos(400));
        assert_eq!([at(0), at(1), at(3)], [10, 110, 310]);
        assert_eq!(ramp(10, 4, Duration::ZERO)(3), 10);
    }
}
