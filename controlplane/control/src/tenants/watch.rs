//! When the table is made again: soon after the store changed, by whatever process; and when the use of keys is noted.
//!
//! One plain thread. A store that cannot be read changes nothing: the cores keep the table they have.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use llmgw_store::Store;
use llmgw_types::{KeyIdx, TenantSnapshot};

use super::build::{Builder, Built};

/// How often it is looked whether the store changed.
pub const LOOK: Duration = Duration::from_millis(250);
/// How often the use of keys is noted.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// Keys whose use is noted in one transaction.
const NOTED_AT_ONCE: usize = 500;

/// Where tables go, and where the use of keys is counted.
pub trait Seats: Send + 'static {
    /// A newer table, for every core.
    fn publish(&mut self, snapshot: Arc<TenantSnapshot>);

    /// Called every [`LOOK`]: sends again what found no room, lets go of tables that no core has any more.
    fn tend(&mut self);

    /// Keys that were used since this was asked last, and when, unix milliseconds.
    fn used(&mut self) -> Vec<(KeyIdx, i64)>;
}

/// Tells the thread that the store changed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Waker(SyncSender<Word>);

impl Waker {
    /// The table is made again now.
    pub fn wake(&self) {
        // One that waits says it for all.
        let _ = self.0.try_send(Word::Look);
    }
}

#[derive(Debug)]
enum Word {
    Look,
    Stop,
}

/// The thread; ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    say: SyncSender<Word>,
    thread: Option<JoinHandle<()>>,
}

/// Words that wait for the thread.
const WORDS_MAX: usize = 4;

impl Watch {
    /// Watches a store whose table was `built` and published before.
    ///
    /// Errors: no thread left.
    pub fn start(store: Store, builder: Builder, built: i64, seats: impl Seats) -> io::Result<Self> {
        let (say, words) = sync_channel(WORDS_MAX);
        let keeper = Keeper { store, builder, seats, known: built, can_read: true, note_at: Instant::now() };
        let thread = std::thread::Builder::new().name("llmgw-tenants".into()).spawn(move || keeper.run(&words))?;
        Ok(Self { say, thread: Some(thread) })
    }

    /// For whoever changes the store in this process.
    pub fn waker(&self) -> Waker {
        Waker(self.say.clone())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Where words wait, it reads them first.
        let _ = self.say.send(Word::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of it was said when it happened.
            let _ = thread.join();
        }
    }
}

struct Keeper<S> {
    store: Store,
    builder: Builder,
    seats: S,
    /// Generation of the newest table.
    known: i64,
    /// Whether the store could be read when it was looked at last.
    can_read: bool,
    note_at: Instant,
}

impl<S: Seats> Keeper<S> {
    fn run(mut self, words: &Receiver<Word>) {
        let mut next = Instant::now() + LOOK;
        while let Ok(Word::Look) | Err(RecvTimeoutError::Timeout) =
            words.recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            let began = Instant::now();
            if self.look() {
                // A large table that changes all the time takes half of a CPU at most.
                std::thread::sleep(began.elapsed().min(LOOK));
            }
            self.seats.tend();
            if Instant::now() >= self.note_at {
                self.note();
            }
            next = Instant::now() + LOOK;
        }
        self.note();
    }

    /// Makes the table again if the store changed. Answer: whether it did.
    fn look(&mut self) -> bool {
        let built = match self.store.read(|rows| rows.tenancy_generation()) {
            Ok(generation) if generation == self.known => {
                self.read(true);
                return false;
            }
            Ok(_) => self.builder.build(&self.store),
            Err(error) => Err(error.into()),
        };
        match built {
            Ok(Built { generation, snapshot, key_count, .. }) => {
                self.read(true);
                self.known = generation;
                tracing::debug!(generation, keys = key_count, bytes = snapshot.size_bytes(), "tenant table published");
                self.seats.publish(snapshot);
            }
            Err(error) => {
                if self.can_read {
                    tracing::warn!(%error, "keys and limits stay as they are until the store can be read");
                }
                self.read(false);
            }
        }
        true
    }

    fn read(&mut self, can_read: bool) {
        if can_read && !self.can_read {
            tracing::info!("the store can be read again");
        }
        self.can_read = can_read;
    }

    /// Has the use of keys written. What the store refuses is lost until a key is used again.
    fn note(&mut self) {
        self.note_at = Instant::now() + NOTE_EVERY;
        let used: Vec<(String, i64)> = {
            let rows = self.seats.used().into_iter();
            rows.filter_map(|(key, at)| Some((self.builder.key_id(key)?.to_owned(), at))).collect()
        };
        for some in used.chunks(NOTED_AT_ONCE) {
            let some = some.to_vec();
            let noted = self.store.write_later(move |tx| some.iter().try_for_each(|(id, at)| tx.key_used(id, *at)));
            if let Err(error) = noted {
                tracing::debug!(%error, "the use of keys is not noted");
            }
        }
    }
}
