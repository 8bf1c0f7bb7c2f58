//! Cancelling and the mix against a simulated engine: good where nothing stands in between, and not good where
//! something stands in between that a gateway must not be.

use std::net::SocketAddr;
use std::time::Duration;

use llmgw_load::cancel::{self, Cancel, CancelReport};
use llmgw_load::mixed::{self, Mixed};
use llmgw_load::progress::Progress;
use llmgw_load::report::Report;
use llmgw_test_kit::Engine;
use llmgw_test_kit::gateway::MODEL;

use super::common::{block_on, greedy_relay, target};

const WITHIN: Duration = Duration::from_secs(20);

fn cancelled(via: SocketAddr, engine: SocketAddr) -> CancelReport {
    let plan = Cancel {
        via: target(via),
        engines: vec![target(engine)],
        model: MODEL.to_owned(),
        call_count: 4,
        cut_after: Duration::from_millis(300),
        // The bar is for a quiet machine; here only the event counts.
        delay_us_max: 5e6,
        seen_within: if via == engine { WITHIN } else { Duration::from_millis(300) },
    };
    block_on(cancel::run(plan, Progress::Silent)).expect("the engine's recording")
}

#[test]
fn every_close_is_found_in_the_engines_recording() {
    let engine = Engine::local();
    let report = cancelled(engine.addr(), engine.addr());
    assert_eq!(report.faults(), Vec::<String>::new());
    assert_eq!(report.groups.iter().map(|group| group.seen_count).collect::<Vec<_>>(), [4; 4]);
}

#[test]
fn a_close_that_does_not_reach_the_engine_is_a_fault() {
    let engine = Engine::local();
    let report = cancelled(greedy_relay(engine.addr()), engine.addr());
    assert_eq!(report.groups.iter().map(|group| group.seen_count).sum::<usize>(), 0);
    assert_eq!(report.faults().len(), 16, "{:?}", report.faults());
}

#[test]
fn every_kind_of_the_mix_ends_as_it_must_and_a_page_without_gauges_is_a_fault() {
    let engine = Engine::local();
    let plan = |via| Mixed {
        via,
        admin: target(engine.addr()),
        model: MODEL.to_owned(),
        call_count: 140,
        connection_count: 4,
        pid: std::process::id(),
        growth_bytes_max: u64::MAX,
        within: WITHIN,
    };
    let report = block_on(mixed::run(plan(target(engine.addr())), Progress::Silent)).expect("a page");
    // An engine has no gauges of a gateway: the one thing missing here.
    assert_eq!(report.faults(), ["the metrics page has no llmgw_endpoint_inflight"]);
    assert_eq!((report.kinds.len(), report.call_count), (14, 140));
    engine.set_faults(serde_json::json!({ "status": 500 }));
    let report = block_on(mixed::run(plan(target(engine.addr())), Progress::Silent)).expect("a page");
    assert!(report.unexpected.contains_key("chat: 500"), "{:?}", report.unexpected);
}
