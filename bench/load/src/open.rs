//! Open loop: requests at a constant rate, whether or not the earlier ones are answered.
//!
//! Latency counts from the moment a request was due, so that a server that stalls cannot hide the wait of those who
//! came meanwhile. How late the generator itself was is told apart.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Pool;
use crate::pacer::Pacer;
use crate::progress::Progress;
use crate::report::{Report, row, spread, tally_faults, watched_rows};
use crate::tally::{Quantiles, Tally, Times};
use crate::usage::monotonic_ns;
use crate::watch::{Watch, Watched};

/// A send later than this at its 99th percentile says that the generator, or its machine, was too busy.
const LATE_P99_US_MAX: f64 = 1000.0;

/// What to run.
#[derive(Debug, Clone)]
pub struct Open {
    /// Whole requests, sent in turn.
    pub requests: Vec<Vec<u8>>,
    pub calls_per_second: f64,
    pub time: Duration,
    /// Calls at its start that are sent and not counted.
    pub warm_up_count: u64,
    /// More than so many are never open; what is due meanwhile waits, and its wait counts.
    pub open_max: usize,
    pub pid: Option<u32>,
    /// Ends the run before its time once it is set; whoever holds the other end does so.
    pub is_over: Rc<Cell<bool>>,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct OpenReport {
    pub calls_per_second_planned: f64,
    pub call_count: u64,
    pub endings: String,
    pub stale_count: u64,
    /// From due to answered.
    pub latency: Quantiles,
    /// From due to sent: the generator's own delay.
    pub late: Quantiles,
    pub reported_overhead: Quantiles,
    pub open_peak_count: u64,
    pub watched: Watched,
    #[serde(skip)]
    pub tally: Tally,
}

#[derive(Default)]
struct Shared {
    tally: RefCell<Tally>,
    late: RefCell<Times>,
    open_count: Cell<u64>,
    open_peak_count: Cell<u64>,
}

/// Runs it over a pool of connections; must be called inside a local task set.
///
/// Errors: the kernel has no timer for us.
pub async fn run(plan: Open, pool: &Rc<Pool>, progress: Progress) -> io::Result<OpenReport> {
    let shared = Rc::new(Shared::default());
    let pacer = Pacer::new()?;
    let places = Rc::new(Semaphore::new(plan.open_max.max(1)));
    let requests: Rc<[Vec<u8>]> = plan.requests.into();
    let stale_before = pool.stale_count();
    let line = progress.show("open", {
        let shared = Rc::clone(&shared);
        move || format!("{} open, {}", shared.open_count.get(), shared.tally.borrow().endings())
    });
    let mut watch = Watch::start(plan.pid);
    let gap_ns = 1e9 / plan.calls_per_second.max(1e-3);
    let counted = (plan.time.as_secs_f64() * plan.calls_per_second).round() as u64;
    let start = monotonic_ns() + 1_000_000;
    let mut calls = JoinSet::new();
    for number in 0..plan.warm_up_count + counted {
        let due = start + (number as f64 * gap_ns) as u64;
        pacer.until(due).await?;
        if plan.is_over.get() {
            break;
        }
        if number == plan.warm_up_count {
            watch = Watch::start(plan.pid);
        }
        while calls.try_join_next().is_some() {}
        let is_counted = number >= plan.warm_up_count;
        let (shared, pool) = (Rc::clone(&shared), Rc::clone(pool));
        let (places, requests) = (Rc::clone(&places), Rc::clone(&requests));
        calls.spawn_local(async move {
            let Ok(_place) = places.acquire().await else { return };
            let turn = usize::try_from(number).unwrap_or(0) % requests.len().max(1);
            let Some(request) = requests.get(turn) else { return };
            shared.open_count.set(shared.open_count.get() + 1);
            shared.open_peak_count.set(shared.open_peak_count.get().max(shared.open_count.get()));
            let sent = monotonic_ns();
            let ended = pool.call(request, &mut |_, _| ()).await;
            shared.open_count.set(shared.open_count.get() - 1);
            if is_counted {
                shared.late.borrow_mut().record(sent.saturating_sub(due));
                shared.tally.borrow_mut().count(ended, monotonic_ns().saturating_sub(due));
            }
        });
    }
    while calls.join_next().await.is_some() {}
    drop(line);
    let mut watched = watch.finish();
    let tally = shared.tally.borrow().clone();
    let late = shared.late.borrow().quantiles();
    watched.load_is_bottleneck |= late.p99_us > LATE_P99_US_MAX && shared.open_peak_count.get() < plan.open_max as u64;
    Ok(OpenReport {
        calls_per_second_planned: plan.calls_per_second,
        call_count: tally.ok_count + tally.bad_count(),
        endings: tally.endings(),
        stale_count: pool.stale_count() - stale_before,
        latency: tally.latency.quantiles(),
        late,
        reported_overhead: tally.reported_overhead.quantiles(),
        open_peak_count: shared.open_peak_count.get(),
        watched,
        tally,
    })
}

impl Report for OpenReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("planned calls/s", format!("{:.1}", self.calls_per_second_planned)),
            row(
                "calls",
                format!("{} in {:.2} s, most open {}", self.call_count, self.watched.seconds, self.open_peak_count),
            ),
            row("endings", self.endings.clone()),
            row("repeated on stale connections", self.stale_count.to_string()),
            row("latency from due", spread(&self.latency)),
            row("sent late by", spread(&self.late)),
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
