//! What requests used, put together: the journal, and the store that it hands on to.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmgw_journal::{Cells, Driver, Entry, Journal, NewestNames, Options, Outlet, Setup};
use llmgw_router::usage::UsageRing;
use llmgw_store::usage::{BATCH_MAX, UsageRow};
use llmgw_store::{Store, USED_EVERY};

/// How long a start waits for what an earlier run left, so that budgets count it; what is left then is stored on the
/// way.
const REPLAY_TIME: Duration = Duration::from_secs(10);
/// Keys of which that is remembered; beyond them it is looked up in the store.
const NOTED_MAX: usize = 100_000;
const _: () = assert!(llmgw_journal::BATCH_MAX <= BATCH_MAX);

/// Where the journal of a store is: beside its file.
fn folder(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".usage");
    name.into()
}

/// Starts the journal of a store. What an earlier run had written is in the store when this returns, unless that takes
/// very long.
///
/// Errors: its folder cannot be used.
pub fn start(
    store: &Store,
    rings: Vec<Arc<UsageRing>>,
    names: NewestNames,
    cells: Arc<Cells>,
    driver: Driver,
) -> io::Result<Journal> {
    let outlet = ToStore::new(store.clone());
    let folder = folder(store.path());
    let options = Options::default();
    let journal = Journal::start(Setup { folder, rings, names, outlet, cells, options, driver })?;
    if !journal.wait_replayed(REPLAY_TIME) {
        tracing::warn!("usage records of a run before are still being stored; sums do not hold them yet");
    }
    Ok(journal)
}

/// Hands records to the store.
pub struct ToStore {
    store: Store,
    /// What was taken and is not stored. Shared with a write that may still run.
    batch: Arc<Vec<UsageRow>>,
    /// When the use of a key was written last.
    noted: HashMap<String, i64>,
}

impl Outlet for ToStore {
    fn take(&mut self, entry: &Entry<'_>) {
        Arc::make_mut(&mut self.batch).push(row(entry));
    }

    fn store(&mut self) -> Result<(), String> {
        let (batch, due) = (self.batch.clone(), self.due());
        let noted = due.clone();
        let written = self.store.write(move |tx| {
            tx.add_usage(&batch)?;
            tx.keys_used(due.iter().map(|(key, at)| (key.as_str(), *at)))
        });
        written.map_err(|error| error.to_string())?;
        if self.noted.len() > NOTED_MAX {
            self.noted.clear();
        }
        self.noted.extend(noted);
        self.batch = Arc::default();
        Ok(())
    }
}

impl ToStore {
    /// Into that store.
    pub fn new(store: Store) -> Self {
        Self { store, batch: Arc::default(), noted: HashMap::new() }
    }

    /// Keys whose use is to be written with the batch.
    fn due(&self) -> Vec<(String, i64)> {
        let is_due = |row: &&UsageRow| {
            let noted = self.noted.get(&row.key_id);
            !row.key_id.is_empty() && noted.is_none_or(|at| row.admitted_at.saturating_sub(*at) >= USED_EVERY)
        };
        self.batch.iter().filter(is_due).map(|row| (row.key_id.clone(), row.admitted_at)).collect()
    }
}

fn row(entry: &Entry<'_>) -> UsageRow {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let moment = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    UsageRow {
        record_id: entry.record_id.to_be_bytes(),
        ts: moment(entry.ended_at),
        admitted_at: moment(entry.admitted_at),
        key_id: entry.key_id.to_owned(),
        project_id: entry.project_id.to_owned(),
        model: entry.model.to_owned(),
        served_model: entry.served_model.to_owned(),
        pool: some(entry.pool),
        replica: some(entry.replica),
        status: entry.status,
        reason: some(entry.reason),
        prompt_tokens: entry.prompt_tokens,
        completion_tokens: entry.completion_tokens,
        cached_tokens: entry.cached_tokens,
        units_micros: entry.units_micros,
        is_estimated: entry.is_estimated,
        ttft_ms: entry.ttft_ms,
        duration_ms: entry.duration_ms,
        queue_ms: entry.queue_ms,
    }
}
