//! The official client at a real vLLM on a CPU, directly and through the gateway. Built with the feature `real-vllm`
//! alone (`cargo x test vllm`): it installs 6 GB and takes minutes, so it is not part of CI.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;

use llmgw_test_kit::{Gateway, raw};
use serde_json::{Value, json};

use crate::clients::Script;
use crate::compare::{Results, differences};
use crate::official::check_own_answers;
use crate::{install, llmgw};

const START: Duration = Duration::from_secs(600);
const ROUNDS_MAX: usize = 8;

/// vLLM joins tokens into one event when its front falls behind, so one request has several right answers, event by
/// event. Each case must once come through the gateway exactly as vLLM itself has sent it.
#[test]
fn the_official_client_sees_vllm_through_the_gateway_as_it_sees_it_directly() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let addr = free.unwrap_or_else(|error| panic!("no free port: {error}"));
    let launch = install::bash("engines/start-vllm-cpu.sh").arg(addr.port().to_string());
    let _engine = launch.grace(Duration::from_secs(20)).start().unwrap_or_else(|error| panic!("{error}"));
    raw::wait_for_ok(addr, "/health", START);
    let url = format!("http://{addr}");
    let gateway = Gateway::builder()
        .endpoint(&format!("{{ name: vllm, url: \"{url}\", model: tiny, engine: vllm }}"))
        .start(llmgw());

    let mut seen: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut last = Vec::new();
    for round in 0..ROUNDS_MAX {
        let script = |base| Script {
            base,
            model: "tiny",
            embeddings: None,
            extra: json!({}),
            skip: &["embeddings", "embeddings_base64"],
        };
        let direct = script(url.clone()).run();
        let through = script(gateway.url()).run();
        check_own_answers(&through);
        if round == 0 {
            open = direct.cases.keys().cloned().collect();
        }
        for (name, value) in &direct.cases {
            seen.entry(name.clone()).or_default().push(value.clone());
        }
        last = differences(&direct, &through);
        open.retain(|name| !is_known(name, &seen, &through) && last.iter().any(|line| line.starts_with(name.as_str())));
        if open.is_empty() {
            break;
        }
    }
    assert!(open.is_empty(), "never equal in {ROUNDS_MAX} rounds: {open:?}\n{}", last.join("\n"));
    assert_eq!(gateway.inflight(), 0.0);
    gateway.finish(&[]);
}

fn is_known(name: &str, seen: &BTreeMap<String, Vec<Value>>, through: &Results) -> bool {
    let answers = seen.get(name).into_iter().flatten();
    through.cases.get(name).is_some_and(|got| answers.into_iter().any(|answer| answer == got))
}
