//! What an engine can hold, learned from its answers where it does not say so.
//!
//! Told at an answer's end what was expected and what the engine found in its cache. Each core keeps its own estimate
//! in the [`ledger`](super::ledger); the side runtime makes one of them. Knows no engine that publishes its capacity.

use super::ledger::{CAPACITY_MAX, CAPACITY_UNKNOWN};

/// How far one answer moves it.
const STEP: u64 = 8;
/// The least an engine is taken to hold, tokens.
const CAPACITY_MIN: u64 = 4096;

/// One answer of an engine, about a prompt that it had been sent before.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// Tokens the engine got since it got the deepest block that it ever had of the prompt.
    pub age: u64,
    /// Tokens up to that block.
    pub known_tokens: u64,
    /// Tokens the engine says it found cached.
    pub cached_tokens: u64,
}

/// An estimate of one engine's capacity, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned(u64);

impl Default for Learned {
    fn default() -> Self {
        Self(CAPACITY_UNKNOWN)
    }
}

impl Learned {
    /// As it was learned before.
    pub fn from_tokens(tokens: u64) -> Self {
        Self(tokens.clamp(CAPACITY_MIN, CAPACITY_MAX - 1))
    }

    /// The estimate.
    pub fn tokens(self) -> u64 {
        self.0
    }

    /// Learns: what was found though it is older than the estimate makes it larger, what was not though it is younger
    /// makes it smaller, by a part of the difference.
    pub fn learn(&mut self, evidence: &Evidence) {
        let Evidence { age, known_tokens, cached_tokens } = *evidence;
        let was_there = cached_tokens.saturating_mul(2) >= known_tokens;
        if known_tokens == 0 || age >= CAPACITY_MAX {
            return;
        }
        if was_there && age > self.0 {
            self.0 += (age - self.0).div_ceil(STEP);
        } else if !was_there && age < self.0 {
            self.0 -= (self.0 - age) / STEP;
        }
        self.0 = self.0.clamp(CAPACITY_MIN, CAPACITY_MAX - 1);
    }
}

#[cfg(test)]
mod tests {
    use llmgw_kit::chance::Chance;

    use super::*;

    #[test]
    fn the_estimate_comes_near_what_the_engine_holds_from_above_and_from_below() {
        for holds in [60_000, 400_000, 3_000_000] {
            let (mut learned, mut chance) = (Learned::default(), Chance::seeded(holds));
            for _ in 0..2000 {
                let age = u64::from(chance.below(holds as u32 * 2));
                let cached_tokens = if age < holds { 1000 } else { 16 };
                learned.learn(&Evidence { age, known_tokens: 1000, cached_tokens });
            }
            let part = learned.tokens() as f64 / holds as f64;
            assert!((0.7..1.4).contains(&part), "{holds}: {learned:?}");
        }
    }

    #[test]
    fn nothing_is_learned_of_what_was_never_there_or_was_forgotten() {
        let mut learned = Learned::default();
        learned.learn(&Evidence { age: 1, known_tokens: 0, cached_tokens: 0 });
        learned.learn(&Evidence { age: CAPACITY_MAX + 5, known_tokens: 100, cached_tokens: 0 });
        assert_eq!(learned, Learned::default());
    }
}
