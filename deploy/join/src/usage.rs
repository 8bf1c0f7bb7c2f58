//! What requests used, put together: the journal, and the store that it hands on to.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use llmgw_journal::{Cells, Driver, Entry, Journal, NewestNames, Options, Outlet, Setup};
use llmgw_router::usage::UsageRing;
use llmgw_store::usage::{BATCH_MAX, UsageRow};
use llmgw_store::{Batch, Store, USED_EVERY};

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
    /// What was taken and is not stored. Shared with a write that may still run; filled again when it is over.
    batch: Arc<Batch>,
    /// When the use of a key was written last.
    noted: HashMap<String, i64, RandomState>,
}

impl Outlet for ToStore {
    fn take(&mut self, entry: &Entry<'_>) {
        Arc::make_mut(&mut self.batch).push(&row(entry));
    }

    fn store(&mut self) -> Result<(), String> {
        let due = self.due();
        let (batch, noted) = (self.batch.clone(), due.clone());
        let written = self.store.write(move |tx| {
            tx.add_usage(&batch)?;
            let keys = due.iter().filter_map(|number| batch.row(*number));
            tx.keys_used(keys.map(|row| (row.key_id, row.admitted_at)))
        });
        written.map_err(|error| error.to_string())?;
        self.note(&noted);
        match Arc::get_mut(&mut self.batch) {
            Some(batch) => batch.clear(),
            None => self.batch = Arc::default(),
        }
        Ok(())
    }
}

impl ToStore {
    /// Into that store.
    pub fn new(store: Store) -> Self {
        Self { store, batch: Arc::default(), noted: HashMap::default() }
    }

    /// Rows of the batch with whose time the use of their key is to be written.
    fn due(&self) -> Vec<usize> {
        let is_due = |row: &UsageRow<&str>| {
            let noted = self.noted.get(row.key_id);
            !row.key_id.is_empty() && noted.is_none_or(|at| row.admitted_at.saturating_sub(*at) >= USED_EVERY)
        };
        let rows = self.batch.rows().enumerate();
        rows.filter(|(_, row)| is_due(row)).map(|(number, _)| number).collect()
    }

    /// Remembers that the use of these rows' keys is written.
    fn note(&mut self, rows: &[usize]) {
        if self.noted.len() > NOTED_MAX {
            self.noted.clear();
        }
        for row in rows.iter().filter_map(|number| self.batch.row(*number)) {
            match self.noted.get_mut(row.key_id) {
                Some(at) => *at = row.admitted_at,
                None => _ = self.noted.insert(row.key_id.to_owned(), row.admitted_at),
            }
        }
    }
}

fn row<'e>(entry: &Entry<'e>) -> UsageRow<&'e str> {
    let some = |text: &'e str| Some(text).filter(|text| !text.is_empty());
    let moment = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    UsageRow {
        ts: moment(entry.ended_at),
        record_id: entry.record_id.to_be_bytes(),
        admitted_at: moment(entry.admitted_at),
        key_id: entry.key_id,
        project_id: entry.project_id,
        model: entry.model,
        served_model: entry.served_model,
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
