//! How long an endpoint that failed gets no requests. Pure: the draw is handed in.

use std::time::Duration;

use llmgw_kit::chance::Chance;

/// The longest time that an engine's own `Retry-After` is believed.
pub const ASKED_MAX: Duration = Duration::from_secs(60);

/// What the engine asked for where it did, within bounds, else what is configured; with up to a tenth more by lot, so
/// that endpoints that failed together do not come back together.
pub fn length(configured: Duration, asked: Option<Duration>, chance: &mut Chance) -> Duration {
    asked.map_or(configured, |asked| asked.min(ASKED_MAX)).mul_f64(1.0 + chance.unit() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_wish_goes_before_the_configuration_but_not_beyond_a_minute() {
        let seconds = Duration::from_secs;
        let mut chance = Chance::seeded(1);
        for (configured, asked, expected) in [(15, None, 15), (15, Some(2), 2), (0, Some(7), 7), (5, Some(86_400), 60)]
        {
            let time = length(seconds(configured), asked.map(seconds), &mut chance);
            assert!((seconds(expected)..=seconds(expected).mul_f64(1.1)).contains(&time), "{time:?} for {expected}");
        }
        assert_eq!(length(Duration::ZERO, None, &mut chance), Duration::ZERO);
    }
}
