//! When tasks are to be polled again: one entry a task that counts, and some that do not any more.
//!
//! An entry that a task has no use for is left where it is and ignored when its time comes; so nothing is removed on
//! the way of a request. Called by `tasks`, which knows which entry counts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A deadline that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// Entries below which nobody counts how many are of no use.
const COMPACT_MIN: usize = 4096;

/// Deadlines in nanoseconds of the runtime's clock, each with a task's number.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// Entries at which it is worth a look how many still count.
    look_at: usize,
}

impl Timers {
    pub(super) fn push(&mut self, deadline: u64, task: u64) {
        self.heap.push(Reverse((deadline, task)));
    }

    /// Takes an entry whose time has come.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u64, u64)> {
        if self.heap.peek()?.0.0 > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Throws away what does not count any more, once there may be more of that than of the rest.
    pub(super) fn compact(&mut self, counts: impl Fn(u64, u64) -> bool) {
        if self.heap.len() < self.look_at.max(COMPACT_MIN) {
            return;
        }
        self.heap.retain(|&Reverse((deadline, task))| counts(deadline, task));
        self.look_at = self.heap.len() * 2;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_order_of_time_and_not_before() {
        let mut timers = Timers::default();
        for deadline in [30, 10, 20] {
            timers.push(deadline, deadline * 100);
        }
        assert_eq!((timers.pop(9), timers.next()), (None, Some(10)));
        assert_eq!((timers.pop(25), timers.pop(25), timers.pop(25)), (Some((10, 1000)), Some((20, 2000)), None));
    }

    #[test]
    fn entries_of_no_use_do_not_pile_up() {
        let mut timers = Timers::default();
        for deadline in 0..1_000_000 {
            timers.push(deadline, 0);
            timers.compact(|at, _| at == deadline);
            assert!(timers.len() <= COMPACT_MIN);
        }
    }
}
