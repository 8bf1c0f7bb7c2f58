//! Rounds, their median and spread, on the clock of this thread's CPU time: what other programs do on the machine then
//! moves a figure only through caches and clock rates.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::allocator;

/// How long a round of one part is to take.
const ROUND: Duration = Duration::from_millis(20);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// CPU time of the thread that does it.
    Cpu,
    /// CPU time of other threads that it is done by.
    Threads,
    /// Time that passes, where two threads work together.
    Wall,
}

/// One operation's cost over all rounds, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) clock: Clock,
    pub(crate) median_ns: f64,
    /// The quickest round and the slowest.
    pub(crate) low_ns: f64,
    pub(crate) high_ns: f64,
    /// Of the measured thread, an operation.
    pub(crate) allocations: f64,
}

/// A named timing with what is expected of it.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) timing: Timing,
    /// What it may cost, where there is a bar.
    pub(crate) bar_ns: Option<f64>,
    pub(crate) must_not_allocate: bool,
}

/// Rounds of `work`, each of as many operations as fill a round.
pub(crate) fn measure(plan: Plan, mut work: impl FnMut()) -> Timing {
    let mut count = 1u64;
    // Twice as many until a quarter of a round is filled, which also warms caches and grows buffers.
    let each_ns = loop {
        let spent = spend(count, &mut work);
        if spent >= ROUND / 4 {
            break (spent.as_nanos() as f64 / count as f64).max(0.1);
        }
        count *= 2;
    };
    let count = (ROUND.as_nanos() as f64 / each_ns).ceil() as u64;
    let before = allocator::count();
    let rounds: Vec<f64> = (0..plan.rounds).map(|_| spend(count, &mut work).as_nanos() as f64 / count as f64).collect();
    // The list of rounds is one allocation and no part of the work.
    let allocated = (allocator::count() - before).saturating_sub(1);
    let allocations = allocated as f64 / (count * plan.rounds as u64) as f64;
    Timing { allocations, ..of_rounds(Clock::Cpu, rounds) }
}

/// Median and spread of rounds, each already a time an operation. Allocations are not known here: 0.
pub(crate) fn of_rounds(clock: Clock, mut rounds_ns: Vec<f64>) -> Timing {
    rounds_ns.sort_by(f64::total_cmp);
    let at = |idx: usize| rounds_ns.get(idx).copied().unwrap_or(f64::NAN);
    let (middle, last) = (rounds_ns.len() / 2, rounds_ns.len().saturating_sub(1));
    let median_ns =
        if rounds_ns.len().is_multiple_of(2) { (at(middle.saturating_sub(1)) + at(middle)) / 2.0 } else { at(middle) };
    Timing { clock, median_ns, low_ns: at(0), high_ns: at(last), allocations: 0.0 }
}

/// Time that passes for `work`, an operation of `count`.
pub(crate) fn wall_ns(count: u64, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn spend(count: u64, work: &mut impl FnMut()) -> Duration {
    let before = cpu_time();
    (0..count).for_each(|_| work());
    cpu_time().saturating_sub(before)
}

/// CPU time of this thread so far.
pub(crate) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_rounds_is_the_middle_or_between_the_two_middles() {
        let check = |rounds: &[f64], median: f64| {
            let timing = of_rounds(Clock::Wall, rounds.to_vec());
            assert_eq!((timing.median_ns, timing.low_ns, timing.high_ns), (median, 1.0, 9.0));
        };
        check(&[9.0, 1.0, 3.0], 3.0);
        check(&[9.0, 1.0, 3.0, 5.0], 4.0);
    }

    #[test]
    fn allocations_are_counted_an_operation() {
        let timing = measure(Plan { rounds: 10 }, || drop(std::hint::black_box(vec![1u8; 4])));
        assert!((timing.allocations - 1.0).abs() < 0.001, "{timing:?}");
        assert_eq!(measure(Plan { rounds: 10 }, || _ = std::hint::black_box(1)).allocations, 0.0);
    }
}
