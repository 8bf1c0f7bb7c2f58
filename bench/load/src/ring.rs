//! What the cores ask of the kernel: ring operations and system calls of each core's thread, counted under mixed load.
//!
//! Called by the binary's `ring` command. A core should do nothing but network work through its ring, and never open a
//! file or wait for a lock; the kernel's own tracing says whether that holds. Needs root, tracefs and a gateway on
//! io_uring. It slows what it counts: its speeds are no figures.

mod kernel;
mod known;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::closed::{self, Closed, ClosedReport, Ends};
use crate::progress::Progress;
use crate::prompt::{Chat, Delivery};
use crate::report::{Report, row, tally_faults};
use crate::target::Target;
use crate::usage::monotonic_ns;

pub use known::Standing;

/// Clients that leave: few, since each leaves many times a second.
const LEAVER_COUNT: usize = 4;
const LEAVE_AFTER: Duration = Duration::from_millis(40);
/// Calls before anything is recorded.
const FIRST_CALLS: u64 = 64;
/// For the closes of the last clients to be handled, too.
const SETTLE: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Debug, Clone)]
pub struct Ring {
    pub via: Target,
    pub model: String,
    /// The gateway.
    pub pid: u32,
    pub load: Kinds,
    /// Connections for whole answers, and as many for streams.
    pub connection_count: usize,
    /// Limit of one call.
    pub within: Duration,
}

/// What the cores are loaded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// Whole answers, streams and clients that leave, all at once for so long.
    Mixed(Duration),
    /// So many whole answers and no other.
    Whole(u64),
    /// So many streams and no other, their events far enough apart to come one by one.
    Streams(u64),
}

impl Kinds {
    fn is_mixed(self) -> bool {
        matches!(self, Self::Mixed(_))
    }
}

/// Why there is no report.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// This machine, this user or this gateway's driver does not allow it.
    Unavailable(String),
    Failed(String),
}

/// Something the cores did.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub name: String,
    pub standing: Standing,
    /// By core, in the order of the report's cores.
    pub counts: Vec<u64>,
    pub per_request: f64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct RingReport {
    /// The cores' threads, by name.
    pub cores: Vec<String>,
    pub seconds: f64,
    pub whole_count: u64,
    pub stream_count: u64,
    pub left_count: u64,
    pub operations: Vec<Line>,
    pub calls: Vec<Line>,
    /// Operations the kernel gave to a worker thread.
    pub handed_over: Vec<Line>,
    /// Events the kernel dropped: with one of them the counts prove nothing.
    pub lost_count: u64,
    /// Events that could not be read.
    pub unread_count: u64,
    pub load_faults: Vec<String>,
}

/// Runs it; must be called inside a local task set.
///
/// Errors: see [`Error`].
pub async fn run(plan: Ring, progress: Progress) -> Result<RingReport, Error> {
    let cores = core_threads(plan.pid);
    if cores.is_empty() {
        return Err(Error::Failed(format!("process {} has no thread called core-…", plan.pid)));
    }
    if !is_linked(plan.pid, None, "anon_inode:[io_uring]") {
        let message = "the gateway runs on the epoll driver (it has no ring open): there are no operations to count";
        return Err(Error::Unavailable(message.to_owned()));
    }
    // A gateway that has just said that it is ready may still be making what its cores keep.
    closed::run(plan.closed(Delivery::Whole, None, Ends::AfterCalls(FIRST_CALLS)), Progress::Silent).await;
    let thread_ids: Vec<u32> = cores.iter().map(|(_, id)| *id).collect();
    let recording = kernel::Recording::start(&thread_ids, known::ON_EVENTFD)?;
    progress.say(&format!("recording {} core threads", cores.len()));
    let started = monotonic_ns();
    let whole = async |ends| Some(closed::run(plan.closed(Delivery::Whole, None, ends), Progress::Silent).await);
    let slow = Some(json!({ "events": 20, "delay_us": if plan.load.is_mixed() { 1000 } else { 5000 } }));
    let streams =
        async |ends| Some(closed::run(plan.closed(Delivery::StreamedWithUsage, slow, ends), Progress::Silent).await);
    let (whole, streams, left) = match plan.load {
        Kinds::Whole(calls) => (whole(Ends::AfterCalls(calls)).await, None, Left::default()),
        Kinds::Streams(calls) => (None, streams(Ends::AfterCalls(calls)).await, Left::default()),
        Kinds::Mixed(time) => {
            tokio::join!(whole(Ends::AfterTime(time)), streams(Ends::AfterTime(time)), leavers(&plan, time))
        }
    };
    tokio::time::sleep(SETTLE).await;
    let seconds = (monotonic_ns() - started) as f64 / 1e9;
    let recorded = recording.finish()?;
    // The report looks up descriptors, so the gateway must still live.
    Ok(report(&plan, &cores, &recorded, Load { seconds, whole, streams, left }))
}

struct Load {
    seconds: f64,
    whole: Option<ClosedReport>,
    streams: Option<ClosedReport>,
    left: Left,
}

/// Clients that left, and those that could not.
#[derive(Default)]
struct Left {
    count: u64,
    faults: BTreeMap<String, u64>,
}

impl Ring {
    fn closed(&self, delivery: Delivery, instruction: Option<serde_json::Value>, ends: Ends) -> Closed {
        let max_tokens = instruction.is_none().then_some(8);
        let chat = Chat { model: self.model.clone(), delivery, instruction, max_tokens, ..Chat::default() };
        Closed {
            target: self.via.clone(),
            requests: (0..16).map(|seed| Chat { seed, ..chat.clone() }.bytes(&self.via)).collect(),
            connection_count: self.connection_count,
            ends,
            warm_up: Duration::ZERO,
            within: self.within,
            pid: None,
        }
    }
}

/// Clients that begin a long answer and leave it, streamed and whole, with a FIN and a RST, until the time is over.
async fn leavers(plan: &Ring, time: Duration) -> Left {
    let mut clients = JoinSet::new();
    for turn in 0..LEAVER_COUNT {
        let (plan, until_ns) = (plan.clone(), monotonic_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        clients.spawn_local(async move {
            let delivery = if turn % 2 == 0 { Delivery::Streamed } else { Delivery::Whole };
            let instruction = Some(json!({ "events": 1000, "delay_us": 5000 }));
            let request = Chat { model: plan.model.clone(), delivery, instruction, ..Chat::default() }.bytes(&plan.via);
            let mut left = Left::default();
            while monotonic_ns() < until_ns {
                match leave(&plan.via, &request, turn >= LEAVER_COUNT / 2).await {
                    Ok(()) => left.count += 1,
                    Err(fault) => *left.faults.entry(fault).or_default() += 1,
                }
            }
            left
        });
    }
    let mut all = Left::default();
    while let Some(joined) = clients.join_next().await {
        let Ok(left) = joined else { continue };
        all.count += left.count;
        left.faults.into_iter().for_each(|(fault, count)| *all.faults.entry(fault).or_default() += count);
    }
    all
}

async fn leave(via: &Target, request: &[u8], with_reset: bool) -> Result<(), String> {
    let named = |failure: crate::client::Failure| failure.name().to_owned();
    let mut connection = Connection::open(via).await.map_err(named)?;
    connection.send(request).await.map_err(named)?;
    if let Ok(ended) = tokio::time::timeout(LEAVE_AFTER, connection.read(&mut |_, _| ())).await {
        let ended = ended.map_or_else(named, |done| done.status.to_string());
        // Whatever it was, it must not be asked for again at once.
        tokio::time::sleep(LEAVE_AFTER).await;
        return Err(format!("ended before it was left: {ended}"));
    }
    if with_reset {
        connection.abort();
    }
    Ok(())
}

/// Name and thread id of each core, in the order of their numbers.
fn core_threads(pid: u32) -> Vec<(String, u32)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let threads = tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?.trim_end().to_owned();
        let number: u32 = name.strip_prefix("core-")?.parse().ok()?;
        Some((number, name, task.file_name().to_str()?.parse().ok()?))
    });
    let mut threads: Vec<(u32, String, u32)> = threads.collect();
    threads.sort();
    threads.into_iter().map(|(_, name, id)| (name, id)).collect()
}

/// Whether a descriptor of the process (any, or this one) is of the kind that `/proc` calls so.
fn is_linked(pid: u32, fd: Option<u64>, kind: &str) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    fds.flatten()
        .filter(|entry| fd.is_none_or(|fd| entry.file_name().to_str() == Some(&fd.to_string())))
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|link| link.to_str() == Some(kind))
}

fn report(plan: &Ring, cores: &[(String, u32)], recorded: &kernel::Recorded, load: Load) -> RingReport {
    let (mut operations, mut calls, mut handed_over) = (Lines::default(), Lines::default(), Lines::default());
    for (idx, (_, thread_id)) in cores.iter().enumerate() {
        let Some(counts) = recorded.threads.get(thread_id) else { continue };
        for (name, count) in &counts.operations {
            operations.add((name.clone(), known::operation(name)), idx, *count);
        }
        for (name, count) in &counts.handed_over {
            handed_over.add((name.clone(), known::operation(name)), idx, *count);
        }
        for (&(number, fd), count) in &counts.calls {
            let is_eventfd = fd.is_some_and(|fd| is_linked(plan.pid, Some(fd), "anon_inode:[eventfd]"));
            calls.add(known::call(number, is_eventfd), idx, *count);
        }
    }
    let calls_of = |report: &Option<ClosedReport>| report.as_ref().map_or(0, |report| report.call_count);
    let (whole_count, stream_count, left_count) = (calls_of(&load.whole), calls_of(&load.streams), load.left.count);
    let request_count = whole_count + stream_count + left_count;
    let reports = [&load.whole, &load.streams];
    let mut load_faults: Vec<String> =
        reports.into_iter().flatten().flat_map(|report| tally_faults(&report.tally)).collect();
    load_faults.extend(load.left.faults.iter().map(|(fault, count)| format!("{count} × leaving client: {fault}")));
    let shown = |lines: Lines| lines.shown(cores.len(), request_count);
    RingReport {
        cores: cores.iter().map(|(name, _)| name.clone()).collect(),
        seconds: load.seconds,
        whole_count,
        stream_count,
        left_count,
        operations: shown(operations),
        calls: shown(calls),
        handed_over: shown(handed_over),
        lost_count: recorded.lost_count,
        unread_count: recorded.unread_count,
        load_faults,
    }
}

/// Counts by name and core, while they are gathered.
#[derive(Default)]
struct Lines(BTreeMap<(Standing, String), BTreeMap<usize, u64>>);

impl Lines {
    fn add(&mut self, (name, standing): (String, Standing), core_idx: usize, count: u64) {
        *self.0.entry((standing, name)).or_default().entry(core_idx).or_default() += count;
    }

    fn shown(self, core_count: usize, request_count: u64) -> Vec<Line> {
        let line = |((standing, name), by_core): ((Standing, String), BTreeMap<usize, u64>)| Line {
            name,
            standing,
            per_request: by_core.values().sum::<u64>() as f64 / request_count.max(1) as f64,
            counts: (0..core_count).map(|idx| by_core.get(&idx).copied().unwrap_or(0)).collect(),
        };
        self.0.into_iter().map(line).collect()
    }
}

impl RingReport {
    fn unexpected(&self) -> Vec<String> {
        let all = [("ring operation", &self.operations), ("system call", &self.calls)];
        let found = all.iter().flat_map(|(what, lines)| lines.iter().map(move |line| (what, line)));
        let found = found.filter(|(_, line)| line.standing == Standing::Unexpected);
        found
            .map(|(what, line)| format!("unexpected {what}: {} × {}", line.counts.iter().sum::<u64>(), line.name))
            .collect()
    }
}

fn counts_of(line: &Line) -> (String, String) {
    let counts: String = line.counts.iter().map(|count| format!("{count:>9} ")).collect();
    let extra = if line.standing == Standing::Extra { "  (expected extra)" } else { "" };
    row(&format!("  {}", line.name), format!("{counts} {:>9.4}{extra}", line.per_request))
}

impl Report for RingReport {
    fn rows(&self) -> Vec<(String, String)> {
        let Self { whole_count, stream_count, left_count, .. } = self;
        let request_count = whole_count + stream_count + left_count;
        let kinds = format!("{whole_count} whole, {stream_count} streams, {left_count} left by their client");
        let cores: String = self.cores.iter().map(|name| format!("{name:>9} ")).collect();
        let total = |name: &str, lines: &[Line]| {
            let counts = (0..self.cores.len()).map(|idx| lines.iter().filter_map(|line| line.counts.get(idx)).sum());
            let per_request = lines.iter().fold(0.0, |sum, line| sum + line.per_request);
            counts_of(&Line {
                name: name.to_owned(),
                standing: Standing::Promised,
                counts: counts.collect(),
                per_request,
            })
        };
        let mut rows = vec![row("requests", format!("{request_count} in {:.1} s: {kinds}", self.seconds))];
        rows.push(row("ring operations", format!("{cores} a request")));
        rows.extend(self.operations.iter().map(counts_of));
        rows.push(total("all", &self.operations));
        rows.push(row("system calls", format!("{cores} a request")));
        rows.extend(self.calls.iter().map(counts_of));
        rows.push(total("all", &self.calls));
        if self.handed_over.is_empty() {
            rows.push(row("given to worker threads", "none"));
        } else {
            rows.push(row("given to worker threads", format!("{cores} a request")));
            rows.extend(self.handed_over.iter().map(counts_of));
        }
        rows.push(row("events lost", self.lost_count.to_string()));
        let unexpected = self.unexpected().len();
        let of =
            |name: &str| self.calls.iter().filter(|line| line.name == name).flat_map(|line| &line.counts).sum::<u64>();
        let (openat, futex) = (of("openat"), of("futex"));
        rows.push(row("verdict", format!("{unexpected} unexpected kinds, {openat} × openat, {futex} × futex")));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.unexpected();
        if self.lost_count > 0 || self.unread_count > 0 {
            faults.push(format!("{} events lost, {} not understood: no proof", self.lost_count, self.unread_count));
        }
        for (idx, name) in self.cores.iter().enumerate() {
            if self.operations.iter().all(|line| line.counts.get(idx).copied().unwrap_or(0) == 0) {
                faults.push(format!("{name} made no ring operation: nothing is shown about it"));
            }
        }
        faults.extend(self.load_faults.iter().cloned());
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(operations: &[(&str, &[u64])], lost_count: u64) -> RingReport {
        let mut lines = Lines::default();
        for (name, counts) in operations {
            for (idx, count) in counts.iter().enumerate() {
                lines.add(((*name).to_owned(), known::operation(name)), idx, *count);
            }
        }
        RingReport {
            cores: vec!["core-0".to_owned(), "core-1".to_owned()],
            seconds: 1.0,
            whole_count: 8,
            stream_count: 1,
            left_count: 1,
            operations: lines.shown(2, 10),
            calls: Vec::new(),
            handed_over: Vec::new(),
            lost_count,
            unread_count: 0,
            load_faults: Vec::new(),
        }
    }

    fn check(report: &RingReport, faults: &[&str]) {
        assert_eq!(report.faults(), faults);
    }

    #[test]
    fn a_run_is_good_only_when_every_event_is_known_and_none_was_lost() {
        check(&sample(&[("RECV", &[20, 10]), ("ASYNC_CANCEL", &[1, 0])], 0), &[]);
        check(&sample(&[("RECV", &[1, 1]), ("OPENAT", &[2, 1])], 0), &["unexpected ring operation: 3 × OPENAT"]);
        check(&sample(&[("RECV", &[1, 1])], 7), &["7 events lost, 0 not understood: no proof"]);
    }

    #[test]
    fn a_core_without_work_proves_nothing() {
        check(&sample(&[("RECV", &[5])], 0), &["core-1 made no ring operation: nothing is shown about it"]);
    }

    #[test]
    fn the_table_has_a_column_for_each_core_and_counts_by_request() {
        let table = crate::report::table("ring", &sample(&[("RECV", &[20, 10]), ("SEND", &[10, 0])], 0));
        let recv = table.lines().find(|line| line.contains("RECV")).expect("a row");
        assert_eq!(recv.split_whitespace().collect::<Vec<_>>(), ["RECV", "20", "10", "3.0000"]);
        let all = table.lines().find(|line| line.trim_start().starts_with("all")).expect("a sum");
        assert_eq!(all.split_whitespace().collect::<Vec<_>>(), ["all", "30", "10", "4.0000"]);
    }

    #[test]
    fn a_process_without_cores_is_refused() {
        let pid = std::process::id();
        assert_eq!(core_threads(pid), []);
        assert!(!is_linked(pid, None, "anon_inode:[io_uring]"));
    }
}
