//! What is run, and what came of it.

use crate::engine::{EngineKind, Memory, Speed};

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub engine: EngineKind,
    pub memory: Memory,
    pub speed: Speed,
    /// Over which time the low band's clients begin. Units: seconds.
    pub ramp: f64,
    /// Clients of the low band, each with one request at any time.
    pub bronze: usize,
    /// Whether the gate holds anybody back.
    pub admission: bool,
    /// Whether a request of the high band that finds the batch full ends the newest of the low one, which then comes
    /// again: what no gateway of ours does, measured beside what it does.
    pub takes_out: bool,
    /// Part of the batch that the low band may fill.
    pub share: f64,
    /// Ceiling of the high band; from 1000 on it never waits.
    pub high_ceiling: f64,
    pub kv_by_band: bool,
    /// Requests of the high band that are measured; they come at random, one in `every` seconds on average.
    pub platinum: usize,
    pub every: f64,
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Time to first token of the high band, sorted. Units: milliseconds.
    pub ttft_ms: Vec<f64>,
    /// Tokens of answers that ended, a second.
    pub goodput: f64,
    /// Requests that passed at once, and that waited, and that were refused.
    pub passed: u64,
    pub waited: u64,
    pub refused: u64,
    pub preemptions: u64,
    /// Requests of the low band that were ended to make room.
    pub taken_out: u64,
}

impl Figures {
    /// What came of two runs together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let (one, more) = (self.ttft_ms.len() as f64, other.ttft_ms.len() as f64);
        self.goodput = (self.goodput * one + other.goodput * more) / (one + more);
        self.ttft_ms.extend(other.ttft_ms);
        self.ttft_ms.sort_by(f64::total_cmp);
        self.passed += other.passed;
        self.waited += other.waited;
        self.refused += other.refused;
        self.preemptions += other.preemptions;
        self.taken_out += other.taken_out;
        self
    }

    /// The time that so large a part of the requests kept to.
    ///
    /// # Panics
    /// When nothing was measured.
    pub fn ttft(&self, part: f64) -> f64 {
        let at = (self.ttft_ms.len() as f64 * part).ceil() as usize;
        self.ttft_ms[at.clamp(1, self.ttft_ms.len()) - 1]
    }
}
