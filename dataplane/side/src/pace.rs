//! When an engine is asked again: at the interval, give or take a tenth, and then at the next of a few common moments.
//!
//! Used by `probe` and `scrape`. A thread that wakes up for one small request pays more for the waking than for the
//! request, so those that are due at about the same time are sent at the same moment, each to another engine.

use std::time::Duration;

use llmgw_kit::chance::Chance;
use tokio::time::Instant;

use crate::resolve::jittered;

/// Common moments in an interval. More than this many endpoints share them.
const MOMENTS: u32 = 20;

/// The moments of all endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    start: Instant,
}

impl Pace {
    pub(crate) fn begin() -> Self {
        Self { start: Instant::now() }
    }

    /// When to ask again, about `interval` from now.
    pub(crate) fn next(&self, interval: Duration, chance: &mut Chance) -> Instant {
        self.moment(jittered(interval, chance), interval)
    }

    /// When to ask for the first time of many: anywhere within the interval, so that endpoints that were started
    /// together are spread over it.
    pub(crate) fn first(&self, interval: Duration, chance: &mut Chance) -> Instant {
        self.moment(interval.mul_f64(chance.unit()), interval)
    }

    fn moment(&self, wait: Duration, interval: Duration) -> Instant {
        self.start + nearest(self.start.elapsed() + wait, interval / MOMENTS)
    }
}

/// The multiple of a step that is nearest.
fn nearest(time: Duration, step: Duration) -> Duration {
    if step.is_zero() {
        return time;
    }
    let steps = (time.as_secs_f64() / step.as_secs_f64()).round();
    // Beyond what a multiplication holds the interval is of no use either.
    if steps < f64::from(u32::MAX) { step * steps as u32 } else { time }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn moments_are_common_and_near_what_was_wished_for() {
        let step = Duration::from_millis(50);
        for (millis, expected) in
            [(0, 0), (24, 0), (26, 50), (50, 50), (974, 950), (976, 1000), (86_400_010, 86_400_000)]
        {
            assert_eq!(nearest(Duration::from_millis(millis), step), Duration::from_millis(expected), "{millis}");
        }
        let odd = Duration::from_nanos(7);
        assert_eq!(nearest(odd, Duration::ZERO), odd);
        assert_eq!(nearest(Duration::MAX / 2, Duration::from_nanos(1)), Duration::MAX / 2);
    }

    #[test]
    fn endpoints_meet_at_a_few_moments_and_keep_their_interval() {
        let interval = Duration::from_secs(1);
        let mut chance = Chance::seeded(1);
        let now = Duration::from_millis(10_003);
        let mut draw = |wait: fn(Duration, &mut Chance) -> Duration| -> BTreeSet<Duration> {
            (0..1000).map(|_| nearest(now + wait(interval, &mut chance), interval / MOMENTS)).collect()
        };
        let next = draw(jittered);
        assert!(next.iter().all(|at| (875..=1125).contains(&(*at - now).as_millis())), "{next:?}");
        assert!((4..=5).contains(&next.len()), "{next:?}");
        let first = draw(|interval, chance| interval.mul_f64(chance.unit()));
        assert!((20..=21).contains(&first.len()), "over the whole interval: {first:?}");
    }
}
