//! What a request used: its tokens, their price, and the record that is kept of it.
//!
//! Made by a core when a request ends, written down by the journal, priced by the route table's [`Units`]. Fixed in
//! size, so that a core hands a record on without memory of its own. Decides nothing about who may use how much.

use std::time::Duration;

use crate::snapshot::{ArchivedUnits, Units};
use crate::{RequestId, ShortId};

/// More micro-units than this of one request are counted as this many: sums must not run over.
pub const UNITS_MICROS_MAX: u64 = 1 << 50;

impl Units {
    /// Whether no use of the model costs anything, so that budgets hold nobody back from it.
    pub fn is_free(&self) -> bool {
        let Self { prompt_micros, cached_micros, completion_micros, gpu_second_micros } = *self;
        [prompt_micros, cached_micros, completion_micros, gpu_second_micros].iter().all(|micros| *micros == 0)
    }

    /// What that use costs, in millionths of a unit; [`UNITS_MICROS_MAX`] at most. `busy` is the time that an engine
    /// had the request.
    pub fn price(&self, tokens: &Tokens, busy: Duration) -> u64 {
        let cached = tokens.cached.min(tokens.prompt);
        let product = |count: u64, micros: u64| u128::from(count) * u128::from(micros);
        let of_tokens = product(tokens.prompt - cached, self.prompt_micros)
            + product(cached, self.cached_micros)
            + product(tokens.completion, self.completion_micros);
        let busy = u64::try_from(busy.as_micros()).unwrap_or(u64::MAX);
        let of_time = product(busy, self.gpu_second_micros) / 1_000_000;
        u64::try_from(of_tokens.saturating_add(of_time)).unwrap_or(u64::MAX).min(UNITS_MICROS_MAX)
    }
}

impl ArchivedUnits {
    /// As plain numbers.
    pub fn to_units(&self) -> Units {
        Units {
            prompt_micros: self.prompt_micros.to_native(),
            cached_micros: self.cached_micros.to_native(),
            completion_micros: self.completion_micros.to_native(),
            gpu_second_micros: self.gpu_second_micros.to_native(),
        }
    }
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// All of the prompt's, the cached ones included.
    pub prompt: u64,
    /// Those of the prompt that the engine had in its cache.
    pub cached: u64,
    /// Generated ones.
    pub completion: u64,
}

/// What is kept of one request. Times on the wall clock are unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRecord {
    /// The request; the same in every copy of this record.
    pub id: RequestId,
    /// When it was let in: what windows, budgets and hours go by.
    pub admitted_at: u64,
    /// When it ended.
    pub ended_at: u64,
    /// The key it came with; none where keys are off.
    pub key_id: Option<ShortId>,
    /// The key's project; none where keys are off.
    pub project_id: Option<ShortId>,
    /// Metric row of the model that was asked for.
    pub asked_row: u32,
    /// Metric row of the model and pool that served it; none where no engine was asked.
    pub served_row: Option<u32>,
    /// Board slot of the endpoint that was asked last.
    pub slot: Option<u32>,
    /// What was answered; 499 when the client left first.
    pub status: u16,
    /// Why it failed, in the words of the errors' table.
    pub reason: Option<&'static str>,
    pub tokens: Tokens,
    /// Price of it all, in micro-units.
    pub units_micros: u64,
    /// Some of the tokens are this gateway's own count.
    pub is_estimated: bool,
    /// To the first token. Units: milliseconds, as all times below.
    pub ttft_ms: Option<u64>,
    pub duration_ms: u64,
    /// In queues for a place; none where it passed at once.
    pub queue_ms: Option<u64>,
}

const _: () = assert!(size_of::<UsageRecord>() <= 256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_costs_what_its_tokens_and_its_time_cost() {
        let check = |units: [u64; 4], tokens: [u64; 3], busy_ms: u64, expected: u64| {
            let [prompt_micros, cached_micros, completion_micros, gpu_second_micros] = units;
            let units = Units { prompt_micros, cached_micros, completion_micros, gpu_second_micros };
            let tokens = Tokens { prompt: tokens[0], cached: tokens[1], completion: tokens[2] };
            assert_eq!(units.price(&tokens, Duration::from_millis(busy_ms)), expected, "{units:?} {tokens:?}");
        };
        check([1_000_000, 1_000_000, 1_000_000, 0], [100, 40, 7], 9_000, 107_000_000);
        check([10, 1, 40, 0], [100, 40, 7], 0, 60 * 10 + 40 + 280);
        check([0, 0, 0, 3_000_000], [100, 40, 7], 1_500, 4_500_000);
        check([0, 0, 0, 0], [100, 40, 7], 1_500, 0);
        // More of the prompt cached than there is of it.
        check([10, 1, 0, 0], [5, 9, 0], 0, 5);
        check([u64::MAX, 0, u64::MAX, u64::MAX], [u64::MAX, 0, u64::MAX], u64::MAX, UNITS_MICROS_MAX);
    }
}
