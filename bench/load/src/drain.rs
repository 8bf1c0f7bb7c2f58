//! Draining: a gateway told to stop under load, in front of it a client that watches readiness as a balancer does.
//!
//! Calls come at a constant rate, most of them on kept connections and every few on a fresh one; long streams run
//! across the whole end. The client goes on sending for a while after readiness was withdrawn, since no balancer
//! notices at once. Called by the binary's `scenario drain`; ends the process it is handed and no other.

mod report;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::{Connection, Failure, Pool};
use crate::control;
use crate::pacer::Pacer;
use crate::process::{Process, Signal};
use crate::progress::Progress;
use crate::streams::{self, Streams, StreamsReport};
use crate::tally::Tally;
use crate::target::Target;
use crate::usage::monotonic_ns;
use crate::watch::{Watch, Watched};

/// How often readiness is asked for, and the listener once the client has left.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// From the moment readiness is gone every core has so long to learn that its answers end their connections.
const TOLD_WITHIN: Duration = Duration::from_millis(100);
/// Readiness that stays, or a listener that does, is given up on.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to run.
#[derive(Debug)]
pub struct Drain {
    pub via: Target,
    pub admin: Target,
    /// Whole requests, sent in turn.
    pub requests: Vec<Vec<u8>>,
    pub calls_per_second: f64,
    /// Of so many calls one comes on a connection of its own.
    pub fresh_every: u64,
    /// Load before the signal.
    pub before: Duration,
    /// How long the client goes on sending once readiness is gone.
    pub notices_after: Duration,
    /// What the gateway was told to wait between readiness and the end of its listener.
    pub settle: Duration,
    /// Limit of one call.
    pub within: Duration,
    /// Streams that are open at the signal and end after the listener.
    pub streams: Streams,
}

/// What it found. Times are seconds since the signal.
#[derive(Debug, Clone, Serialize)]
pub struct DrainReport {
    pub calls_per_second: f64,
    pub before: Phase,
    /// Between the signal and the first answer that says not ready.
    pub signalled: Phase,
    pub unready: Phase,
    pub stale_count: u64,
    /// Answers later than [`TOLD_WITHIN`] after readiness was gone: those that end their connection, and others.
    pub last_count: u64,
    pub kept_count: u64,
    pub unready_after: f64,
    pub left_after: f64,
    pub closed_after: f64,
    pub ended_after: f64,
    pub settle: f64,
    /// How the process ended, when that was no success.
    pub bad_end: Option<String>,
    pub streams: StreamsReport,
    pub watched: Watched,
}

/// Calls sent in one phase.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Phase {
    pub ok_count: u64,
    pub bad_count: u64,
    /// Of all of them, those on a connection of their own.
    pub fresh_count: u64,
    pub endings: String,
}

#[derive(Default)]
struct Calls {
    tally: Tally,
    fresh_count: u64,
}

#[derive(Default)]
struct Shared {
    /// Before the signal, after it, and after readiness was gone.
    phases: RefCell<[Calls; 3]>,
    signalled_ns: Cell<Option<u64>>,
    unready_ns: Cell<Option<u64>>,
    is_over: Cell<bool>,
    last_count: Cell<u64>,
    kept_count: Cell<u64>,
}

/// Runs it on the gateway's own process; must be called inside a local task set.
///
/// Errors: the process cannot be told, readiness stays, the listener stays, or the process does.
pub async fn run(plan: Drain, process: &mut Process, progress: Progress) -> Result<DrainReport, String> {
    let shared = Rc::new(Shared::default());
    let pool = Pool::new(plan.via.clone(), plan.within);
    let line = progress.show("drain", {
        let shared = Rc::clone(&shared);
        move || shared.phases.borrow().each_ref().map(|calls| calls.tally.endings()).join(" / ")
    });
    let watch = Watch::start(None);
    let open = tokio::task::spawn_local(streams::run(plan.streams.clone(), Progress::Silent));
    let load = tokio::task::spawn_local(load(plan.via.clone(), Load::of(&plan), Rc::clone(&shared), Rc::clone(&pool)));
    tokio::time::sleep(plan.before).await;

    let told = |error: std::io::Error| format!("the gateway cannot be told to stop: {error}");
    process.signal(Signal::TERM).map_err(told)?;
    let signalled_ns = monotonic_ns();
    shared.signalled_ns.set(Some(signalled_ns));
    let unready_ns = unready(&plan.admin).await?;
    shared.unready_ns.set(Some(unready_ns));
    tokio::time::sleep(plan.notices_after).await;
    shared.is_over.set(true);
    load.await.map_err(|_| "the load was lost in the generator".to_owned())?.map_err(|error| error.to_string())?;
    let left_ns = monotonic_ns();
    let closed_ns = closed(&plan.via).await?;
    let streams = open.await.map_err(|_| "the streams were lost in the generator".to_owned())?;
    let status = process.wait(PATIENCE).map_err(|error| error.to_string())?;
    let ended_ns = monotonic_ns();
    drop(line);

    let after = |ns: u64| ns.saturating_sub(signalled_ns) as f64 / 1e9;
    let [before, signalled, unready] = shared.phases.borrow().each_ref().map(phase);
    Ok(DrainReport {
        calls_per_second: plan.calls_per_second,
        before,
        signalled,
        unready,
        stale_count: pool.stale_count(),
        last_count: shared.last_count.get(),
        kept_count: shared.kept_count.get(),
        unready_after: after(unready_ns),
        left_after: after(left_ns),
        closed_after: after(closed_ns),
        ended_after: after(ended_ns),
        settle: plan.settle.as_secs_f64(),
        bad_end: (!status.success()).then(|| status.to_string()),
        streams,
        watched: watch.finish(),
    })
}

fn phase(calls: &Calls) -> Phase {
    let Calls { tally, fresh_count } = calls;
    let (ok_count, bad_count) = (tally.ok_count, tally.bad_count());
    Phase { ok_count, bad_count, fresh_count: *fresh_count, endings: tally.endings() }
}

/// What the loop of calls needs of the plan.
struct Load {
    requests: Rc<[Vec<u8>]>,
    calls_per_second: f64,
    fresh_every: u64,
}

impl Load {
    fn of(plan: &Drain) -> Self {
        let Drain { calls_per_second, fresh_every, .. } = *plan;
        Self { requests: plan.requests.clone().into(), calls_per_second, fresh_every: fresh_every.max(1) }
    }
}

async fn load(via: Target, load: Load, shared: Rc<Shared>, pool: Rc<Pool>) -> std::io::Result<()> {
    let pacer = Pacer::new()?;
    let fresh_pool = Pool::new(via, PATIENCE);
    let (start, gap_ns) = (monotonic_ns() + 1_000_000, 1e9 / load.calls_per_second.max(1e-3));
    let mut calls = JoinSet::new();
    for number in 0u64.. {
        pacer.until(start + (number as f64 * gap_ns) as u64).await?;
        if shared.is_over.get() {
            break;
        }
        while calls.try_join_next().is_some() {}
        let is_fresh = number.is_multiple_of(load.fresh_every);
        let (requests, shared) = (Rc::clone(&load.requests), Rc::clone(&shared));
        let pool = Rc::clone(if is_fresh { &fresh_pool } else { &pool });
        calls.spawn_local(async move {
            let turn = usize::try_from(number).unwrap_or(0) % requests.len().max(1);
            if let Some(request) = requests.get(turn) {
                one_call(request, is_fresh, &pool, &shared).await;
            }
        });
    }
    while calls.join_next().await.is_some() {}
    Ok(())
}

async fn one_call(request: &[u8], is_fresh: bool, pool: &Pool, shared: &Shared) {
    let phase = match (shared.signalled_ns.get(), shared.unready_ns.get()) {
        (None, _) => 0,
        (Some(_), None) => 1,
        (Some(_), Some(_)) => 2,
    };
    let sent = monotonic_ns();
    let ended = if is_fresh { pool.call_fresh(request).await } else { pool.call(request, &mut |_, _| ()).await };
    if let Some(calls) = shared.phases.borrow_mut().get_mut(phase) {
        calls.tally.count(ended, monotonic_ns() - sent);
        calls.fresh_count += u64::from(is_fresh);
    }
    let told_ns = shared.unready_ns.get().map(|ns| ns + TOLD_WITHIN.as_nanos() as u64);
    if let (Ok(done), true) = (ended, told_ns.is_some_and(|told| sent > told)) {
        let count = if done.is_last { &shared.last_count } else { &shared.kept_count };
        count.set(count.get() + 1);
    }
}

/// The moment at which the gateway says that it wants no more traffic.
async fn unready(admin: &Target) -> Result<u64, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match control::status(admin, "/readyz").await {
            Ok(503) => return Ok(monotonic_ns()),
            Ok(200) if Instant::now() < deadline => {}
            Ok(status) => return Err(format!("/readyz answers {status} to a gateway that was told to stop")),
            Err(failure) => return Err(format!("/readyz did not answer before it said 503: {}", failure.name())),
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The moment at which nobody listens any more.
async fn closed(via: &Target) -> Result<u64, String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Err(Failure::Refused) = Connection::open(via).await {
            return Ok(monotonic_ns());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Err(format!("{} is listened on {PATIENCE:?} after the last call", via.addr))
}
