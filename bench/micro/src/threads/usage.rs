//! Records of usage on their way into a store: what one costs the thread that reads the journal, from a record that is
//! read to a batch that is stored, and what it costs the store's one thread that writes. Of that, SQLite's own
//! allocations are not seen.

use llmgw_join::usage::ToStore;
use llmgw_journal::{BATCH_MAX, Entry, Outlet as _};
use llmgw_kit::chance::Chance;
use llmgw_store::{OpenOptions, Store, StoreError};
use llmgw_types::{CoreId, RequestId};

use crate::allocator;
use crate::measure::{self, Clock, Figure, Plan, Timing};

/// Records of a round.
const RECORDS: usize = 40 * BATCH_MAX;
/// How often a record comes. Units: microseconds.
const EVERY: u64 = 25;
/// When the first one ended. Units: unix milliseconds.
const BEGIN: u64 = 1_790_000_000_000;

/// What a record says, with room for its texts.
struct Record {
    id: RequestId,
    ended_at: u64,
    duration_ms: u64,
    key_id: String,
    project_id: String,
    model: String,
    replica: String,
    chance: u64,
}

impl Record {
    fn entry(&self) -> Entry<'_> {
        Entry {
            record_id: self.id.0,
            admitted_at: self.ended_at - self.duration_ms,
            ended_at: self.ended_at,
            key_id: &self.key_id,
            project_id: &self.project_id,
            model: &self.model,
            served_model: &self.model,
            pool: "fabric-1/h100",
            replica: &self.replica,
            reason: "",
            status: 200,
            prompt_tokens: self.chance % 4_000,
            cached_tokens: self.chance % 2_000,
            completion_tokens: self.chance % 800,
            units_micros: self.chance % 4_000_000_000,
            is_estimated: self.chance.is_multiple_of(50),
            ttft_ms: Some(self.chance % 900),
            duration_ms: self.duration_ms,
            queue_ms: self.chance.is_multiple_of(4).then_some(self.chance % 100),
        }
    }
}

/// A round's records in the order in which they end, while `at_once` requests are under way: a record was admitted
/// anywhere among the twice as many that end before it.
fn records(at_once: u64, round: usize, chance: &mut Chance) -> Vec<Record> {
    let record = |number: usize| {
        let end_us = (round * RECORDS + number) as u64 * EVERY;
        let ended_at = BEGIN + end_us / 1_000;
        let duration_ms = chance.next_u64() % (2 * at_once * EVERY / 1_000);
        let core = CoreId((chance.next_u64() % 8) as u32);
        let (key, drawn) = (chance.next_u64() % 500, chance.next_u64());
        Record {
            id: RequestId::new(ended_at - duration_ms, core, chance.next_u64()),
            ended_at,
            duration_ms,
            key_id: format!("key-{key:017}"),
            project_id: format!("proj-{:017}", key % 50),
            model: format!("llama-3.3-70b-{}", drawn % 4),
            replica: format!("gpu-node-{:02}", drawn % 32),
            chance: drawn,
        }
    };
    (0..RECORDS).map(record).collect()
}

/// CPU time of the store's thread, in nanoseconds, and its allocations, so far.
fn of_the_store(store: &Store) -> Result<(f64, u64), StoreError> {
    store.write(|_| Ok((measure::cpu_time().as_nanos() as f64, allocator::count())))
}

/// A thread's rounds, and what it allocated in them.
#[derive(Default)]
struct Spent {
    rounds_ns: Vec<f64>,
    allocations: u64,
}

impl Spent {
    fn note(&mut self, from: (f64, u64), to: (f64, u64)) {
        self.rounds_ns.push((to.0 - from.0) / RECORDS as f64);
        self.allocations += to.1 - from.1;
    }

    fn timing(self) -> Timing {
        let allocations = self.allocations as f64 / (self.rounds_ns.len() * RECORDS) as f64;
        Timing { allocations, ..measure::of_rounds(Clock::Cpu, self.rounds_ns) }
    }
}

/// Batches into a store of its own, in the folder for temporary files.
pub(super) fn into_the_store(name: &str, plan: Plan, at_once: u64) -> Result<Vec<Figure>, String> {
    let said = |error: &dyn std::error::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(|error| said(&error))?;
    let store = Store::open(OpenOptions::new(folder.path().join("llmgw.db"))).map_err(|error| said(&error))?;
    let mut outlet = ToStore::new(store.clone());
    let (mut reading, mut writing, mut chance) = (Spent::default(), Spent::default(), Chance::seeded(7));
    // One more, to warm up.
    for round in 0..=plan.rounds {
        let records = records(at_once, round, &mut chance);
        let before = of_the_store(&store).map_err(|error| said(&error))?;
        let begin = (measure::cpu_time().as_nanos() as f64, allocator::count());
        for batch in records.chunks(BATCH_MAX) {
            batch.iter().for_each(|record| outlet.take(&record.entry()));
            outlet.store()?;
        }
        let end = (measure::cpu_time().as_nanos() as f64, allocator::count());
        let after = of_the_store(&store).map_err(|error| said(&error))?;
        if round > 0 {
            reading.note(begin, end);
            writing.note(before, after);
        }
    }
    Ok(vec![
        super::figure(&format!("{name}/outlet"), reading.timing(), Some(200.0), false),
        super::figure(&format!("{name}/store"), writing.timing(), Some(1_200.0), false),
    ])
}
