//! What requests used, on its way to the store: the journal of `llmgw server`, with one ring that all threads push
//! into.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use llmgw_journal::{Cells, Driver, Entry, Journal, NewestNames, Options, Outlet, Setup};
use llmgw_router::usage::{RING_CAPACITY, UsageRing};
use llmgw_store::usage::UsageRow;
use llmgw_store::{Store, StoreError};

/// How long a start waits for what an earlier run left.
const REPLAY_TIME: Duration = Duration::from_secs(10);

/// Starts the journal of a store, beside its file.
///
/// Errors: its folder cannot be used.
pub(crate) fn start(store: &Store, names: NewestNames, cells: Arc<Cells>) -> io::Result<(Arc<UsageRing>, Journal)> {
    let ring = Arc::new(UsageRing::new(RING_CAPACITY));
    let mut folder = store.path().as_os_str().to_owned();
    folder.push(".usage");
    let journal = Journal::start(Setup {
        folder: PathBuf::from(folder),
        rings: vec![ring.clone()],
        names,
        outlet: ToStore { store: store.clone(), batch: Arc::default() },
        cells,
        options: Options::default(),
        driver: Driver::Thread,
    })?;
    if !journal.wait_replayed(REPLAY_TIME) {
        tracing::warn!("usage records of a run before are still being stored; sums do not hold them yet");
    }
    Ok((ring, journal))
}

/// Hands records to the store.
struct ToStore {
    store: Store,
    /// What was taken and is not stored. Shared with a write that may still run.
    batch: Arc<Vec<UsageRow>>,
}

impl Outlet for ToStore {
    fn take(&mut self, entry: &Entry<'_>) {
        Arc::make_mut(&mut self.batch).push(row(entry));
    }

    fn store(&mut self) -> Result<(), String> {
        let batch = self.batch.clone();
        let written = self.store.write(move |tx| {
            tx.add_usage(&batch)?;
            let mut keys: Vec<(&str, i64)> = batch.iter().map(|row| (row.key_id.as_str(), row.admitted_at)).collect();
            keys.sort_unstable();
            for (at, (key, used_at)) in keys.iter().enumerate() {
                let is_newest = keys.get(at + 1).is_none_or(|(next, _)| next != key);
                if is_newest && !key.is_empty() {
                    tx.key_used(key, *used_at)?;
                }
            }
            Ok::<_, StoreError>(())
        });
        written.map_err(|error| error.to_string())?;
        self.batch = Arc::default();
        Ok(())
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
