//! The journal of usage at work: what a record costs its threads at 40,000 a second, from two cores' rings onto a disk
//! and to whoever keeps it, which here nobody does.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use llmgw_journal::{Cells, Driver, Entry, Journal, Names, Options, Outlet, Setup};
use llmgw_types::{CoreId, RequestId, ShortId, Tokens, UsageRecord};

use crate::measure::{self, Clock, Plan, Timing};

const RINGS: usize = 2;
const RING_RECORDS: usize = 4096;
/// Records a tick of a ring.
const A_TICK: u64 = 20;
const TICK: Duration = Duration::from_millis(1);
/// How long a round is.
const ROUND: Duration = Duration::from_millis(500);
/// For what was pushed to be handed on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads whose time is counted, and what their figures are called.
const THREADS: [(&str, &str); 3] = [
    ("llmgw-journal", "journal/at-40000-a-second/writer"),
    ("llmgw-usage", "journal/at-40000-a-second/reader"),
    ("iou-wrk-", "journal/at-40000-a-second/kernel"),
];

struct Known;

impl Names for Known {
    fn row(&self, row: u32) -> Option<[&str; 2]> {
        (row == 1).then_some(["llama-3.3-70b", "ib0/h100"])
    }

    fn replica(&self, slot: u32) -> Option<&str> {
        (slot == 0).then_some("gpu-17")
    }
}

struct Nobody;

impl Outlet for Nobody {
    fn take(&mut self, entry: &Entry<'_>) {
        black_box(entry);
    }

    fn store(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn record(number: u64) -> UsageRecord {
    UsageRecord {
        id: RequestId::new(number, CoreId(0), 7),
        admitted_at: number,
        ended_at: number + 100,
        key_id: ShortId::of("key-01ARZ3NDEKTSV4RRF"),
        project_id: ShortId::of("proj-01ARZ3NDEKTSV4RRF"),
        asked_row: 1,
        served_row: Some(1),
        slot: Some(0),
        status: 200,
        reason: None,
        tokens: Tokens { prompt: 1_200, cached: 800, completion: 240 },
        units_micros: 1_440_000_000,
        is_estimated: false,
        ttft_ms: Some(80),
        duration_ms: 100,
        queue_ms: None,
    }
}

/// Figures of each of [`THREADS`].
pub(super) fn at_a_rate(plan: Plan) -> Result<Vec<(&'static str, Timing)>, String> {
    let folder = std::env::temp_dir().join(format!("llmgw-micro-journal-{}", std::process::id()));
    let rounds = rounds(plan, folder.clone());
    // What is left of it is of no concern.
    let _ = std::fs::remove_dir_all(folder);
    let rounds = rounds?;
    let of_thread = |(at, (_, name)): (usize, &(&str, &'static str))| {
        (*name, measure::of_rounds(Clock::Threads, rounds.iter().map(|round| round[at]).collect()))
    };
    Ok(THREADS.iter().enumerate().map(of_thread).collect())
}

fn rounds(plan: Plan, folder: PathBuf) -> Result<Vec<[f64; THREADS.len()]>, String> {
    let rings: Vec<_> = (0..RINGS).map(|_| Arc::new(ArrayQueue::new(RING_RECORDS))).collect();
    let names: Arc<Mutex<Arc<dyn Names + Send + Sync>>> = Arc::new(Mutex::new(Arc::new(Known)));
    let newest = move || names.lock().unwrap_or_else(PoisonError::into_inner).clone() as Arc<dyn Names>;
    let cells = Arc::<Cells>::default();
    let setup = Setup {
        folder,
        rings: rings.clone(),
        names: Box::new(newest),
        outlet: Nobody,
        cells: cells.clone(),
        options: Options::default(),
        driver: Driver::Ring,
    };
    let journal = Journal::start(setup).map_err(|error| error.to_string())?;
    let (mut rounds, mut pushed) = (Vec::new(), 0);
    // One more, to warm up.
    for round in 0..=plan.rounds {
        let before = spent()?;
        let count = push(&rings, &mut pushed);
        let after = spent()?;
        if round > 0 {
            rounds.push(std::array::from_fn(|at| (after[at] - before[at]) as f64 / count as f64));
        }
    }
    let begin = Instant::now();
    while cells.stored.value() < pushed && begin.elapsed() < PATIENCE {
        std::thread::sleep(TICK);
    }
    journal.stop(PATIENCE);
    match (cells.stored.value(), cells.lost.value()) {
        (stored, 0) if stored == pushed => Ok(rounds),
        (stored, lost) => Err(format!("{pushed} records were pushed, {stored} handed on, {lost} lost")),
    }
}

/// A round of records at their rate. Answer: how many there were.
fn push(rings: &[Arc<ArrayQueue<UsageRecord>>], pushed: &mut u64) -> u64 {
    let (begin, before) = (Instant::now(), *pushed);
    for tick in 1.. {
        for ring in rings {
            for _ in 0..A_TICK {
                // A full ring is seen at the end: what was not pushed is missing there.
                let _ = ring.push(record(*pushed));
                *pushed += 1;
            }
        }
        let next = TICK * tick;
        if next >= ROUND {
            break;
        }
        std::thread::sleep(next.saturating_sub(begin.elapsed()));
    }
    *pushed - before
}

/// Nanoseconds that each of [`THREADS`] has run so far; those of one name together.
fn spent() -> Result<[u64; THREADS.len()], String> {
    let mut spent = [0; THREADS.len()];
    for task in std::fs::read_dir("/proc/self/task").map_err(|error| error.to_string())?.flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (name, ran) = (read("comm"), read("schedstat"));
        let Some(at) = THREADS.iter().position(|(thread, _)| name.starts_with(thread)) else { continue };
        spent[at] += ran.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(spent)
}
