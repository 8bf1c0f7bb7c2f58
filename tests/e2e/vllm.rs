//! The official client at a real vLLM on a CPU, directly and through the gateway. Built with the feature `real-vllm`
//! alone (`cargo x test vllm`): it installs 6 GB and takes minutes, so it is not part of CI.

mod failures;
mod prefixes;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use llmgw_test_kit::Gateway;
use serde_json::json;

use crate::clients::Script;
use crate::compare::{Results, Usage, differences};
use crate::llmgw;
use crate::official::check_own_answers;
use crate::vllm::server::Vllm;

const ROUNDS_MAX: usize = 8;

/// One test at a time: each wants the whole machine.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// vLLM joins tokens into one event when its front falls behind, so one request has several right answers, event by
/// event. Each case must come through the gateway exactly as vLLM itself has sent it in some direct run.
#[test]
fn the_official_client_sees_vllm_through_the_gateway_as_it_sees_it_directly() {
    let _alone = alone();
    let [engine] = Vllm::start(&[]);
    let url = engine.url();
    for (usage, inject) in [(Usage::AsTheClientAsks, "inject_usage: false"), (Usage::Always, "inject_usage: true")] {
        let endpoint = format!("{{ name: vllm, url: \"{url}\", model: tiny, engine: vllm }}");
        let gateway = Gateway::builder().endpoint(&endpoint).router(inject).start(llmgw());
        compare(&url, &gateway.url(), usage);
        assert_eq!(gateway.inflight(), 0.0);
        gateway.finish(&[]);
    }
}

/// Runs both ways until each case has once come through as one of the direct runs, in a bounded number of rounds.
#[track_caller]
fn compare(direct: &str, through: &str, usage: Usage) {
    let script = |base: &str| {
        let skip = &["embeddings", "embeddings_base64"];
        Script { base: base.to_owned(), model: "tiny", embeddings: None, extra: json!({}), skip }.run()
    };
    let (mut directly, mut passed) = (Vec::new(), Vec::new());
    let mut open = Vec::new();
    for _ in 0..ROUNDS_MAX {
        directly.push(script(direct));
        let round = script(through);
        check_own_answers(&round);
        passed.push(round);
        open = cases_never_equal(&directly, &passed, usage);
        if open.is_empty() {
            return;
        }
    }
    panic!("never equal in {ROUNDS_MAX} rounds ({usage:?}):\n{}", open.join("\n"));
}

/// One difference of each case for which no run through the gateway equals any direct one.
fn cases_never_equal(directly: &[Results], passed: &[Results], usage: Usage) -> Vec<String> {
    let mut open: BTreeMap<String, String> = BTreeMap::new();
    for (at, (direct, through)) in directly.iter().flat_map(|d| passed.iter().map(move |p| (d, p))).enumerate() {
        let found: BTreeMap<String, String> = differences(direct, through, usage)
            .into_iter()
            .map(|line| (line.split(['.', '[', ':']).next().unwrap_or_default().to_owned(), line))
            .collect();
        match at {
            0 => open = found,
            _ => open.retain(|case, _| found.contains_key(case)),
        }
    }
    open.into_values().collect()
}
