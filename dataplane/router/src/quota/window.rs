//! A sliding window: what was used in a minute, by ticks of a sixtieth of it.
//!
//! Owned by the tenant's owner core. A use counts in its own tick and the sixty after it, so the sum is never below
//! what was used in any true minute that ends in this tick, and what was used comes back at most one tick late.

/// Ticks of a window.
pub const WINDOW_TICKS: u32 = 60;
/// Length of a tick. Units: nanoseconds.
pub const TICK_NS: u64 = 1_000_000_000;
/// How far ahead of this core's clock another core's may be. Units: ticks.
const AHEAD_MAX: u32 = 3;
/// The tick of a use, those it counts in after it, and those ahead: a power of two.
const SLOTS: usize = 64;

const _: () = assert!(SLOTS as u32 == WINDOW_TICKS + 1 + AHEAD_MAX);

/// See the module. Owner: one core.
#[derive(Clone, Debug)]
pub struct Window {
    buckets: [i64; SLOTS],
    /// The newest tick that this window knows of.
    now: u32,
    sum: i64,
}

impl Window {
    /// Empty, at a tick.
    pub fn new(now: u32) -> Self {
        Self { buckets: [0; SLOTS], now, sum: 0 }
    }

    /// Lets go what is older than the window. Ticks do not go back.
    pub fn advance(&mut self, now: u32) {
        let steps = now.saturating_sub(self.now);
        if steps == 0 {
            return;
        }
        // What leaves is what lies in the slots that the new ticks ahead will use.
        for step in 1..=steps.min(SLOTS as u32) {
            let slot = slot(self.now + AHEAD_MAX + step);
            self.sum -= self.buckets[slot];
            self.buckets[slot] = 0;
        }
        self.now = now;
    }

    /// Adds a use of that tick; nothing, if that has left the window. Takes it back with a negative amount.
    pub fn add(&mut self, tick: u32, amount: i64) {
        let tick = tick.min(self.now + AHEAD_MAX);
        if self.now.saturating_sub(tick) <= WINDOW_TICKS {
            let bucket = &mut self.buckets[slot(tick)];
            *bucket = bucket.saturating_add(amount);
            self.sum = self.sum.saturating_add(amount);
        }
    }

    /// What counts at this tick.
    pub fn sum(&self) -> i64 {
        self.sum
    }

    /// Whether nothing is in it, and nothing was in it that may still be taken back.
    pub fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| *bucket == 0)
    }

    /// In how many ticks so much will have left, if nothing is added; the whole window if it never does.
    pub fn frees_in(&self, amount: i64) -> u32 {
        let mut freed = 0;
        for tick in self.now.saturating_sub(WINDOW_TICKS)..=self.now {
            freed += self.buckets[slot(tick)];
            if freed >= amount {
                return tick + WINDOW_TICKS + 1 - self.now;
            }
        }
        WINDOW_TICKS + 1
    }
}

fn slot(tick: u32) -> usize {
    tick as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_use_counts_in_its_tick_and_sixty_after_it() {
        let mut window = Window::new(100);
        window.add(100, 5);
        for (now, sum) in [(100, 5), (101, 5), (160, 5), (161, 0), (500, 0)] {
            window.advance(now);
            assert_eq!(window.sum(), sum, "at {now}");
        }
        assert!(window.is_empty());
    }

    #[test]
    fn what_is_taken_back_goes_to_its_own_tick_and_nowhere_once_that_has_left() {
        let mut window = Window::new(100);
        window.add(100, 5);
        window.advance(130);
        window.add(130, 2);
        window.add(100, -3);
        assert_eq!(window.sum(), 4);
        window.advance(161);
        window.add(100, -2);
        assert_eq!(window.sum(), 2);
    }

    #[test]
    fn a_clock_that_is_ahead_is_believed_within_bounds() {
        let mut window = Window::new(10);
        window.add(13, 1);
        window.add(99, 2);
        assert_eq!(window.sum(), 3);
        window.advance(13 + WINDOW_TICKS);
        assert_eq!(window.sum(), 3);
        window.advance(14 + WINDOW_TICKS);
        assert_eq!(window.sum(), 0);
    }

    #[test]
    fn it_says_when_enough_will_have_left() {
        let mut window = Window::new(60);
        window.add(20, 3);
        window.add(50, 4);
        for (amount, ticks) in [(1, 21), (3, 21), (4, 51), (7, 51), (8, 61)] {
            assert_eq!(window.frees_in(amount), ticks, "{amount}");
        }
    }

    proptest! {
        #[test]
        fn its_sum_is_that_of_the_uses_within_it(
            uses in prop::collection::vec((0u32..6, 0u32..4, 1i64..9), 1..60),
            jump in 0u32..200,
        ) {
            let (mut window, mut now, mut all) = (Window::new(1000), 1000u32, Vec::new());
            for (step, age, amount) in uses {
                now += if step == 5 { jump } else { step };
                window.advance(now);
                window.add(now - age, amount);
                all.push((now - age, amount));
                let within = all.iter().filter(|(tick, _)| tick + WINDOW_TICKS >= now);
                let expected: i64 = within.map(|(_, amount)| amount).sum();
                prop_assert_eq!(window.sum(), expected);
            }
        }
    }
}
