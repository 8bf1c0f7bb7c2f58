//! What was spent of a budget in its period.
//!
//! Owned by the tenant's owner core. Periods only go forward: a wall clock that steps back opens no earlier one, and
//! what belongs to a period that is over is not counted in the one after it.

use super::table::Period;

/// See the module. Owner: one core.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// When the period began. Units: unix seconds.
    start: u32,
    units: i64,
    /// Which budget this counts; a budget that is made anew is counted anew.
    epoch: u32,
}

impl Spent {
    /// So much spent in the period that began then.
    pub fn new(start: u32, units: i64, epoch: u32) -> Self {
        Self { start, units, epoch }
    }

    /// Goes on to a period, if that is a later one.
    pub fn enter(&mut self, period: Period) {
        if period.start > self.start {
            (self.start, self.units) = (period.start, 0);
        }
    }

    /// Opens an earlier period again: the simulator's mistake.
    pub(crate) fn step_back(&mut self, period: Period) {
        if period.start < self.start {
            (self.start, self.units) = (period.start, 0);
        }
    }

    /// Counts what was admitted at a second; nothing, if that was in an earlier period.
    pub fn add(&mut self, second: u32, units: i64) {
        if second >= self.start {
            self.units = self.units.saturating_add(units);
        }
    }

    pub fn units(&self) -> i64 {
        self.units
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_empty_once_and_knows_nothing_of_the_one_before() {
        let mut spent = Spent::new(100, 7, 0);
        spent.add(150, 1);
        assert_eq!(spent.units(), 8);
        spent.enter(Period { start: 200, end: 300 });
        spent.add(199, 5);
        assert_eq!(spent.units(), 0, "of the period before");
        spent.add(200, 2);
        spent.enter(Period { start: 100, end: 200 });
        assert_eq!(spent.units(), 2, "the clock stepped back");
    }
}
