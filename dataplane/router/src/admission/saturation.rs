//! Saturation: one number per pool that says how full its engines are.
//!
//! Called by the side runtime after every sample, for the metric and for explanations. Changes when the definition of
//! "full" changes. Never looks at bands, tenants or tickets: the gate compares counts ([`super::band`]).

use llmgw_types::admission::Thresholds;

/// What is known of one engine that takes work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineState {
    /// Requests it runs at once, configured or learned; 0 is not known.
    pub capacity: u32,
    /// Requests that we have there at this moment.
    pub own: u32,
    /// Its newest sample; `None` when that is too old to count: then our own requests alone tell.
    pub reading: Option<Reading>,
}

/// A sample, beside what we had there around it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Requests it works on.
    pub running: u32,
    /// Requests in its own queue.
    pub waiting: u32,
    /// Occupied part of its KV cache, 0..=1; 0 where it does not publish that.
    pub kv_usage_ratio: f32,
    /// Requests that we had there, the greater of before and after the sample was read.
    pub own: u32,
}

impl EngineState {
    /// Requests there that are not ours.
    pub fn foreign(&self) -> u32 {
        self.reading.map_or(0, |reading| (reading.running.saturating_add(reading.waiting)).saturating_sub(reading.own))
    }

    /// Occupied part of its KV cache as far as that is known.
    pub fn kv_usage_ratio(&self) -> f32 {
        self.reading.map_or(0.0, |reading| reading.kv_usage_ratio)
    }

    /// Requests that are there and do not run, exact in our own part.
    fn waiting(&self) -> u32 {
        match self.capacity {
            // Without a capacity learned only the engine can say what waits.
            0 => self.reading.map_or(0, |reading| reading.waiting),
            capacity => self.own.saturating_add(self.foreign()).saturating_sub(capacity),
        }
    }
}

/// The capacity to believe in after a sample: the most it was seen to run, and one more while nothing waits there
/// although we hold as much as that. Called where none is configured.
pub fn learned_capacity(known: u32, reading: &Reading) -> u32 {
    let may_hold_more = known > 0 && reading.waiting == 0 && reading.own >= known;
    known.saturating_add(u32::from(may_hold_more)).max(reading.running)
}

/// Saturation of a pool: 1.0 is the healthy limit; 0 for a pool without engines.
///
/// The mean over its engines of the greater of queue over target and cache over ceiling. Cost: one pass.
pub fn saturation(engines: impl IntoIterator<Item = EngineState>, thresholds: &Thresholds) -> f32 {
    let (mut total, mut count) = (0.0, 0u32);
    for engine in engines {
        let queue = engine.waiting() as f32 / thresholds.target_waiting.max(1) as f32;
        let kv = engine.kv_usage_ratio() / thresholds.kv_ceiling.max(f32::MIN_POSITIVE);
        total += queue.max(kv);
        count += 1;
    }
    if count == 0 { 0.0 } else { total / count as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { target_waiting: 4, kv_ceiling: 0.9, kv_by_band: false };

    fn engine(capacity: u32, own: u32, reading: Option<(u32, u32, f32, u32)>) -> EngineState {
        let reading =
            reading.map(|(running, waiting, kv_usage_ratio, own)| Reading { running, waiting, kv_usage_ratio, own });
        EngineState { capacity, own, reading }
    }

    #[test]
    fn the_greater_of_queue_and_cache_counts_and_the_mean_of_engines() {
        let check = |engines: &[EngineState], expected: f32| {
            let found = saturation(engines.iter().copied(), &THRESHOLDS);
            assert!((found - expected).abs() < 1e-4, "{engines:?}: {found}");
        };
        check(&[], 0.0);
        check(&[engine(8, 8, Some((8, 0, 0.45, 8)))], 0.5);
        check(&[engine(8, 12, Some((8, 4, 0.45, 12)))], 1.0);
        // What the sample says of our own requests is not counted twice, and what left since is not counted at all.
        check(&[engine(8, 0, Some((8, 4, 0.0, 12)))], 0.0);
        // What is not ours is.
        check(&[engine(8, 4, Some((8, 2, 0.0, 4)))], 0.5);
        // An old sample says nothing; our own count goes on.
        check(&[engine(8, 10, None)], 0.5);
        check(&[engine(8, 12, None), engine(8, 0, Some((0, 0, 0.0, 0)))], 0.5);
        // Nothing learned yet: the engine's own word.
        check(&[engine(0, 9, Some((5, 4, 0.0, 9)))], 1.0);
    }

    #[test]
    fn capacity_is_the_most_that_ran_and_grows_by_one_while_nothing_waits() {
        for (known, (running, waiting, own), expected) in [
            (0, (0, 0, 0), 0),
            (0, (5, 0, 5), 5),
            (8, (5, 0, 5), 8),
            (8, (12, 0, 12), 12),
            (8, (8, 0, 8), 9),
            (8, (8, 1, 9), 8),
            (8, (7, 0, 8), 9),
        ] {
            let reading = Reading { running, waiting, kv_usage_ratio: 0.0, own };
            assert_eq!(learned_capacity(known, &reading), expected, "{known} {reading:?}");
        }
    }
}
