//! Bands inside a real vLLM on a CPU that orders its queue by priority. Built with the feature `real-vllm` alone.

#![expect(clippy::print_stdout, reason = "what it saw is printed, to be written down")]

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use llmgw_test_kit::raw::{self, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Gateway, wait_for};
use serde_json::json;

use crate::llmgw;
use crate::vllm::alone;
use crate::vllm::server::Vllm;

const WITHIN: Duration = Duration::from_secs(120);
/// Requests of the lowest band that wait in the engine when one of the highest comes.
const BRONZE: usize = 5;

fn ask(gateway: SocketAddr, band: &str, tokens: u32) -> Reply {
    let body = json!({ "model": "tiny", "max_tokens": tokens, "ignore_eos": true, "prompt": "once upon a time" });
    let request = Request::new("POST", "/v1/completions").header("x-llmgw-band", band).header("Connection", "close");
    raw::call(gateway, &request.json(&body).bytes())
}

/// One request runs, the others wait in the engine: the last to come is the first to be answered.
#[test]
fn a_request_of_the_highest_band_overtakes_those_that_wait_in_the_engine() {
    let _alone = alone();
    let [engine] = Vllm::start(&["--scheduling-policy", "priority", "--max-num-seqs", "1"]);
    let addr = engine.addr;
    for (scheduling, overtakes) in [("priority", true), ("fifo", false)] {
        let endpoint =
            format!("{{ name: vllm, url: \"http://{addr}\", model: tiny, engine: vllm, scheduling: {scheduling} }}");
        // Nobody waits here: it is the engine's queue that is looked at.
        let bands = "bands: [{ name: low, priority: 1, saturation_ceiling: 1000 }, \
            { name: high, priority: 2, saturation_ceiling: 1000 }]";
        let gateway = Gateway::builder().endpoint(&endpoint).router(&format!("admission: {{ {bands} }}"));
        let gateway = gateway.start(llmgw());
        let order = order_of_answers(&gateway, addr);
        assert_eq!(order.len(), BRONZE + 2);
        let place = order.iter().position(|band| *band == "high");
        let expected = if overtakes { 1 } else { BRONZE + 1 };
        assert_eq!(place, Some(expected), "{scheduling}: {order:?}");
        println!("{scheduling}: answered in the order {order:?}");
        gateway.finish(&[]);
    }
}

/// The bands of the requests in the order of their answers.
fn order_of_answers(gateway: &Gateway, engine: SocketAddr) -> Vec<&'static str> {
    let order = Mutex::new(Vec::new());
    let waiting = |count: usize| {
        let page = raw::get(engine, "/metrics").text();
        let is_it = |line: &&str| line.starts_with("vllm:num_requests_waiting{");
        let value = page.lines().find(is_it).and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value == Some(count as f64)
    };
    let running = || {
        raw::get(engine, "/metrics")
            .text()
            .lines()
            .any(|line| line.starts_with("vllm:num_requests_running{") && line.ends_with(" 1.0"))
    };
    std::thread::scope(|scope| {
        let ask = |band: &'static str, tokens| {
            let (order, addr) = (&order, gateway.addr());
            scope.spawn(move || {
                let reply = ask(addr, band, tokens);
                assert_eq!(reply.status, 200, "{}", reply.text());
                order.lock().expect("no panic").push(band);
            });
        };
        ask("low", 1800);
        wait_for("one running", WITHIN, running);
        (0..BRONZE).for_each(|_| ask("low", 16));
        wait_for("the low band in the engine's queue", WITHIN, || waiting(BRONZE));
        ask("high", 16);
        wait_for("all in the engine's queue", WITHIN, || waiting(BRONZE + 1));
    });
    order.into_inner().expect("no panic")
}
