//! Streams: many answers open together, each counted, timed and compared byte for byte.
//!
//! A stream is good when it is a 200, carries every event, ends with `[DONE]` and the end its framing promised, and has
//! the same bytes as the reference (or as most others, when there is none). Anything else is a fault with a name.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Connection, Done, Failure};
use crate::control;
use crate::events::Events;
use crate::progress::Progress;
use crate::report::{Report, row, spread, watched_rows};
use crate::tally::{Quantiles, Times};
use crate::target::Target;
use crate::usage::{monotonic_ns, unix_ns};
use crate::watch::{Watch, Watched};
use crate::wire::Part;

const GAUGE: &str = "llmgw_endpoint_inflight";
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Debug, Clone)]
pub struct Streams {
    pub target: Target,
    /// The whole request, the same for every stream.
    pub request: Vec<u8>,
    pub stream_count: usize,
    /// The starts are spread over this time.
    pub ramp: Duration,
    /// Limit of one stream.
    pub within: Duration,
    /// What every stream must be; learned from most streams where absent.
    pub reference: Option<Reference>,
    /// The fewest data events of a good stream.
    pub event_count_min: u64,
    /// All must be open together for at least so long.
    pub together_min: Duration,
    pub pid: Option<u32>,
    /// A gateway's metrics page, whose gauge of open requests must show every stream and then none.
    pub admin: Option<Target>,
    /// How long the gauge may take to come down.
    pub gauge_within: Duration,
}

/// What a good stream looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Reference {
    pub event_count: u64,
    pub hash: u64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct StreamsReport {
    pub stream_count: usize,
    pub good_count: u64,
    /// How the others ended, by name.
    pub bad: BTreeMap<String, u64>,
    /// What the good ones were compared with; its origin is told by `reference_is_given`.
    pub reference: Option<Reference>,
    pub reference_is_given: bool,
    pub event_count: u64,
    pub body_bytes: u64,
    pub open_peak_count: usize,
    /// The longest time during which every stream was open.
    pub together_seconds: f64,
    pub together_seconds_min: f64,
    pub first_event: Quantiles,
    pub gap: Quantiles,
    /// From the send time an event carries to its arrival; none when the engine writes none.
    pub one_way: Quantiles,
    /// What the gateway's page said, where there is one.
    pub gauge: Option<Gauge>,
    pub watched: Watched,
}

/// The gateway's own count of open requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Gauge {
    /// The most it showed.
    pub peak: f64,
    /// What it showed when everything had ended.
    pub after: f64,
}

#[derive(Debug)]
struct Ended {
    done: Result<Done, Failure>,
    seen: Reference,
    is_done: bool,
    is_faulty: bool,
}

#[derive(Default)]
struct Shared {
    first_event: RefCell<Times>,
    gap: RefCell<Times>,
    one_way: RefCell<Times>,
    together: RefCell<Together>,
    event_count: Cell<u64>,
    body_bytes: Cell<u64>,
}

/// Since when all streams have been open, and for how long at best.
#[derive(Debug, Default)]
struct Together {
    open_count: usize,
    open_peak_count: usize,
    all_since_ns: Option<u64>,
    longest_ns: u64,
}

impl Together {
    fn opened(&mut self, all_count: usize, now: u64) {
        self.open_count += 1;
        self.open_peak_count = self.open_peak_count.max(self.open_count);
        if self.open_count == all_count {
            self.all_since_ns = Some(now);
        }
    }

    fn closed(&mut self, now: u64) {
        self.open_count -= 1;
        if let Some(since) = self.all_since_ns.take() {
            self.longest_ns = self.longest_ns.max(now.saturating_sub(since));
        }
    }
}

/// Runs it; must be called inside a local task set.
pub async fn run(plan: Streams, progress: Progress) -> StreamsReport {
    let shared = Rc::new(Shared::default());
    let line = progress.show("streams", {
        let shared = Rc::clone(&shared);
        move || format!("{} open, {} events", shared.together.borrow().open_count, shared.event_count.get())
    });
    let watch = Watch::start(plan.pid);
    let plan = Rc::new(plan);
    let peak = Rc::new(Cell::new(0.0));
    let sampling = plan.admin.clone().map(|admin| tokio::task::spawn_local(sample(admin, Rc::clone(&peak))));
    let mut streams = JoinSet::new();
    for idx in 0..plan.stream_count {
        let (plan, shared) = (Rc::clone(&plan), Rc::clone(&shared));
        streams.spawn_local(async move {
            tokio::time::sleep(plan.ramp.mul_f64(idx as f64 / plan.stream_count as f64)).await;
            one_stream(&plan, &shared).await
        });
    }
    let mut ended = Vec::with_capacity(plan.stream_count);
    let mut lost_count = 0;
    while let Some(joined) = streams.join_next().await {
        match joined {
            Ok(one) => ended.push(one),
            Err(_) => lost_count += 1,
        }
    }
    drop(line);
    let watched = watch.finish();
    let mut found = report(&plan, &shared, &ended, lost_count, watched);
    if let (Some(admin), Some(sampling)) = (&plan.admin, sampling) {
        sampling.abort();
        found.gauge = Some(Gauge { peak: peak.get(), after: after_all(admin, plan.gauge_within).await });
    }
    found
}

/// Asks the page again and again, and keeps the most it shows.
async fn sample(admin: Target, peak: Rc<Cell<f64>>) {
    loop {
        // A page that does not answer shows nothing: the peak then stays too low, which is told.
        if let Ok(page) = control::metrics(&admin).await {
            peak.set(peak.get().max(page.sum(GAUGE, &[]).unwrap_or(0.0)));
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

/// The gauge when it has come down, or what it is stuck at; not a number when the page does not answer.
async fn after_all(admin: &Target, within: Duration) -> f64 {
    let ask = async || Ok(control::metrics(admin).await?.sum(GAUGE, &[]).unwrap_or(f64::NAN));
    control::until(within, ask, |value| *value == 0.0).await.map_or(f64::NAN, |(value, _)| value)
}

/// Reads one stream of the target by itself, to compare others with it.
///
/// Errors: it did not end well; the message says how.
pub async fn reference(target: &Target, request: &[u8], within: Duration) -> Result<Reference, String> {
    let plan = Streams {
        target: target.clone(),
        request: request.to_vec(),
        stream_count: 1,
        ramp: Duration::ZERO,
        within,
        reference: None,
        event_count_min: 1,
        together_min: Duration::ZERO,
        pid: None,
        admin: None,
        gauge_within: Duration::ZERO,
    };
    let ended = one_stream(&plan, &Shared::default()).await;
    match fault_of(&ended, &plan, ended.seen) {
        None => Ok(ended.seen),
        Some(fault) => Err(format!("the reference stream from {} ended badly: {fault}", target.addr)),
    }
}

async fn one_stream(plan: &Streams, shared: &Shared) -> Ended {
    let mut events = Events::default();
    let mut is_open = false;
    let mut last_ns = None;
    let sent_ns = monotonic_ns();
    let wall_offset_ns = unix_ns().saturating_sub(sent_ns);
    let mut on = |part: Part<'_>, now: u64| {
        let Part::Body(bytes) = part else { return };
        if !is_open {
            is_open = true;
            shared.together.borrow_mut().opened(plan.stream_count, now);
        }
        shared.body_bytes.set(shared.body_bytes.get() + bytes.len() as u64);
        events.push(bytes, |event| {
            shared.event_count.set(shared.event_count.get() + 1);
            match last_ns.replace(now) {
                None => shared.first_event.borrow_mut().record(now.saturating_sub(sent_ns)),
                Some(last) => shared.gap.borrow_mut().record(now.saturating_sub(last)),
            }
            if let Some(sent_unix_ns) = event.sent_unix_ns {
                shared.one_way.borrow_mut().record((now + wall_offset_ns).saturating_sub(sent_unix_ns));
            }
        });
    };
    let call = async {
        let mut connection = Connection::open(&plan.target).await?;
        connection.send(&plan.request).await?;
        connection.read(&mut on).await
    };
    let done = timeout(plan.within, call).await.unwrap_or(Err(Failure::TimedOut));
    if is_open {
        shared.together.borrow_mut().closed(monotonic_ns());
    }
    let seen = Reference { event_count: events.count, hash: events.hash() };
    Ended { done, seen, is_done: events.is_done, is_faulty: events.is_faulty }
}

/// The name of what is wrong with a stream, the gravest first.
fn fault_of(ended: &Ended, plan: &Streams, reference: Reference) -> Option<String> {
    match ended.done {
        Err(failure) => return Some(failure.name().to_owned()),
        Ok(Done { status, .. }) if status != 200 => return Some(format!("status {status}")),
        Ok(_) => {}
    }
    let fault = if ended.is_faulty {
        "error_event"
    } else if !ended.is_done {
        "no_done"
    } else if ended.seen.event_count < plan.event_count_min.max(reference.event_count) {
        "short_stream"
    } else if ended.seen != reference {
        "wrong_bytes"
    } else {
        return None;
    };
    Some(fault.to_owned())
}

fn report(plan: &Streams, shared: &Shared, ended: &[Ended], lost_count: u64, watched: Watched) -> StreamsReport {
    let reference = plan.reference.or_else(|| most_common(ended));
    let mut bad: BTreeMap<String, u64> = BTreeMap::new();
    for one in ended {
        if let Some(fault) = fault_of(one, plan, reference.unwrap_or(one.seen)) {
            *bad.entry(fault).or_default() += 1;
        }
    }
    if lost_count > 0 {
        bad.insert("lost_in_the_generator".to_owned(), lost_count);
    }
    let together = shared.together.borrow();
    StreamsReport {
        stream_count: plan.stream_count,
        good_count: plan.stream_count as u64 - bad.values().sum::<u64>(),
        bad,
        reference,
        reference_is_given: plan.reference.is_some(),
        event_count: shared.event_count.get(),
        body_bytes: shared.body_bytes.get(),
        open_peak_count: together.open_peak_count,
        together_seconds: together.longest_ns as f64 / 1e9,
        together_seconds_min: plan.together_min.as_secs_f64(),
        first_event: shared.first_event.borrow().quantiles(),
        gap: shared.gap.borrow().quantiles(),
        one_way: shared.one_way.borrow().quantiles(),
        gauge: None,
        watched,
    }
}

/// What most complete streams looked like.
fn most_common(ended: &[Ended]) -> Option<Reference> {
    let mut counts: BTreeMap<Reference, usize> = BTreeMap::new();
    for one in ended.iter().filter(|one| one.is_done && one.done.is_ok_and(|done| done.status == 200)) {
        *counts.entry(one.seen).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(reference, _)| reference)
}

impl Report for StreamsReport {
    fn rows(&self) -> Vec<(String, String)> {
        let bad: Vec<String> = self.bad.iter().map(|(name, count)| format!("{name} × {count}")).collect();
        let compared = match (self.reference, self.reference_is_given) {
            (None, _) => "nothing to compare with".to_owned(),
            (Some(reference), is_given) => {
                let with = if is_given { "the engine's own stream" } else { "most streams" };
                format!("{} events, {:016x}, as {with}", reference.event_count, reference.hash)
            }
        };
        let mut rows = vec![
            row("streams", format!("{} good of {}", self.good_count, self.stream_count)),
            row("bad", if bad.is_empty() { "none".to_owned() } else { bad.join(", ") }),
            row("compared with", compared),
            row(
                "events",
                format!("{}, {:.0} a second", self.event_count, self.event_count as f64 / self.watched.seconds),
            ),
            row("open together", format!("{} for {:.2} s", self.open_peak_count, self.together_seconds)),
            row("time to first event", spread(&self.first_event)),
            row("gap between events", spread(&self.gap)),
        ];
        if self.one_way.count > 0 {
            rows.push(row("engine to client", spread(&self.one_way)));
        }
        if let Some(gauge) = self.gauge {
            rows.push(row(
                "open by the gateway's count",
                format!("{} at most, {} afterwards", gauge.peak, gauge.after),
            ));
        }
        rows.extend(watched_rows(&self.watched, Some(("event", self.event_count))));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            self.bad.iter().map(|(name, count)| format!("{count} streams ended with {name}")).collect();
        if self.together_seconds < self.together_seconds_min {
            let (seen, least) = (self.together_seconds, self.together_seconds_min);
            let all = self.stream_count;
            faults.push(format!("all {all} streams were open together for {seen:.2} s, less than {least:.2} s"));
        }
        if let Some(Gauge { peak, after }) = self.gauge {
            let all = self.stream_count;
            if self.together_seconds_min > 0.0 && peak != all as f64 {
                faults.push(format!("{GAUGE} showed at most {peak} of {all} open streams"));
            }
            if after != 0.0 {
                faults.push(format!("{GAUGE} is {after} when all streams have ended"));
            }
        }
        faults
    }
}
