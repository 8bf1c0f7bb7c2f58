//! SGLang's names for the contract.

use crate::names::{CacheInfo, PartLabel, Vocabulary};

/// Source: SGLang 0.5, `metrics/collector.py`. Block size and count became gauges in 0.5.11; before, they were labels.
///
/// With metrics of all schedulers switched on, each rank publishes the numbers of its whole group, and with priority
/// scheduling each priority has a line beside the one for all, whose `priority` is empty. Schedulers of data-parallel
/// ranks hold different requests. `cached_tokens_total` has a line for each source.
pub(crate) const VOCABULARY: Vocabulary = Vocabulary {
    prefix: "sglang:",
    running: &["sglang:num_running_reqs"],
    waiting: &["sglang:num_queue_reqs"],
    kv_usage: &["sglang:token_usage"],
    prompt_tokens: &["sglang:prompt_tokens_total"],
    generation_tokens: &["sglang:generation_tokens_total"],
    prefix_hits: &["sglang:cached_tokens_total"],
    prefix_queries: &["sglang:prompt_tokens_total"],
    block_size: &["sglang:page_size"],
    block_count: &["sglang:num_pages"],
    kv_capacity_tokens: &["sglang:max_total_num_tokens"],
    requests_completed: &["sglang:num_requests_total"],
    cache_info: Some(CacheInfo {
        name: "sglang:cache_config_info",
        block_size_label: "page_size",
        block_count_label: "num_pages",
    }),
    copy_labels: &["tp_rank", "pp_rank", "moe_ep_rank", "pid"],
    part_labels: &[
        PartLabel { name: "dp_rank", whole: "" },
        PartLabel { name: "priority", whole: "" },
        PartLabel { name: "cache_source", whole: "total" },
    ],
};
