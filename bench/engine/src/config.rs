//! How an engine is set up: what the flags, a test or `POST /sim/config` say.

use serde::{Deserialize, Serialize};

use crate::batch::BatchConfig;
use crate::faults::Faults;

/// Whose metrics (and health reply) the engine speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vocabulary {
    #[default]
    Vllm,
    Sglang,
    Llamacpp,
}

/// Everything about one simulated engine. Every field has a default.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Served names; the first labels the metrics.
    pub models: Vec<String>,
    /// Asked for as `Authorization: Bearer …` on paths under `/v1`.
    pub api_key: Option<String>,
    /// Prompt and answer together, in tokens.
    pub max_model_len: usize,
    /// Length of an answer when the request sets none, in tokens: drawn from the prompt's hash between these two.
    pub output_tokens_min: u32,
    pub output_tokens_max: u32,
    /// Tokens of an event of a stream, but for the first, which is sent at once; vLLM and SGLang have the same flag.
    pub stream_interval: u32,
    /// Numbers in an embedding.
    pub embedding_dims: usize,
    pub vocabulary: Vocabulary,
    /// Answered on `/metrics` in place of the engine's own page.
    pub metrics_text: Option<String>,
    /// `/metrics` answers this status and no page.
    pub metrics_status: Option<u16>,
    /// Echo `X-Request-Id` and build response ids from it.
    pub request_id_headers: bool,
    /// An idle connection is closed after so many milliseconds; 0 never. uvicorn, which serves vLLM, waits 5 s.
    pub keep_alive_ms: u64,
    pub batch: BatchConfig,
    /// Faults of every request.
    pub faults: Faults,
    /// Seeds the error rates.
    pub seed: u64,
    /// Larger bodies are answered 413.
    pub body_bytes_max: usize,
    /// Bodies larger than this are counted and hashed but not held; the answer then is a short canned one.
    pub body_held_bytes_max: usize,
    /// Requests kept in the recording, the newest ones.
    pub recorded_requests_max: usize,
    /// Bytes kept of each recorded body.
    pub recorded_body_bytes_max: usize,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            models: vec!["sim".to_owned()],
            api_key: None,
            max_model_len: 131_072,
            output_tokens_min: 64,
            output_tokens_max: 64,
            stream_interval: 1,
            embedding_dims: 8,
            vocabulary: Vocabulary::Vllm,
            metrics_text: None,
            metrics_status: None,
            request_id_headers: true,
            keep_alive_ms: 5_000,
            batch: BatchConfig::default(),
            faults: Faults::default(),
            seed: 0,
            body_bytes_max: 256 << 20,
            body_held_bytes_max: 256 << 20,
            recorded_requests_max: 1_024,
            recorded_body_bytes_max: 64 << 10,
        }
    }
}

impl EngineConfig {
    /// An engine without any delay, for tests.
    pub fn immediate() -> EngineConfig {
        let mut cfg = EngineConfig::default();
        cfg.batch.pace = crate::pace::Pace::immediate();
        cfg
    }
}
