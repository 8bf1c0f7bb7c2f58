//! Ceilings to counts: how many requests a pool may hold for one of a band to be the last of them.
//!
//! Called by the side runtime on a sample, a breaker's change and a new table; it stores what comes out
//! ([`super::publish_room`]). Changes when the meaning of a ceiling does. Never looks at a queue.

use llmgw_types::admission::{NEVER_WAITS, Thresholds};

use super::UNBOUNDED;
use super::saturation::EngineState;

/// A ceiling of this and above never waits. Thousandths.
pub const NEVER_WAITS_MILLI: u32 = 1_000_000;
/// All of something, in thousandths.
const WHOLE_MILLI: u32 = 1000;

/// What a band is held to. Neither number may fall as priority rises; the configuration checks that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandSpec {
    /// Saturation above which the band waits, thousandths; [`NEVER_WAITS_MILLI`] and above: it never does.
    pub ceiling_milli: u32,
    /// Part of the engines' capacity that it may fill, thousandths. Below 1000 it replaces the ceiling's allowance in
    /// the engines' queues.
    pub capacity_share_milli: u32,
}

impl Default for BandSpec {
    fn default() -> Self {
        Self { ceiling_milli: WHOLE_MILLI, capacity_share_milli: WHOLE_MILLI }
    }
}

impl BandSpec {
    /// What a band's row in the route table says, to the thousandth.
    pub fn new(saturation_ceiling: f64, capacity_share: f64) -> Self {
        let milli = |part: f64| (part.clamp(0.0, NEVER_WAITS) * f64::from(WHOLE_MILLI)).round() as u32;
        Self { ceiling_milli: milli(saturation_ceiling), capacity_share_milli: milli(capacity_share) }
    }

    /// Whether the band skips the gate.
    pub const fn never_waits(&self) -> bool {
        self.ceiling_milli >= NEVER_WAITS_MILLI
    }
}

/// A pool's engines that take work, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolState {
    engines: u32,
    capacity: u64,
    foreign: u64,
    kv_usage_total: f32,
}

impl PoolState {
    /// Adds an engine that takes work: not one that drains, is open or is not ready; nor, on a new table, one that some
    /// core does not know of yet.
    pub fn add(&mut self, engine: &EngineState) {
        self.engines += 1;
        self.capacity += u64::from(engine.capacity);
        self.foreign += u64::from(engine.foreign());
        self.kv_usage_total += engine.kv_usage_ratio();
    }

    /// All of them.
    pub fn of(engines: impl IntoIterator<Item = EngineState>) -> Self {
        let mut state = Self::default();
        engines.into_iter().for_each(|engine| state.add(&engine));
        state
    }

    /// Occupied part of the engines' caches, the mean.
    pub fn kv_usage_ratio(&self) -> f32 {
        if self.engines == 0 { 0.0 } else { self.kv_usage_total / self.engines as f32 }
    }

    /// How many requests the pool may hold for one of that band to be the last of them.
    ///
    /// At least 1 while there is an engine, so that a pool without capacity learned serves and learns; 0 for everybody
    /// but those who never wait while the caches are above their ceiling.
    pub fn room(&self, band: &BandSpec, thresholds: &Thresholds) -> i32 {
        if band.never_waits() {
            return UNBOUNDED;
        }
        let kv = self.kv_usage_ratio();
        let kv_ceiling = match thresholds.kv_by_band {
            true => thresholds.kv_ceiling * (band.ceiling_milli.min(WHOLE_MILLI) as f32 / WHOLE_MILLI as f32),
            false => thresholds.kv_ceiling,
        };
        if self.engines == 0 || kv > kv_ceiling {
            return 0;
        }
        let whole = u64::from(WHOLE_MILLI);
        let held = if band.capacity_share_milli < WHOLE_MILLI {
            self.capacity * u64::from(band.capacity_share_milli) / whole
        } else {
            let queue = u64::from(band.ceiling_milli) * u64::from(thresholds.target_waiting) * u64::from(self.engines);
            self.capacity + queue / whole
        };
        let room = held.saturating_sub(self.foreign).max(1);
        i32::try_from(room).unwrap_or(UNBOUNDED - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::saturation::Reading;
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { target_waiting: 4, kv_ceiling: 0.9, kv_by_band: false };

    fn band(ceiling_milli: u32, capacity_share_milli: u32) -> BandSpec {
        BandSpec { ceiling_milli, capacity_share_milli }
    }

    #[test]
    fn numbers_of_the_table_are_taken_to_the_thousandth() {
        for (ceiling, share, expected) in
            [(0.3, 0.95, band(300, 950)), (1.0, 1.0, band(1000, 1000)), (5000.0, 1.0, band(NEVER_WAITS_MILLI, 1000))]
        {
            assert_eq!(BandSpec::new(ceiling, share), expected);
        }
        assert!(BandSpec::new(NEVER_WAITS, 1.0).never_waits() && !BandSpec::new(999.0, 1.0).never_waits());
    }

    /// Two engines of 32 with that KV fill, and so many requests that are not ours on the first.
    fn pool(kv_usage_ratio: f32, foreign: u32) -> PoolState {
        let reading = |foreign| Some(Reading { running: 10 + foreign, waiting: 0, kv_usage_ratio, own: 10 });
        PoolState::of([foreign, 0].map(|foreign| EngineState { capacity: 32, own: 7, reading: reading(foreign) }))
    }

    #[test]
    fn ceilings_become_counts() {
        for (spec, kv, foreign, expected) in [
            (band(1000, 1000), 0.0, 0, 64 + 8),
            (band(850, 1000), 0.0, 0, 64 + 6),
            (band(300, 1000), 0.0, 0, 64 + 2),
            (band(300, 950), 0.0, 0, 60),
            (band(1000, 1000), 0.0, 5, 67),
            (band(300, 950), 0.9, 59, 1),
            (band(300, 950), 0.9, 500, 1),
            (band(1000, 1000), 0.91, 0, 0),
            (band(1_000_000, 1000), 0.91, 0, UNBOUNDED),
        ] {
            assert_eq!(pool(kv, foreign).room(&spec, &THRESHOLDS), expected, "{spec:?} {kv} {foreign}");
        }
    }

    #[test]
    fn by_band_the_cache_holds_low_bands_first() {
        let thresholds = Thresholds { kv_by_band: true, ..THRESHOLDS };
        let room = |ceiling, kv| pool(kv, 0).room(&band(ceiling, 1000), &thresholds);
        assert_eq!((room(300, 0.26), room(300, 0.28)), (66, 0));
        assert_eq!((room(1000, 0.28), room(1000, 0.89), room(1000, 0.91)), (72, 72, 0));
    }

    #[test]
    fn a_pool_that_knows_nothing_serves_one_and_one_without_engines_nobody() {
        let room = |state: PoolState| state.room(&BandSpec { ceiling_milli: 0, ..BandSpec::default() }, &THRESHOLDS);
        assert_eq!(room(PoolState::of([EngineState::default()])), 1);
        assert_eq!(room(PoolState::default()), 0);
        assert_eq!(PoolState::default().room(&band(NEVER_WAITS_MILLI, 1000), &THRESHOLDS), UNBOUNDED);
    }

    #[test]
    fn an_old_sample_counts_for_nothing() {
        let old = EngineState { capacity: 8, own: 8, reading: None };
        assert_eq!(PoolState::of([old]).room(&BandSpec::default(), &THRESHOLDS), 12);
    }
}
