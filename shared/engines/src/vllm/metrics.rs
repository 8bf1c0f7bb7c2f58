//! vLLM's names for the contract, today's first.

use crate::names::{CacheInfo, Vocabulary};

/// Source: vLLM 0.32.0, recorded. `gpu_` was in the names of the cache metrics up to the 0.9 releases.
///
/// `request_success_total` has a line for each reason to end, `abort` among them.
///
/// Data-parallel engines each have a line of their own, told apart by `engine`; nothing is published twice.
pub(crate) const VOCABULARY: Vocabulary = Vocabulary {
    prefix: "vllm:",
    running: &["vllm:num_requests_running"],
    waiting: &["vllm:num_requests_waiting"],
    kv_usage: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
    prompt_tokens: &["vllm:prompt_tokens_total"],
    generation_tokens: &["vllm:generation_tokens_total"],
    prefix_hits: &["vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"],
    prefix_queries: &["vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"],
    block_size: &[],
    block_count: &[],
    kv_capacity_tokens: &[],
    requests_completed: &["vllm:request_success_total"],
    cache_info: Some(CacheInfo {
        name: "vllm:cache_config_info",
        block_size_label: "block_size",
        block_count_label: "num_gpu_blocks",
    }),
    copy_labels: &[],
    part_labels: &[],
};
