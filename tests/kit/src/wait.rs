//! Waiting for a condition: the only place of the suites that sleeps.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Asks until the condition holds.
///
/// Panics when it does not hold within the time; `what` completes "waited for".
#[track_caller]
pub fn wait_for(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    wait_for_some(what, within, || holds().then_some(()));
}

/// Asks until there is an answer, and returns it.
///
/// Panics when there is none within the time.
#[track_caller]
pub fn wait_for_some<T>(what: &str, within: Duration, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = answer() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {within:?} for {what}");
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_asked_until_it_is_answered() {
        let mut asked = 0;
        let answer = wait_for_some("a third time", Duration::from_secs(5), || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(answer, 3);
    }

    #[test]
    #[should_panic(expected = "for pigs to fly")]
    fn a_condition_that_never_holds_fails_with_its_name() {
        wait_for("pigs to fly", Duration::from_millis(20), || false);
    }
}
