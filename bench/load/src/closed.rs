//! Closed loop: so many connections, each sending its next request when the last one is answered.
//!
//! Shows throughput and cost. Its latencies are not those users would see: a slow server slows the questions, too.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::Pool;
use crate::progress::Progress;
use crate::report::{Report, row, spread, tally_faults, watched_rows};
use crate::tally::{Quantiles, Tally};
use crate::target::Target;
use crate::usage::monotonic_ns;
use crate::watch::{Watch, Watched};

/// After a failure a connection pauses, so that a dead server is not hammered.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(5);

/// What to run.
#[derive(Debug, Clone)]
pub struct Closed {
    pub target: Target,
    /// Whole requests, sent in turn.
    pub requests: Vec<Vec<u8>>,
    pub connection_count: usize,
    pub ends: Ends,
    /// Not counted; only for runs that end after a time.
    pub warm_up: Duration,
    /// Limit of one call.
    pub within: Duration,
    /// The process under test.
    pub pid: Option<u32>,
}

/// When the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    AfterTime(Duration),
    AfterCalls(u64),
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct ClosedReport {
    pub connection_count: usize,
    pub call_count: u64,
    pub calls_per_second: f64,
    pub endings: String,
    pub stale_count: u64,
    pub latency: Quantiles,
    pub reported_overhead: Quantiles,
    pub watched: Watched,
    #[serde(skip)]
    pub tally: Tally,
}

struct Shared {
    plan: Closed,
    tally: RefCell<Tally>,
    is_counting: Cell<bool>,
    is_over: Cell<bool>,
    begun_count: Cell<u64>,
    stale_count: Cell<u64>,
}

/// Runs it; must be called inside a local task set.
pub async fn run(plan: Closed, progress: Progress) -> ClosedReport {
    let connection_count = plan.connection_count;
    let shared = Rc::new(Shared {
        tally: RefCell::default(),
        is_counting: Cell::new(false),
        is_over: Cell::new(false),
        begun_count: Cell::new(0),
        stale_count: Cell::new(0),
        plan,
    });
    let mut loops = JoinSet::new();
    let is_timed = matches!(shared.plan.ends, Ends::AfterTime(_));
    let line = progress.show("closed", {
        let shared = Rc::clone(&shared);
        move || shared.tally.borrow().endings()
    });
    shared.is_counting.set(!is_timed || shared.plan.warm_up.is_zero());
    let mut watch = Watch::start(shared.plan.pid);
    for idx in 0..connection_count {
        loops.spawn_local(one_loop(Rc::clone(&shared), idx));
    }
    if let Ends::AfterTime(time) = shared.plan.ends {
        if !shared.plan.warm_up.is_zero() {
            tokio::time::sleep(shared.plan.warm_up).await;
            watch = Watch::start(shared.plan.pid);
            shared.is_counting.set(true);
        }
        tokio::time::sleep(time).await;
        shared.is_counting.set(false);
        shared.is_over.set(true);
    }
    if is_timed {
        let watched = watch.finish();
        while loops.join_next().await.is_some() {}
        drop(line);
        return report(&shared, watched);
    }
    while loops.join_next().await.is_some() {}
    drop(line);
    report(&shared, watch.finish())
}

fn report(shared: &Shared, watched: Watched) -> ClosedReport {
    let tally = shared.tally.borrow().clone();
    let call_count = tally.ok_count + tally.bad_count();
    ClosedReport {
        connection_count: shared.plan.connection_count,
        call_count,
        calls_per_second: tally.ok_count as f64 / watched.seconds,
        endings: tally.endings(),
        stale_count: shared.stale_count.get(),
        latency: tally.latency.quantiles(),
        reported_overhead: tally.reported_overhead.quantiles(),
        watched,
        tally,
    }
}

async fn one_loop(shared: Rc<Shared>, mut turn: usize) {
    let plan = &shared.plan;
    let pool = Pool::new(plan.target.clone(), plan.within);
    while !shared.is_over.get() {
        if let Ends::AfterCalls(count) = plan.ends {
            if shared.begun_count.get() >= count {
                break;
            }
            shared.begun_count.set(shared.begun_count.get() + 1);
        }
        let Some(request) = plan.requests.get(turn % plan.requests.len().max(1)) else { break };
        turn += 1;
        let sent = monotonic_ns();
        let ended = pool.call(request, &mut |_, _| ()).await;
        let has_failed = ended.is_err();
        if shared.is_counting.get() {
            shared.tally.borrow_mut().count(ended, monotonic_ns() - sent);
        }
        if has_failed {
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
    shared.stale_count.set(shared.stale_count.get() + pool.stale_count());
}

impl Report for ClosedReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("connections", self.connection_count.to_string()),
            row("calls", format!("{} in {:.2} s", self.call_count, self.watched.seconds)),
            row("good calls/s", format!("{:.1}", self.calls_per_second)),
            row("endings", self.endings.clone()),
            row("repeated on stale connections", self.stale_count.to_string()),
            row("latency", spread(&self.latency)),
        ];
        if self.reported_overhead.count > 0 {
            rows.push(row("overhead as reported", spread(&self.reported_overhead)));
        }
        rows.extend(watched_rows(&self.watched, Some(("call", self.call_count))));
        rows
    }

    fn faults(&self) -> Vec<String> {
        tally_faults(&self.tally)
    }
}
