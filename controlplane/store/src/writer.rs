//! The one thread that writes: acts wait in a bounded queue, and each runs in a transaction of its own.
//!
//! Between acts, every so often, it brings the sums up and lets go of old rows. Another process may write the same
//! file; SQLite's lock keeps the two apart. What is written thousands of times a second it keeps prepared.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use llmgw_kit::clock::Wall;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::StoreError;
use crate::retention::Retention;
use crate::store::Tx;
use crate::usage_add::Inserts;

/// Acts that wait; with more the store says that it is busy.
pub(crate) const WAITING_MAX: usize = 256;
/// How often sums are brought up.
const CHORES_EVERY: Duration = Duration::from_secs(300);
/// How soon they go on when there was more to do than one transaction should.
const CHORES_GO_ON: Duration = Duration::from_millis(50);

/// What is to be done: it gets a transaction, or the reason why there is none, and says whether to keep what it did.
pub(crate) type Act = Box<dyn FnOnce(Result<&Tx<'_>, StoreError>) -> Keep + Send>;

/// What to do with an act's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// An act and who waits for it.
pub(crate) struct Job {
    pub(crate) act: Act,
    /// Told when the transaction has ended, and how.
    pub(crate) ended: Box<dyn FnOnce(Result<(), StoreError>) + Send>,
}

/// Runs acts until nobody can send any more.
pub(crate) fn run(connection: Connection, jobs: &Receiver<Job>, retention: Retention) {
    let (mut chores_at, mut inserts) = (Instant::now() + CHORES_EVERY, None);
    loop {
        match jobs.recv_timeout(chores_at.saturating_duration_since(Instant::now())) {
            Ok(job) => do_job(&connection, &mut inserts, job),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if Instant::now() >= chores_at {
            chores_at = Instant::now() + chores(&connection, retention);
        }
    }
}

fn do_job<'c>(connection: &'c Connection, inserts: &mut Option<Inserts<'c>>, Job { act, ended }: Job) {
    // A fault of one act must not take the store from the others; what it did is undone with its transaction.
    let outcome = catch_unwind(AssertUnwindSafe(|| transact(connection, inserts, act)));
    ended(outcome.unwrap_or(Err(StoreError::Closed)));
}

fn transact<'c>(connection: &'c Connection, inserts: &mut Option<Inserts<'c>>, act: Act) -> Result<(), StoreError> {
    let tx = match begin(connection) {
        Ok(tx) => tx,
        Err(error) => {
            act(Err(error.into()));
            return Ok(());
        }
    };
    let of_act = Tx::of(connection, inserts.take());
    let keep = act(Ok(&of_act));
    *inserts = of_act.into_inserts();
    if keep == Keep::Yes {
        tx.commit()?;
    }
    Ok(())
}

/// The one transaction of the connection; undone unless it is committed.
fn begin(connection: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
}

/// One step of what is to be done from time to time; the answer is when the next is due.
fn chores(connection: &Connection, retention: Retention) -> Duration {
    let now = i64::try_from(Wall::now().0).unwrap_or(i64::MAX);
    let step = |connection: &Connection| {
        let tx = begin(connection)?;
        let act = Tx::of(connection, None);
        let has_more = act.roll_up(now)? | act.forget(now, retention)?;
        tx.commit()?;
        Ok::<_, StoreError>(has_more)
    };
    match step(connection) {
        Ok(true) => CHORES_GO_ON,
        Ok(false) => CHORES_EVERY,
        Err(error) => {
            tracing::warn!(%error, "usage not summed up; it is tried again");
            CHORES_EVERY
        }
    }
}
