//! The batch of a real llama.cpp, which nobody configured: the engine says it, and the first flood is held to it.

use std::thread::spawn;
use std::time::{Duration, Instant};

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Gateway, wait_for};
use serde_json::json;

use crate::engines::{LlamaCpp, MODEL};
use crate::llmgw;

const WITHIN: Duration = Duration::from_secs(60);
const FLOOD: usize = 16;

#[test]
fn the_first_flood_never_waits_inside_the_engine() {
    let engine = LlamaCpp::start(MODEL, &["--parallel", "2"]);
    let endpoint = format!("{{ name: e, url: \"{}\", model: {MODEL}, engine: llamacpp }}", engine.url());
    let bands = "bands: [{ name: low, priority: 1, saturation_ceiling: 0 }]";
    let gateway = Gateway::builder().endpoint(&endpoint).router(&format!("admission: {{ {bands} }}")).start(llmgw());
    let of = |name: &str| gateway.metrics().sum(name, &[]).unwrap_or(0.0);
    wait_for("the engine's word", WITHIN, || of("llmgw_endpoint_batch_capacity") == 2.0);
    // Room follows what is known of an engine every 25 ms; this machine may have more to do.
    let known = Instant::now();
    wait_for("room to follow", WITHIN, || known.elapsed() >= Duration::from_secs(1));
    // Nobody has asked anything of this engine before.
    let addr = gateway.addr();
    let ask = move || -> Reply {
        let body = json!({ "model": MODEL, "max_tokens": 200, "ignore_eos": true, "prompt": "once upon a time" });
        raw::call(addr, &Request::new("POST", "/v1/completions").header("Connection", "close").json(&body).bytes())
    };
    let flood: Vec<_> = (0..FLOOD).map(|_| spawn(ask)).collect();
    let deferred = || {
        let page = raw::get(engine.addr, "/metrics").text();
        let line = page.lines().find(|line| line.starts_with("llamacpp:requests_deferred "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("the engine's queue")
    };
    let mut most = 0.0f64;
    wait_for("all answered", WITHIN, || {
        most = most.max(deferred());
        flood.iter().all(std::thread::JoinHandle::is_finished)
    });
    for call in flood {
        let reply = call.join().expect("no panic");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    // One that ends may still have its slot when the next comes.
    assert!(most <= 2.0, "{most} of them waited inside it");
    assert!(of("llmgw_admission_wait_seconds_count") >= (FLOOD - 2) as f64 / 2.0, "and did wait");
    gateway.finish(&[]);
}
