//! How many bytes of a prompt are a token, learned for each model from the tokens that engines count.
//!
//! Told by the request path at an answer's end, asked by it at intake. One per core: each sees its own answers, and
//! nothing shared is written.

use crate::metrics::POOL_ROWS_MAX;

/// Before anything is known: text in English, nearly.
const BYTES_PER_TOKEN: f32 = 4.0;
/// Whatever is counted, a token is no less and no more.
const BYTES_MIN: f32 = 0.25;
const BYTES_MAX: f32 = 64.0;
/// Tokens after which what was learned before weighs half.
const MEMORY_TOKENS: f32 = 100_000.0;

/// Bytes a token by model. Owner: one core.
#[derive(Default)]
pub struct Ratios {
    by_row: Vec<f32>,
}

impl Ratios {
    /// Learns from an answer: the prompt's bytes, and its tokens as the engine counted them. Not from prompts with
    /// pictures or sound: their bytes are not theirs.
    ///
    /// `row` is that of the model's metrics, which is its own for life.
    pub fn learn(&mut self, row: u32, bytes: u64, tokens: u64) {
        let row = row as usize;
        if bytes == 0 || tokens == 0 || row >= POOL_ROWS_MAX {
            return;
        }
        if self.by_row.len() <= row {
            self.by_row.resize(row + 1, BYTES_PER_TOKEN);
        }
        let tokens = tokens as f32;
        let seen = (bytes as f32 / tokens).clamp(BYTES_MIN, BYTES_MAX);
        let part = tokens / (tokens + MEMORY_TOKENS);
        self.by_row[row] += (seen - self.by_row[row]) * part;
    }

    /// The tokens that a prompt of so many bytes is likely to have, 1 at least.
    pub fn tokens(&self, row: u32, bytes: u64) -> u32 {
        let ratio = self.by_row.get(row as usize).copied().unwrap_or(BYTES_PER_TOKEN);
        (bytes as f32 / ratio).clamp(1.0, u32::MAX as f32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_follows_what_engines_count_model_by_model() {
        let mut ratios = Ratios::default();
        assert_eq!(ratios.tokens(3, 4000), 1000);
        (0..2000).for_each(|_| ratios.learn(3, 3000, 1500));
        assert!((1990..=2010).contains(&ratios.tokens(3, 4000)), "{}", ratios.tokens(3, 4000));
        assert_eq!(ratios.tokens(2, 4000), 1000);
        // Absurd counts move it no further than a token can be.
        (0..2000).for_each(|_| ratios.learn(3, u64::MAX, 1_000_000));
        assert!(ratios.tokens(3, 6400) >= 100);
        ratios.learn(u32::MAX, 1, 1);
        ratios.learn(3, 0, 0);
        assert_eq!(ratios.tokens(9, 0), 1);
    }
}
