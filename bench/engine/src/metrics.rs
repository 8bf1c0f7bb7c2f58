//! The metrics page, in the words of the engine that is played.

use std::fmt::Write as _;

use crate::config::Vocabulary;
use crate::shared::{Shared, State};
use crate::store::Memory;

/// The page as it stands.
pub(crate) fn page(shared: &Shared) -> String {
    let state = shared.lock();
    if let Some(text) = &state.cfg.metrics_text {
        return text.clone();
    }
    match state.cfg.vocabulary {
        Vocabulary::Vllm => vllm(&state),
        Vocabulary::Sglang => sglang(&state),
        Vocabulary::Llamacpp => llamacpp(&state, shared.now_ns()),
    }
}

/// The figures every vocabulary needs.
struct Figures {
    running: u64,
    waiting: u64,
    kv_usage_ratio: f64,
    prompt_tokens: u64,
    generation_tokens: u64,
}

fn figures(state: &State) -> Figures {
    let totals = state.batch.totals();
    Figures {
        running: state.batch.running_count() as u64 + state.self_paced,
        waiting: state.batch.waiting_count() as u64,
        kv_usage_ratio: state.batch.kv_usage_ratio(),
        prompt_tokens: totals.prompt_tokens,
        generation_tokens: totals.generation_tokens + state.self_paced_tokens,
    }
}

/// Writes metrics one after another.
struct Page {
    out: String,
    labels: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A metric with one sample.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    /// A sample; `more` are labels behind the common ones, each with its comma.
    fn sample(&mut self, name: &str, more: &str, value: f64) {
        let labels = &self.labels;
        let _ = match (labels.is_empty(), more) {
            (true, "") => writeln!(self.out, "{name} {value:?}"),
            _ => writeln!(self.out, "{name}{{{labels}{more}}} {value:?}"),
        };
    }
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn vllm(state: &State) -> String {
    let figures = figures(state);
    let totals = state.batch.totals();
    let model = label(state.cfg.models.first().map_or("", String::as_str));
    let mut page = Page { out: String::new(), labels: format!("engine=\"0\",model_name=\"{model}\"") };
    let (gauge, counter) = ("gauge", "counter");
    let running = "Number of requests in model execution batches.";
    page.one("vllm:num_requests_running", gauge, running, figures.running as f64);
    let waiting = "Number of requests waiting to be processed.";
    page.one("vllm:num_requests_waiting", gauge, waiting, figures.waiting as f64);
    page.family("vllm:num_requests_waiting_by_reason", gauge, "Number of waiting requests by reason.");
    page.sample("vllm:num_requests_waiting_by_reason", ",reason=\"capacity\"", figures.waiting as f64);
    page.sample("vllm:num_requests_waiting_by_reason", ",reason=\"deferred\"", 0.0);
    let usage = "KV-cache usage. 1 means 100 percent usage.";
    page.one("vllm:kv_cache_usage_perc", gauge, usage, figures.kv_usage_ratio);
    let queries = "Prefix cache queries, in terms of number of queried tokens.";
    page.one("vllm:prefix_cache_queries_total", counter, queries, totals.cache_queries as f64);
    let hits = "Prefix cache hits, in terms of number of cached tokens.";
    page.one("vllm:prefix_cache_hits_total", counter, hits, totals.cache_hits as f64);
    let preemptions = "Cumulative number of preemption from the engine.";
    page.one("vllm:num_preemptions_total", counter, preemptions, totals.preemptions as f64);
    let prompt = "Number of prefill tokens processed.";
    page.one("vllm:prompt_tokens_total", counter, prompt, figures.prompt_tokens as f64);
    let generation = "Number of generation tokens processed.";
    page.one("vllm:generation_tokens_total", counter, generation, figures.generation_tokens as f64);
    page.family("vllm:request_success_total", counter, "Count of successfully processed requests.");
    for (reason, count) in [("stop", state.finished_stop), ("length", state.finished_length), ("abort", totals.aborted)]
    {
        let labels = std::mem::take(&mut page.labels);
        page.labels = format!("engine=\"0\",finished_reason=\"{reason}\",model_name=\"{model}\"");
        page.sample("vllm:request_success_total", "", count as f64);
        page.labels = labels;
    }
    page.family("vllm:cache_config_info", gauge, "Information of the LLMEngine CacheConfig");
    page.labels = match state.cfg.batch.memory {
        Memory::Blocks { block_count, block_tokens, prefix_caching } => {
            let caching = if prefix_caching { "True" } else { "False" };
            format!(
                "block_size=\"{block_tokens}\",cache_dtype=\"auto\",enable_prefix_caching=\"{caching}\",engine=\"0\",\
                 num_gpu_blocks=\"{block_count}\""
            )
        }
        Memory::Slots { slot_count, slot_tokens } => {
            format!("block_size=\"{slot_tokens}\",engine=\"0\",num_gpu_blocks=\"{slot_count}\"")
        }
    };
    page.sample("vllm:cache_config_info", "", 1.0);
    page.out
}

fn sglang(state: &State) -> String {
    let figures = figures(state);
    let totals = state.batch.totals();
    let model = label(state.cfg.models.first().map_or("", String::as_str));
    let labels = format!("engine_type=\"unified\",model_name=\"{model}\",pp_rank=\"0\",tp_rank=\"0\"");
    let mut page = Page { out: String::new(), labels };
    let (gauge, counter) = ("gauge", "counter");
    page.one("sglang:num_running_reqs", gauge, "The number of running requests.", figures.running as f64);
    page.one("sglang:num_queue_reqs", gauge, "The number of requests in the waiting queue.", figures.waiting as f64);
    page.one("sglang:token_usage", gauge, "The token usage.", figures.kv_usage_ratio);
    let (used, total) = match state.cfg.batch.memory {
        Memory::Blocks { block_count, block_tokens, .. } => (figures.kv_usage_ratio, block_count * block_tokens),
        Memory::Slots { slot_count, slot_tokens } => (figures.kv_usage_ratio, slot_count * slot_tokens),
    };
    page.one("sglang:num_used_tokens", gauge, "The number of used tokens.", (used * total as f64).round());
    page.one(
        "sglang:max_total_num_tokens",
        gauge,
        "Maximum total number of tokens in the KV cache pool.",
        total as f64,
    );
    let rate = if totals.cache_queries == 0 { 0.0 } else { totals.cache_hits as f64 / totals.cache_queries as f64 };
    page.one("sglang:cache_hit_rate", gauge, "The prefix cache hit rate.", rate);
    page.labels = format!("model_name=\"{model}\"");
    page.one(
        "sglang:prompt_tokens_total",
        counter,
        "Number of prefill tokens processed.",
        figures.prompt_tokens as f64,
    );
    let generation = "Number of generation tokens processed.";
    page.one("sglang:generation_tokens_total", counter, generation, figures.generation_tokens as f64);
    page.one("sglang:cached_tokens_total", counter, "Number of cached prompt tokens.", totals.cache_hits as f64);
    page.one("sglang:num_requests_total", counter, "Number of requests processed.", totals.finished as f64);
    page.out
}

fn llamacpp(state: &State, now_ns: u64) -> String {
    let figures = figures(state);
    let totals = state.batch.totals();
    let mut page = Page { out: String::new(), labels: String::new() };
    let (gauge, counter) = ("gauge", "counter");
    let computed = figures.prompt_tokens.saturating_sub(totals.cache_hits);
    let prompt = "Number of prompt tokens processed, excluding cached tokens";
    page.one("llamacpp:prompt_tokens_total", counter, prompt, computed as f64);
    let cached = "Number of prompt tokens reused from the cache";
    page.one("llamacpp:prompt_tokens_cached_total", counter, cached, totals.cache_hits as f64);
    let predicted = "Number of generation tokens processed";
    page.one("llamacpp:tokens_predicted_total", counter, predicted, figures.generation_tokens as f64);
    page.one("llamacpp:n_decode_total", counter, "Total number of llama_decode() calls", totals.steps as f64);
    let seconds = (now_ns as f64 / 1e9).max(1e-9);
    let rate = figures.generation_tokens as f64 / seconds;
    page.one("llamacpp:predicted_tokens_seconds", gauge, "Average generation throughput in tokens/s", rate);
    page.one("llamacpp:requests_processing", gauge, "Number of requests processing", figures.running as f64);
    page.one("llamacpp:requests_deferred", gauge, "Number of requests deferred", figures.waiting as f64);
    page.out
}
