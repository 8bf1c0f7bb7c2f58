//! The scenarios that weigh memory. They weigh this very process, so one runs at a time.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use llmgw_load::progress::Progress;
use llmgw_load::report::Report;
use llmgw_load::stalled::{self, Stalled, StalledReport};
use llmgw_load::uploads::{self, Uploads};
use llmgw_test_kit::Engine;
use llmgw_test_kit::gateway::MODEL;

use super::common::{block_on, greedy_relay, target};

const WITHIN: Duration = Duration::from_secs(20);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// This process is the one that buffers, so its own memory counts.
fn stalled(via: SocketAddr) -> StalledReport {
    let plan = Stalled {
        via: target(via),
        model: MODEL.to_owned(),
        client_count: 4,
        stream_mib: 16,
        pid: std::process::id(),
        held_bytes_max: 4 << 20,
    };
    block_on(stalled::run(plan, Progress::Silent))
}

#[test]
fn what_a_relay_buffers_for_stalled_clients_is_found() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = Engine::local();
    let report = stalled(engine.addr());
    assert_eq!(report.faults(), Vec::<String>::new());
    let report = stalled(greedy_relay(engine.addr()));
    assert!(report.held_bytes_per_client > 8 << 20, "{report:?}");
    assert!(report.faults().iter().any(|fault| fault.starts_with("a stalled client holds")), "{:?}", report.faults());
}

#[test]
fn large_bodies_are_weighed_against_the_memory_they_take() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Bodies this long are counted, not read: no model takes so many tokens.
    let engine = Engine::local_with(|cfg| cfg.body_held_bytes_max = 1_000_000);
    let plan = |ratio_max| Uploads {
        via: target(engine.addr()),
        model: MODEL.to_owned(),
        body_count: 4,
        body_bytes: 2_000_000,
        pid: std::process::id(),
        ratio_max,
        within: WITHIN,
    };
    let report = block_on(uploads::run(plan(1000.0), Progress::Silent));
    assert_eq!((report.faults(), report.endings.as_str()), (vec![], "200 × 4"));
    let report = block_on(uploads::run(plan(0.01), Progress::Silent));
    assert!(report.faults()[0].contains("× the bodies"), "{:?}", report.faults());
}
