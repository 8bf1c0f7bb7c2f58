//! How long a step of the batch takes.
//!
//! Called by the batch. Changes when the speed model does. Never reads a clock: it turns counts into nanoseconds.

use serde::{Deserialize, Serialize};

/// Speed of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pace {
    /// Tokens a second of one request alone. 0 means: no delays at all, prefill included.
    pub tokens_per_second: f64,
    /// What each further request in the batch adds to a step, in microseconds.
    pub step_us_per_seq: f64,
    /// Prompt tokens a second. 0 means that prefill takes no time.
    pub prefill_tokens_per_second: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { tokens_per_second: 50.0, step_us_per_seq: 50.0, prefill_tokens_per_second: 20_000.0 }
    }
}

impl Pace {
    /// No delays.
    pub fn immediate() -> Pace {
        Pace { tokens_per_second: 0.0, step_us_per_seq: 0.0, prefill_tokens_per_second: 0.0 }
    }

    /// Length of one step, in nanoseconds, that decodes one token of `decode_seqs` requests and prefills
    /// `prefill_tokens`.
    ///
    /// A step without decoding costs its prefill only.
    pub fn step_ns(&self, decode_seqs: usize, prefill_tokens: u64) -> u64 {
        if self.tokens_per_second <= 0.0 {
            return 0;
        }
        let mut ns = 0.0;
        if decode_seqs > 0 {
            ns += 1e9 / self.tokens_per_second;
            ns += self.step_us_per_seq.max(0.0) * 1e3 * (decode_seqs - 1) as f64;
        }
        if self.prefill_tokens_per_second > 0.0 {
            ns += 1e9 * prefill_tokens as f64 / self.prefill_tokens_per_second;
        }
        // A step that does something takes time, so that a paced engine never spins.
        (ns as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_grows_with_the_batch_and_with_its_prefill() {
        let pace = Pace { tokens_per_second: 100.0, step_us_per_seq: 10.0, prefill_tokens_per_second: 1000.0 };
        for (seqs, prefill, ns) in
            [(1, 0, 10_000_000), (11, 0, 10_100_000), (0, 5, 5_000_000), (1, 5, 15_000_000), (0, 0, 1)]
        {
            assert_eq!(pace.step_ns(seqs, prefill), ns, "{seqs} {prefill}");
        }
    }

    #[test]
    fn zero_tokens_per_second_means_no_delays() {
        assert_eq!(Pace::immediate().step_ns(500, 1_000_000), 0);
        let pace = Pace { tokens_per_second: 0.0, ..Pace::default() };
        assert_eq!(pace.step_ns(500, 1_000_000), 0);
    }
}
