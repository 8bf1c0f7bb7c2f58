//! What a core allocates per request once it is warm: counted on the core's own thread while a real core serves
//! keep-alive clients in front of a simulated engine.
//!
//! Counts, no times: the figures are the same on any machine. `LLMGW_ALLOCATION_SITES=1 cargo test --profile ci --test
//! allocations -- --nocapture` shows who allocates.

#![expect(clippy::print_stdout, reason = "who allocates is shown to the person who asks")]

mod counter;
mod held;
mod rig;

use llmgw_runtime::driver::{Driver, DriverChoice, choose};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, chat};
use rig::{KEY, Rig};
use serde_json::json;

/// Requests before the count begins: buffers, pools and connections have grown by then.
const WARM_UP: usize = 400;
/// Rounds, of which one must hold.
const ROUNDS_MAX: usize = 4;
/// Allocations per request on the ring that a crowded machine may cause: a client that is not scheduled leaves a piece
/// of a stream unsent while the next is read, which takes a buffer more. On a machine at rest a round has none at all.
const RING_MARGIN: f64 = 0.01;
/// Requests whose sites are shown where every request has some.
const SHOWN: usize = 80;

/// A kind of request and what it may allocate on the core.
struct Case {
    name: &'static str,
    request: Vec<u8>,
    /// Requests over which it is counted.
    count: usize,
    /// Allocations per request on epoll, where each wait with a limit takes one. How a stream's bytes fall into reads
    /// is chance, so a stream's figure has room for the most pieces it can come in. On the ring it is 0, with
    /// [`RING_MARGIN`].
    epoll_at_most: f64,
}

fn cases() -> [Case; 3] {
    let prompt = "Tell me of the sea. ".repeat(25);
    let post = |chat: Chat| {
        let request = Request::new("POST", "/v1/chat/completions");
        let request = request.header("User-Agent", "openai-python").header("Authorization", format!("Bearer {KEY}"));
        request.json(&chat.json()).bytes()
    };
    let stream = |delay_us: u32| post(chat(&prompt).streamed().faults(json!({ "events": 16, "delay_us": delay_us })));
    [
        Case { name: "whole", request: post(chat(&prompt).max_tokens(16)), count: 10_000, epoll_at_most: 5.1 },
        Case { name: "streamed at once", request: stream(0), count: 9_000, epoll_at_most: 26.0 },
        Case { name: "streamed event by event", request: stream(1_000), count: 1_000, epoll_at_most: 60.0 },
    ]
}

fn check(driver: Driver) {
    let mut rig = Rig::start(driver);
    let mut over = Vec::new();
    for case in cases() {
        rig.ask(&case.request, WARM_UP);
        if counter::wants_sites() {
            let shown = if driver == Driver::Epoll { SHOWN } else { case.count };
            let sites = counter::sites(|| rig.ask(&case.request, shown));
            println!("\n{} on {driver}: allocations per request, size and place", case.name);
            for (count, site) in sites {
                println!("{:8.4}  {site}", count as f64 / shown as f64);
            }
            continue;
        }
        let at_most = if driver == Driver::Epoll { case.epoll_at_most } else { RING_MARGIN };
        let mut each = f64::MAX;
        // A table that grows does so once; what is asked for by requests comes again in every round.
        for round in 1..=ROUNDS_MAX {
            let before = counter::count();
            rig.ask(&case.request, case.count);
            each = (counter::count() - before) as f64 / case.count as f64;
            println!("{} on {driver}, round {round}: {each:.4} allocations per request", case.name);
            if each <= at_most {
                break;
            }
        }
        if each > at_most {
            over.push(format!("{}: {each:.4} allocations per request, at most {at_most}", case.name));
        }
    }
    rig.stop();
    assert!(over.is_empty(), "on {driver}: {over:?}; {}=1 shows who allocates", counter::SITES);
}

/// One test, since there is one counter: each driver in turn.
#[test]
fn a_warm_core_allocates_no_more_per_request_than_is_written_down() {
    check(Driver::Epoll);
    let (driver, _) = choose(DriverChoice::Auto).expect("a driver");
    if driver != Driver::Epoll {
        check(driver);
    }
}
