//! One endpoint's breaker: closed, open with a growing time, half-open for one trial at a time. Pure: the clock, the
//! counts and the draw are handed in.
//!
//! It opens after [`CONSECUTIVE_MAX`] failures without an answer between them, or when half of at least
//! [`RATIO_MIN`] requests of a [`WINDOW`] failed, or when its pool's judge says so. While the engine's own metrics
//! are not to be had it stays open, a minute beyond the newest failure; once they are back it is half-open. Else
//! its time is a second at first and doubles with every failed trial up to a minute, with up to a quarter more by
//! lot, so that several gateways do not come back together.

use std::time::Duration;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;

use crate::endpoint::BreakerState;

/// Failures in a row that open it.
pub const CONSECUTIVE_MAX: u32 = 5;
/// Requests that a window must hold before its ratio counts.
pub const RATIO_MIN: u64 = 20;
/// How long failures are held against answers.
pub const WINDOW: Duration = Duration::from_secs(10);
/// The first time open.
pub const OPEN_FIRST: Duration = Duration::from_secs(1);
/// The longest, before the lot is added.
pub const OPEN_MAX: Duration = Duration::from_secs(60);
/// A breaker that stayed closed for so long begins with the first time again.
const FORGET: Duration = Duration::from_secs(60);

/// Requests of an endpoint that were answered and that failed, counted since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Heads that were no failure.
    pub answered: u64,
    /// Failures of the engine.
    pub failed: u64,
}

impl Tally {
    /// What came since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            answered: self.answered.saturating_sub(earlier.answered),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }

    /// Answers and failures together.
    pub fn total(self) -> u64 {
        self.answered.saturating_add(self.failed)
    }
}

/// See the module. Owner: the core that owns the endpoint.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    is_open: bool,
    /// Times opened without a quiet minute between.
    level: u32,
    until: Mono,
    /// Kept open for want of the engine's metrics.
    is_blind: bool,
    closed_at: Mono,
    consecutive: u32,
    /// At the last failure.
    last: Tally,
    window_at: Option<Mono>,
    window: Tally,
}

impl Breaker {
    /// What requests meet at this moment.
    pub fn state(&self, now: Mono) -> BreakerState {
        match (self.is_open, now < self.until) {
            (false, _) => BreakerState::Closed,
            (true, true) => BreakerState::Open,
            (true, false) => BreakerState::HalfOpen,
        }
    }

    /// When it lets the first trial through; zero while it is closed.
    pub fn until(&self) -> Mono {
        if self.is_open { self.until } else { Mono(0) }
    }

    /// Hears of a failure; `tally` counts it already. Answer: whether that opened it.
    ///
    /// What still fails of the requests sent before it opened changes nothing.
    pub fn failure(&mut self, now: Mono, tally: Tally, chance: &mut Chance) -> bool {
        match self.state(now) {
            BreakerState::Open => return false,
            BreakerState::HalfOpen => {
                self.open(now, chance);
                return true;
            }
            BreakerState::Closed => {}
        }
        if tally.answered > self.last.answered {
            self.consecutive = 0;
        }
        self.consecutive += 1;
        self.last = tally;
        if self.window_at.is_none_or(|at| now.since(at) > WINDOW) {
            self.window_at = Some(now);
            self.window = Tally { failed: tally.failed.saturating_sub(1), ..tally };
        }
        let seen = tally.since(self.window);
        let is_mostly_failing = seen.total() >= RATIO_MIN && seen.failed.saturating_mul(2) >= seen.total();
        if self.consecutive >= CONSECUTIVE_MAX || is_mostly_failing {
            self.open(now, chance);
            return true;
        }
        false
    }

    /// Hears of an answer. Closes it when its time was up; else nothing changes. Answer: whether it closed.
    pub fn success(&mut self, now: Mono) -> bool {
        if self.state(now) != BreakerState::HalfOpen {
            return false;
        }
        self.is_open = false;
        self.closed_at = now;
        true
    }

    /// Opens it because the endpoint does far worse than its pool. Answer: whether that changed anything.
    pub fn eject(&mut self, now: Mono, chance: &mut Chance) -> bool {
        let changes = self.state(now) == BreakerState::Closed;
        if changes {
            self.open(now, chance);
        }
        changes
    }

    /// Opens it, or keeps it open, because the engine's metrics were not to be had again and again. Answer: whether
    /// that opened it.
    pub fn metrics_lost(&mut self, now: Mono) -> bool {
        let has_opened = self.state(now) != BreakerState::Open;
        (self.is_open, self.is_blind) = (true, true);
        self.until = self.until.max(now + OPEN_MAX);
        self.consecutive = 0;
        self.window_at = None;
        has_opened
    }

    /// The engine's metrics were read again: where only the want of them keeps it open, its trial may be made now.
    /// Answer: whether that changed anything.
    pub fn metrics_back(&mut self, now: Mono) -> bool {
        let was_blind = std::mem::take(&mut self.is_blind);
        let changes = was_blind && self.state(now) == BreakerState::Open;
        if changes {
            self.until = now;
        }
        changes
    }

    fn open(&mut self, now: Mono, chance: &mut Chance) {
        let was_quiet = !self.is_open && now.since(self.closed_at) > FORGET;
        self.level = if was_quiet { 1 } else { self.level.saturating_add(1).min(16) };
        let time = OPEN_FIRST.saturating_mul(1 << (self.level - 1)).min(OPEN_MAX);
        self.until = now + time.mul_f64(1.0 + chance.unit() / 4.0);
        (self.is_open, self.is_blind) = (true, false);
        self.consecutive = 0;
        self.window_at = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A breaker with a clock and counts.
    struct Bench {
        breaker: Breaker,
        now: Mono,
        tally: Tally,
        chance: Chance,
    }

    fn bench() -> Bench {
        Bench { breaker: Breaker::default(), now: Mono(1_000), tally: Tally::default(), chance: Chance::seeded(1) }
    }

    impl Bench {
        fn fail(&mut self) -> bool {
            self.tally.failed += 1;
            self.breaker.failure(self.now, self.tally, &mut self.chance)
        }

        fn answer(&mut self) -> bool {
            self.tally.answered += 1;
            self.breaker.success(self.now)
        }

        fn trip(&mut self) {
            while !self.fail() {}
        }

        fn state(&self) -> BreakerState {
            self.breaker.state(self.now)
        }

        fn open_for(&self) -> Duration {
            self.breaker.until().since(self.now)
        }
    }

    #[test]
    fn failures_in_a_row_open_it_and_an_answer_between_them_begins_the_row_again() {
        let mut bench = bench();
        for _ in 0..10 {
            (1..CONSECUTIVE_MAX).for_each(|_| assert!(!bench.fail()));
            (0..8).for_each(|_| assert!(!bench.answer()));
        }
        (1..CONSECUTIVE_MAX).for_each(|_| assert!(!bench.fail()));
        assert!(bench.fail());
        assert_eq!(bench.state(), BreakerState::Open);
    }

    #[test]
    fn half_of_a_windows_requests_failing_opens_it_also_without_a_row() {
        let mut bench = bench();
        let mut failures = 0;
        while failures < 100 && !bench.fail() {
            failures += 1;
            bench.answer();
        }
        assert_eq!((bench.tally.total(), bench.state()), (RATIO_MIN + 1, BreakerState::Open));
    }

    #[test]
    fn an_opened_breaker_lets_a_trial_through_when_its_time_is_up_and_closes_with_its_answer() {
        let mut bench = bench();
        bench.trip();
        assert!(!bench.answer() && !bench.fail(), "what was sent before changes nothing");
        bench.now = bench.breaker.until();
        assert_eq!(bench.state(), BreakerState::HalfOpen);
        assert!(bench.answer());
        assert_eq!((bench.state(), bench.breaker.until()), (BreakerState::Closed, Mono(0)));
    }

    #[test]
    fn each_failed_trial_doubles_the_time_up_to_its_bound_and_a_quiet_minute_forgets_them() {
        let mut bench = bench();
        bench.trip();
        let mut expected = OPEN_FIRST;
        for _ in 0..12 {
            let time = bench.open_for();
            assert!((expected..=expected.mul_f64(1.25)).contains(&time), "{time:?} for {expected:?}");
            bench.now = bench.breaker.until();
            assert!(bench.fail());
            expected = (expected * 2).min(OPEN_MAX);
        }
        bench.now = bench.breaker.until();
        assert!(bench.answer());
        bench.now = bench.now + FORGET + Duration::from_nanos(1);
        bench.trip();
        assert!(bench.open_for() <= OPEN_FIRST.mul_f64(1.25));
    }

    #[test]
    fn a_breaker_that_closes_and_fails_at_once_goes_on_where_it_was() {
        let mut bench = bench();
        bench.trip();
        bench.now = bench.breaker.until();
        bench.answer();
        bench.trip();
        assert!(bench.open_for() >= OPEN_FIRST * 2);
    }

    #[test]
    fn it_stays_open_while_metrics_are_lost_and_lets_a_trial_through_when_they_are_back() {
        let mut bench = bench();
        assert!(bench.breaker.metrics_lost(bench.now));
        for _ in 0..100 {
            bench.now = bench.now + Duration::from_secs(2);
            assert!(!bench.breaker.metrics_lost(bench.now), "it is open already");
            assert!(!bench.answer(), "what was sent before changes nothing");
            assert_eq!((bench.state(), bench.open_for()), (BreakerState::Open, OPEN_MAX));
        }
        assert!(bench.breaker.metrics_back(bench.now) && !bench.breaker.metrics_back(bench.now));
        assert_eq!(bench.state(), BreakerState::HalfOpen);
        assert!(bench.answer());
        assert_eq!(bench.state(), BreakerState::Closed);
        assert!(!bench.breaker.metrics_back(bench.now), "nothing to mend");

        bench.trip();
        assert!(!bench.breaker.metrics_back(bench.now), "requests opened it");
        assert_eq!(bench.state(), BreakerState::Open);
    }

    #[test]
    fn metrics_that_are_never_spoken_of_again_keep_it_open_for_a_minute() {
        let mut bench = bench();
        bench.breaker.metrics_lost(bench.now);
        bench.now = bench.now + OPEN_MAX;
        assert_eq!(bench.state(), BreakerState::HalfOpen);
        assert!(bench.fail() && !bench.breaker.metrics_back(bench.now), "the trial said more");
    }

    proptest! {
        /// Whatever comes: it is open for a bounded time, it opens only at a failure, and it closes only by an answer.
        #[test]
        fn any_order_of_events_keeps_the_rules(events in prop::collection::vec((0u8..6, 0u64..3_000), 0..300)) {
            let mut bench = bench();
            for (event, millis) in events {
                bench.now = bench.now + Duration::from_millis(millis);
                let before = bench.state();
                match event {
                    0 => { bench.fail(); }
                    1 => { bench.answer(); }
                    2 => { let (now, chance) = (bench.now, &mut bench.chance); bench.breaker.eject(now, chance); }
                    4 => { bench.breaker.metrics_lost(bench.now); }
                    5 => { bench.breaker.metrics_back(bench.now); }
                    _ => {}
                }
                let after = bench.state();
                prop_assert!(bench.open_for() <= OPEN_MAX.mul_f64(1.25));
                match (before, after) {
                    (BreakerState::Closed, BreakerState::Open) => prop_assert!([0, 2, 4].contains(&event)),
                    (BreakerState::HalfOpen, BreakerState::Open) => prop_assert!([0, 4].contains(&event)),
                    (BreakerState::Open, BreakerState::HalfOpen) => prop_assert_eq!(event, 5),
                    (BreakerState::HalfOpen, BreakerState::Closed) => prop_assert_eq!(event, 1),
                    (before, after) => prop_assert_eq!(before, after),
                }
            }
        }
    }
}
