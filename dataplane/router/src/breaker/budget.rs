//! How many second tries a core may make: a share of its recent requests and a small floor. Pure: `now` is handed in.
//!
//! Without it, retries multiply the load on a pool that is sick already.

use llmgw_kit::clock::Mono;

/// Seconds that are looked back on.
pub const WINDOW_SECONDS: u64 = 10;
/// Retries that a window allows whatever its requests, so that a lone request may be tried again.
pub const FLOOR: u64 = 10;
/// Requests that pay for one retry: a fifth of the traffic.
pub const REQUESTS_PER_RETRY: u64 = 5;

const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// Its number on the clock.
    number: u64,
    requests: u64,
    retries: u64,
}

/// See the module. Owner: one core.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    seconds: [Second; WINDOW_SECONDS as usize],
}

impl RetryBudget {
    /// Counts a request.
    pub fn request(&mut self, now: Mono) {
        self.second(now).requests += 1;
    }

    /// Takes a retry from the budget, if there is one.
    pub fn take(&mut self, now: Mono) -> bool {
        let number = now.0 / SECOND;
        let recent = self.seconds.iter().filter(|second| second.number + WINDOW_SECONDS > number);
        let (requests, retries) =
            recent.fold((0, 0), |(requests, retries), at| (requests + at.requests, retries + at.retries));
        let is_allowed = retries < FLOOR + requests / REQUESTS_PER_RETRY;
        if is_allowed {
            self.second(now).retries += 1;
        }
        is_allowed
    }

    fn second(&mut self, now: Mono) -> &mut Second {
        let number = now.0 / SECOND;
        let second = &mut self.seconds[(number % WINDOW_SECONDS) as usize];
        if second.number != number {
            *second = Second { number, ..Second::default() };
        }
        second
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lone_request_may_be_tried_again_and_the_floor_comes_back_with_time() {
        let mut budget = RetryBudget::default();
        budget.request(Mono(0));
        assert!((0..FLOOR).all(|_| budget.take(Mono(5))));
        assert!(!budget.take(Mono(5)));
        assert!(budget.take(Mono(WINDOW_SECONDS * SECOND)));
    }

    proptest! {
        /// Any traffic: the retries of any window stay within the floor and a fifth of its requests and of those of
        /// the window before.
        #[test]
        fn retries_stay_within_the_share(steps in prop::collection::vec((0u64..400, 0u8..4), 1..400)) {
            let mut budget = RetryBudget::default();
            let mut now = Mono(0);
            let (mut requests, mut retries) = (0u64, 0u64);
            for (millis, wanted) in steps {
                now = now + Duration::from_millis(millis);
                budget.request(now);
                requests += 1;
                for _ in 0..wanted {
                    retries += u64::from(budget.take(now));
                }
                let windows = now.0 / (WINDOW_SECONDS * SECOND) + 1;
                prop_assert!(retries <= windows * (FLOOR + 1) + 2 * requests / REQUESTS_PER_RETRY);
            }
        }
    }
}
