//! llama.cpp's names for the contract.

use crate::names::Vocabulary;

/// Source: llama.cpp 0.10434.0, recorded. It publishes no KV usage: its slots are fixed, so its queue says when it is
/// full. Nor does it count requests.
///
/// `prompt_tokens_total` leaves out the tokens taken from the cache, which are counted as hits: those looked up are the
/// sum of the two and have no metric of their own.
pub(crate) const VOCABULARY: Vocabulary = Vocabulary {
    prefix: "llamacpp:",
    running: &["llamacpp:requests_processing"],
    waiting: &["llamacpp:requests_deferred"],
    kv_usage: &[],
    prompt_tokens: &["llamacpp:prompt_tokens_total"],
    generation_tokens: &["llamacpp:tokens_predicted_total"],
    prefix_hits: &["llamacpp:prompt_tokens_cached_total"],
    prefix_queries: &[],
    block_size: &[],
    block_count: &[],
    kv_capacity_tokens: &[],
    requests_completed: &[],
    cache_info: None,
    copy_labels: &[],
    part_labels: &[],
};
