//! The handle on a store: what is written, by one thread; what is read, beside it; and copies of it.

use std::cell::{RefCell, RefMut};
use std::ops::Deref;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::open::OpenOptions;
use crate::retention::Retention;
use crate::usage_add::Inserts;
use crate::writer::{self, Job, Keep, WAITING_MAX};

/// Idle connections that read, kept for the next reader.
const READERS_KEPT: usize = 4;
/// How long somebody waits for an act, the wait for another process and for those before it included.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// An open store. Owner: any thread that may wait; never a core. Cheap to clone; the last one to go ends the writer.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    options: OpenOptions,
    jobs: Option<SyncSender<Job>>,
    writer: Option<JoinHandle<()>>,
    readers: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.path().display())
    }
}

impl Store {
    /// Opens a store, or makes one. Cost: reads the whole of a small file.
    ///
    /// Errors: the file is not to be had, not ours, damaged, newer, or held by another process.
    pub fn open(options: OpenOptions) -> Result<Self, StoreError> {
        let connection = options.writing()?;
        let (jobs, queue) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("llmgw-store".into());
        let writer = thread
            .spawn(move || writer::run(connection, &queue, Retention::default()))
            .map_err(|error| StoreError::Open { path: options.path.clone(), why: error.to_string() })?;
        let inner = Inner { options, jobs: Some(jobs), writer: Some(writer), readers: Mutex::default() };
        Ok(Self(Arc::new(inner)))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.options.path
    }

    pub(crate) fn options(&self) -> &OpenOptions {
        &self.0.options
    }

    /// Runs an act in a transaction: all it did is kept when it says `Ok`, and nothing when it does not.
    ///
    /// Errors: the act's own; or the store's, and then nothing was kept, but for [`StoreError::NoAnswer`].
    pub fn write<T, E>(&self, act: impl FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (tell, told) = sync_channel::<Result<T, E>>(1);
        let said = Arc::new(Mutex::new(None));
        let says = said.clone();
        let act = Box::new(move |tx: Result<&Tx<'_>, StoreError>| {
            let outcome = tx.map_err(E::from).and_then(act);
            let keep = if outcome.is_ok() { Keep::Yes } else { Keep::No };
            *says.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            keep
        });
        let ended = Box::new(move |ended: Result<(), StoreError>| {
            let outcome = said.lock().unwrap_or_else(PoisonError::into_inner).take();
            let outcome = match (ended, outcome) {
                (Ok(()), Some(outcome)) => outcome,
                (Ok(()), None) => Err(E::from(StoreError::Closed)),
                (Err(error), _) => Err(E::from(error)),
            };
            // Whoever asked may have waited long enough.
            let _ = tell.send(outcome);
        });
        self.post(Job { act, ended })?;
        told.recv_timeout(ANSWER_TIME).unwrap_or_else(|error| {
            Err(E::from(match error {
                RecvTimeoutError::Timeout => StoreError::NoAnswer,
                RecvTimeoutError::Disconnected => StoreError::Closed,
            }))
        })
    }

    /// Has an act run in its turn, in a transaction of its own, and does not wait for it: for what may be lost. What
    /// goes wrong is logged.
    ///
    /// Errors: too many acts wait.
    pub fn write_later(
        &self,
        act: impl FnOnce(&Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StoreError> {
        let act = Box::new(move |tx: Result<&Tx<'_>, StoreError>| match tx.and_then(act) {
            Ok(()) => Keep::Yes,
            Err(error) => {
                tracing::warn!(%error, "an act on the store was not done");
                Keep::No
            }
        });
        let ended = Box::new(|ended: Result<(), StoreError>| {
            if let Err(error) = ended {
                tracing::warn!(%error, "an act on the store was not kept");
            }
        });
        self.post(Job { act, ended })
    }

    fn post(&self, job: Job) -> Result<(), StoreError> {
        let jobs = self.0.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => StoreError::Closed,
        })
    }

    /// Runs a look at the rows, as they stood at one moment.
    ///
    /// Errors: the look's own, or the store's.
    pub fn read<T, E: From<StoreError>>(&self, look: impl FnOnce(&Rows<'_>) -> Result<T, E>) -> Result<T, E> {
        let kept = self.0.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.0.options.reading()?,
        };
        let outcome = {
            let tx = connection.transaction().map_err(StoreError::from)?;
            look(&Rows(&tx))
        };
        let mut kept = self.0.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.is_ok() && kept.len() < READERS_KEPT {
            kept.push(connection);
        }
        outcome
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without a sender the writer ends when it has done what waits.
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // A panic of it was said when it happened.
            let _ = writer.join();
        }
    }
}

/// What is stored, to be read.
pub struct Rows<'c>(pub(crate) &'c Connection);

/// What is stored, to be changed: a transaction that the writer keeps or undoes.
pub struct Tx<'c> {
    rows: Rows<'c>,
    inserts: RefCell<Option<Inserts<'c>>>,
}

impl<'c> Tx<'c> {
    /// The transaction of a connection, with what an earlier one prepared there.
    pub(crate) fn of(connection: &'c Connection, inserts: Option<Inserts<'c>>) -> Self {
        Self { rows: Rows(connection), inserts: RefCell::new(inserts) }
    }

    /// For the next transaction of the same connection.
    pub(crate) fn into_inserts(self) -> Option<Inserts<'c>> {
        self.inserts.into_inner()
    }

    pub(crate) fn inserts(&self) -> Result<RefMut<'_, Inserts<'c>>, StoreError> {
        let mut inserts = self.inserts.borrow_mut();
        if inserts.is_none() {
            *inserts = Some(Inserts::prepare(self.rows.0)?);
        }
        RefMut::filter_map(inserts, Option::as_mut).map_err(|_| StoreError::Closed)
    }
}

impl<'c> Deref for Tx<'c> {
    type Target = Rows<'c>;

    fn deref(&self) -> &Rows<'c> {
        &self.rows
    }
}

#[cfg(test)]
mod tests;
