//! What engines say of themselves: read in any words we know, said when it is broken, never waited for by a request.

use llmgw_test_kit::gateway::Metrics;
use llmgw_test_kit::{chat, wait_for};
use serde_json::json;

use crate::pair::{CHAT, Pair, WITHIN};

const COUNTS: &str = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n";

/// A pair whose engine is read often.
fn pair() -> Pair {
    Pair::with(|_| (), |gateway| gateway.router("scrape_interval: 50ms"))
}

/// The engine shows this page, and the gateway shows these numbers of it: running, KV usage, staleness.
#[track_caller]
fn check(pair: &Pair, page: &str, expected: [Option<f64>; 3]) {
    pair.engine.configure(&json!({ "metrics_text": page }));
    let of = |metrics: &Metrics| {
        ["running", "kv_usage_ratio", "metrics_stale"].map(|name| metrics.sum(&format!("llmgw_endpoint_{name}"), &[]))
    };
    wait_for(&format!("{expected:?} of {page}"), WITHIN, || of(&pair.gateway.metrics()) == expected);
    assert_eq!(pair.post(CHAT, &chat("hello").json()).status, 200, "{page}");
}

/// Trial M3.
#[test]
fn a_broken_contract_is_said_once_and_requests_are_served_all_the_same() {
    let mut pair = pair();
    let good = |usage: &str| format!("{COUNTS}{usage}");
    check(&pair, &good("vllm:kv_cache_usage_perc 0.5\n"), [Some(3.0), Some(0.5), Some(0.0)]);
    check(&pair, &good("vllm:gpu_cache_usage_perc 0.25"), [Some(3.0), Some(0.25), Some(0.0)]);
    let odd = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{b=\"\\\"}\",a=\"x\"} 1e0 1700000000\n\
        vllm:num_requests_running_created 1.7e9\nvllm:num_requests_waiting +2 # {t=\"1\"} 1\n\
        vllm:kv_cache_usage_perc .75\nvllm:x +Inf\nvllm:lora_requests_info{max_lora=\"0\"} 1\n# EOF\n";
    check(&pair, odd, [Some(1.0), Some(0.75), Some(0.0)]);
    let said = |pair: &mut Pair, part: &str| {
        pair.gateway.process().lines().iter().filter(|line| line.text.contains(part)).count()
    };
    assert_eq!(said(&mut pair, "metric contract"), 0);

    check(&pair, COUNTS, [Some(3.0), None, Some(0.0)]);
    check(&pair, "vllm:num_requests_running 4\nvllm:num_requests_waiting 2\n", [Some(4.0), None, Some(0.0)]);
    check(&pair, "vllm:num_requests_running NaN\n", [None, None, Some(1.0)]);
    check(&pair, "vllm:num_requests_running 1e0\nvllm:num_requests_waiting 0\n", [Some(1.0), None, Some(0.0)]);
    check(&pair, "vllm:num_requests_running 9\n", [None, None, Some(1.0)]);
    check(&pair, &good("vllm:kv_cache_usage_perc 0.5\n"), [Some(3.0), Some(0.5), Some(0.0)]);
    check(&pair, "llamacpp:requests_processing 1\n", [None, None, Some(1.0)]);
    check(&pair, &good("vllm:kv_cache_usage_perc 0.5\n"), [Some(3.0), Some(0.5), Some(0.0)]);

    let healed = "metric contract kept again";
    wait_for("the log to say that it healed twice", WITHIN, || said(&mut pair, healed) == 2);
    assert_eq!(said(&mut pair, "\"reason\":\"kv_usage is missing: no vllm:kv_cache_usage_perc"), 1);
    assert_eq!(said(&mut pair, "set `engine: llamacpp`"), 1);
    assert_eq!(said(&mut pair, "metric contract broken"), 4);
    pair.gateway.finish(&["metric contract broken"]);
}

/// Trial M4.
#[test]
fn only_streams_of_several_tokens_have_a_time_per_token() {
    let pair = Pair::own();
    let counted = |name: &str| pair.gateway.metrics().sum(name, &[]).unwrap_or(0.0);
    let requests = |count: f64| {
        wait_for("the request to be counted", WITHIN, || counted("llmgw_requests_total") == count);
        (counted("llmgw_ttft_seconds_count"), counted("llmgw_tpot_seconds_count"))
    };
    let paced = |tokens| chat("x").streamed().faults(json!({ "events": tokens, "delay_us": 2000 }));
    assert_eq!(pair.post(CHAT, &chat("x").json()).status, 200);
    assert_eq!(requests(1.0), (0.0, 0.0), "a whole answer has neither");
    assert_eq!(pair.post(CHAT, &paced(1).json()).status, 200);
    assert_eq!(requests(2.0), (1.0, 0.0), "one token has no time between tokens");
    assert_eq!(pair.post(CHAT, &paced(20).json()).status, 200);
    assert_eq!(requests(3.0), (2.0, 1.0));
    let sum = counted("llmgw_tpot_seconds_sum");
    assert!(sum > 0.0 && sum.is_finite(), "{sum}");
    let buckets = pair.gateway.metrics();
    for name in ["llmgw_ttft_seconds_bucket", "llmgw_tpot_seconds_bucket", "llmgw_request_duration_seconds_bucket"] {
        assert!(buckets.sum(name, &[("le", "3600")]).is_some(), "{name} ends before an hour");
    }
}
