//! When requests wait, and in which order they go on: what a model and its pools are held to, in the route table.
//!
//! Written by whoever publishes, read by the gate on every core. Holds no measurement and no queue.

use rkyv::{Archive, Deserialize, Serialize};

/// The most bands of a model: each costs a place in every pool's gate.
pub const BANDS_MAX: usize = 16;

/// A ceiling from which on a band never waits.
pub const NEVER_WAITS: f64 = 1000.0;

/// When a pool counts as full.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Requests in an engine's own queue at which it counts as full, 1 or more.
    pub target_waiting: u32,
    /// Fill of its KV cache above which it is avoided, and on average over the pool nobody is let in; above 0, up to 1.
    pub kv_ceiling: f32,
    /// Whether the KV ceiling is scaled by band as the queue's is, in place of one for all.
    pub kv_by_band: bool,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { target_waiting: 4, kv_ceiling: 0.9, kv_by_band: false }
    }
}

/// How requests of a model wait.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Admission {
    /// How long a request may wait, in milliseconds.
    pub queue_ttl_ms: u32,
    /// How often a waiting stream is sent a comment, in milliseconds; 0 is never.
    pub heartbeat_ms: u32,
    /// Requests of one band that may wait.
    pub queue_capacity_per_band: u32,
    /// Requests of all bands that may wait.
    pub queue_capacity_total: u32,
    /// Bytes of waiting requests.
    pub queue_bytes_max: u64,
    /// By rising priority, at least one and at most [`BANDS_MAX`]; neither ceilings nor shares fall. A band's rank is
    /// its position and 1, since 0 stands for nobody.
    pub bands: Vec<Band>,
}

/// A priority band.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Band {
    /// Unique name.
    pub name: String,
    /// Unique; higher goes first.
    pub priority: i32,
    /// Saturation of the pool above which it waits; 1 is the healthy limit, [`NEVER_WAITS`] and more never does.
    pub saturation_ceiling: f64,
    /// Where its requests are counted (a row of the metric cells), for life.
    pub metric_row: u32,
    /// Part of the pool's batch it may fill, above 0, up to 1; under 1 in place of the ceiling's queue allowance.
    pub capacity_share: f64,
}

/// One band that never waits.
impl Default for Admission {
    fn default() -> Self {
        let band = Band {
            name: "default".to_owned(),
            priority: 0,
            metric_row: 0,
            saturation_ceiling: NEVER_WAITS,
            capacity_share: 1.0,
        };
        Self {
            queue_ttl_ms: 30_000,
            heartbeat_ms: 0,
            queue_capacity_per_band: 2000,
            queue_capacity_total: 8000,
            queue_bytes_max: 2 << 30,
            bands: vec![band],
        }
    }
}

impl ArchivedAdmission {
    /// The position of the band of that name.
    pub fn band(&self, name: &[u8]) -> Option<usize> {
        self.bands.iter().position(|band| band.name.as_bytes() == name)
    }

    /// What makes these no bands, if something does.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.bands.is_empty() || self.bands.len() > BANDS_MAX {
            return Some("has no bands or too many");
        }
        let pairs = || self.bands.iter().zip(self.bands.iter().skip(1));
        if pairs().any(|(lower, higher)| lower.priority >= higher.priority) {
            return Some("has bands that are not sorted by priority");
        }
        let falls = |(lower, higher): (&ArchivedBand, &ArchivedBand)| {
            higher.saturation_ceiling.to_native() < lower.saturation_ceiling.to_native()
                || higher.capacity_share.to_native() < lower.capacity_share.to_native()
        };
        pairs().any(falls).then_some("has a band that is held tighter than a lower one")
    }
}

/// In which order an engine takes its own queue, and so whether it is told a request's priority.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[rkyv(derive(Clone, Copy, Debug, PartialEq, Eq))]
pub enum QueueOrder {
    /// First come, first served: it is told nothing.
    #[default]
    Arrival,
    /// By priority, the lowest number first.
    LowestFirst,
    /// By priority, the highest number first.
    HighestFirst,
}

impl ArchivedQueueOrder {
    /// The number that tells the engine of a band with that priority.
    pub fn priority(self, band: i32) -> Option<i64> {
        match self {
            Self::Arrival => None,
            Self::LowestFirst => Some(-i64::from(band)),
            Self::HighestFirst => Some(band.into()),
        }
    }
}
