//! Time as values: [`Mono`] for waiting and ageing, [`Wall`] for records and edges.
//!
//! Loops read the clock once a turn and hand the value down; decision code receives `now` and never reads it. The
//! functions here are the only place that does.

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A moment on the monotonic clock, in nanoseconds since some moment before the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(pub u64);

impl Mono {
    /// Reads the monotonic clock.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither part is negative on this clock.
        Self((now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64))
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Mono {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

/// A moment on the wall clock, in milliseconds since the Unix epoch. For records and headers, never for waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub u64);

impl Wall {
    /// Reads the wall clock; 0 on a machine whose clock stands before 1970.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Whole seconds since the epoch, as OpenAI's `created` fields want them.
    pub const fn unix_seconds(self) -> u64 {
        self.0 / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Mono};

    #[test]
    fn time_since_a_later_moment_is_zero() {
        assert_eq!(Mono(5).since(Mono(9)), Duration::ZERO);
        assert_eq!(Mono(9) - Mono(5), Duration::from_nanos(4));
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = Mono::now();
        assert!(Mono::now() >= first);
    }
}
