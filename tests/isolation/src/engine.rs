//! The engine of every case: a batch of 32, prompts of 512 tokens, answers of 256.
//!
//! Its pace is fixed as well ([`Speed::USUAL`]). What a prompt of another request adds to a step, everybody in the
//! batch waits for, whatever a gateway does.

use llmgw_engine_sim::batch::{BatchConfig, Job, Policy};
use llmgw_engine_sim::pace::Pace;
use llmgw_engine_sim::store;

/// Requests it runs at once.
pub const BATCH: u32 = 32;
/// Tokens of a prompt.
pub const PROMPT: usize = 512;
/// Tokens of an answer.
pub const OUTPUT: u32 = 256;
/// Tokens in a block of its cache.
const BLOCK: usize = 16;
/// Whole requests that its cache holds where that is what bounds it.
const IN_CACHE: usize = 24;

/// In which order it takes its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// By arrival.
    Fifo,
    /// By priority, the lowest number first.
    Priority,
}

/// What bounds what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Its batch: the cache holds all of it.
    Slots,
    /// Its cache, which holds 24 requests at their full length.
    Kv,
}

/// What a step takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Beside 20 ms, for each further request that it decodes. Units: microseconds.
    pub step_us_per_seq: f64,
    /// Prompt tokens a second.
    pub prefill_tokens_per_second: f64,
}

impl Speed {
    /// That of every case that says nothing else: a step of 20 ms alone and 21.6 ms with all places taken, and 3.4 ms
    /// more for a prompt.
    pub const USUAL: Self = Self { step_us_per_seq: 50.0, prefill_tokens_per_second: 150_000.0 };
}

pub(crate) fn config(kind: EngineKind, memory: Memory, speed: Speed) -> BatchConfig {
    let requests = match memory {
        Memory::Slots => 4 * BATCH as usize,
        Memory::Kv => IN_CACHE,
    };
    let block_count = requests * (PROMPT + OUTPUT as usize).div_ceil(BLOCK);
    BatchConfig {
        max_num_seqs: BATCH as usize,
        max_num_batched_tokens: 8192,
        policy: match kind {
            EngineKind::Fifo => Policy::Fifo,
            EngineKind::Priority => Policy::Priority,
        },
        memory: store::Memory::Blocks { block_count, block_tokens: BLOCK, prefix_caching: false },
        pace: Pace {
            tokens_per_second: 50.0,
            step_us_per_seq: speed.step_us_per_seq,
            prefill_tokens_per_second: speed.prefill_tokens_per_second,
        },
    }
}

pub(crate) fn job(priority: i64, seed: u64) -> Job {
    Job { prompt: vec![7; PROMPT], output_tokens: OUTPUT, priority, salt: seed, answer_seed: seed }
}
