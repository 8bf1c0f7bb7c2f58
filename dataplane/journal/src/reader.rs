//! The reading half: records from the segments, oldest first, into whatever keeps them for good; then the segment is
//! taken away.
//!
//! [`Reader::turn`] is called again and again by a thread that may wait: for the disk, and for the store, which may be
//! locked or gone. What cannot be stored stays where it is. A record may be handed on twice, after a crash; whoever
//! keeps it must take it for one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::entry::Entry;
use crate::files::Folder;
use crate::metrics::Cells;
use crate::segment::{self, HEAD_BYTES, Next, Salt};
use crate::tail::{Seen, Segment, Tail};

/// Records that are stored together at most.
pub const BATCH_MAX: usize = 500;
/// How long a record waits for others.
const BATCH_TIME: Duration = Duration::from_millis(200);
/// The wait after a failure, and the longest one after several.
const AGAIN_FIRST: Duration = Duration::from_millis(250);
const AGAIN_LAST: Duration = Duration::from_secs(2);
/// How long nothing to do is waited for; what comes ends the wait.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// What is read at a time.
const READ_BYTES: usize = 128 << 10;
const _: () = assert!(READ_BYTES > segment::FRAME_BYTES_MAX);

/// Keeps records for good.
pub trait Outlet {
    /// Takes a record, to be stored with the next [`Outlet::store`].
    fn take(&mut self, entry: &Entry<'_>);
    /// Stores what was taken since the last time that this went well; all of it or nothing.
    ///
    /// Errors: why it is not stored. It is asked again.
    fn store(&mut self) -> Result<(), String>;
}

/// What comes of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// There may be more to do at once.
    Something,
    /// There is nothing to do for that long, unless the tail changes.
    Wait(Duration),
    /// Nothing is left, and nothing more will come; or there is no time to wait for what is left.
    Ended,
}

/// See the head of this file.
pub struct Reader<D: Folder, O: Outlet> {
    folder: D,
    outlet: O,
    tail: Arc<Tail>,
    cells: Arc<Cells>,
    /// How far the oldest segment was read.
    at: u64,
    salt: Option<Salt>,
    /// Bytes of it that were read, from `at` on, are those between the two positions.
    ahead: Vec<u8>,
    front: usize,
    back: usize,
    /// The tail as it was looked at last.
    version: u64,
    /// Records that the outlet took and did not store.
    taken: usize,
    taken_at: Mono,
    /// After failures: how many, and when it is tried again.
    failure_count: u32,
    again_at: Mono,
    stored_since: u64,
}

impl<D: Folder, O: Outlet> Reader<D, O> {
    pub fn new(folder: D, outlet: O, tail: Arc<Tail>, cells: Arc<Cells>) -> Self {
        Self {
            folder,
            outlet,
            tail,
            cells,
            at: 0,
            salt: None,
            ahead: Vec::new(),
            front: 0,
            back: 0,
            version: 0,
            taken: 0,
            taken_at: Mono::default(),
            failure_count: 0,
            again_at: Mono::default(),
            stored_since: 0,
        }
    }

    /// Reads on, stores what is due, takes away what is stored.
    pub fn turn(&mut self, now: Mono) -> Did {
        let Seen { oldest, is_ended, version } = self.tail.look();
        self.version = version;
        if now < self.again_at {
            return if self.tail.is_hurried() { self.give_up() } else { Did::Wait(self.again_at.since(now)) };
        }
        let mut is_through = false;
        if let Some(segment) = &oldest
            && let Err(error) = self.read(segment, now, &mut is_through)
        {
            return self.failed("a usage segment cannot be read; it is tried again", &error.to_string(), now);
        }
        let is_due = self.taken >= BATCH_MAX || is_through || is_ended || now.since(self.taken_at) >= BATCH_TIME;
        if self.taken > 0 && is_due {
            if let Err(why) = self.outlet.store() {
                return self.failed("usage records cannot be stored; they wait in the journal", &why, now);
            }
            self.stored();
        }
        if is_through && self.taken == 0 {
            if let Some(segment) = oldest
                && let Err(error) = self.leave(&segment)
            {
                return self.failed("a usage segment cannot be taken away", &error.to_string(), now);
            }
            return Did::Something;
        }
        let has_more = oldest.as_ref().is_some_and(|segment| self.at < segment.bytes);
        if has_more && self.taken < BATCH_MAX {
            return Did::Something;
        }
        match self.taken {
            0 if is_ended && oldest.is_none() => Did::Ended,
            0 => Did::Wait(IDLE_TIME),
            _ => Did::Wait((self.taken_at + BATCH_TIME).since(now)),
        }
    }

    /// Waits for that long, or until the tail is another than at the last turn.
    pub fn wait(&self, time: Duration) {
        self.tail.wait(time, self.version);
    }

    /// Whether nothing is left of what other processes had written.
    pub fn is_replayed(&self) -> bool {
        self.tail.wait_replayed(Duration::ZERO)
    }

    /// Whether nothing is left at all.
    pub fn is_empty(&self) -> bool {
        self.tail.look().oldest.is_none()
    }

    /// Takes records of the segment until the batch is full or no more may be read; `is_through` when nothing of it is
    /// left.
    fn read(&mut self, segment: &Segment, now: Mono, is_through: &mut bool) -> io::Result<()> {
        while self.taken < BATCH_MAX && self.at < segment.bytes {
            let Some(salt) = self.salt(segment)? else {
                self.cut(segment);
                break;
            };
            match segment::next(self.ahead.get(self.front..self.back).unwrap_or_default(), salt) {
                Next::Entry(entry, bytes) => {
                    self.outlet.take(&entry);
                    self.at += bytes as u64;
                    self.front += bytes;
                    if self.taken == 0 {
                        self.taken_at = now;
                    }
                    self.taken += 1;
                    if segment.is_orphan {
                        self.cells.arrived.increment();
                    }
                    continue;
                }
                Next::Part => {}
                Next::Not => {
                    self.cut(segment);
                    break;
                }
            }
            if !self.look_at(segment, self.known().len() + 1)? {
                self.cut(segment);
            }
        }
        *is_through = segment.is_sealed && self.at >= segment.bytes;
        Ok(())
    }

    /// The segment's salt; none where it does not begin as segments do.
    fn salt(&mut self, segment: &Segment) -> io::Result<Option<Salt>> {
        if self.at == 0 && self.look_at(segment, HEAD_BYTES)? {
            self.salt = segment::salt_of(self.known());
            self.at += HEAD_BYTES as u64;
            self.front += HEAD_BYTES;
        }
        Ok(self.salt)
    }

    /// Bytes from `at` on, as far as they were read.
    fn known(&self) -> &[u8] {
        self.ahead.get(self.front..self.back).unwrap_or_default()
    }

    /// Knows none of them.
    fn forget(&mut self) {
        (self.front, self.back) = (0, 0);
    }

    /// Has at least `wanted` bytes from `at` on at hand; false where the segment has not so many.
    fn look_at(&mut self, segment: &Segment, wanted: usize) -> io::Result<bool> {
        let known = self.known().len();
        let left = usize::try_from(segment.bytes - self.at).unwrap_or(usize::MAX);
        if known >= wanted || left < wanted {
            return Ok(known >= wanted);
        }
        // Made with the first segment: who has none needs none.
        self.ahead.resize(READ_BYTES, 0);
        self.ahead.copy_within(self.front..self.back, 0);
        (self.front, self.back) = (0, known);
        let into = self.ahead.get_mut(known..left.min(READ_BYTES)).unwrap_or_default();
        match self.folder.read(&segment.name, self.at + known as u64, into) {
            Ok(read) => self.back += read,
            // Nobody else takes segments away; what an operator took away is not there to be read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(self.known().len() >= wanted)
    }

    /// What is left of the segment is no record.
    fn cut(&mut self, segment: &Segment) {
        let bytes = segment.bytes - self.at;
        self.cells.bytes_cut.add(bytes);
        if segment.is_orphan {
            tracing::warn!(segment = segment.name, bytes, "the end of a usage segment holds no whole record; cut off");
        } else {
            tracing::error!(segment = segment.name, bytes, "a usage segment is damaged; the rest of it is lost");
        }
        self.at = segment.bytes;
        self.forget();
    }

    fn stored(&mut self) {
        let count = std::mem::take(&mut self.taken) as u64;
        self.cells.stored.add(count);
        self.cells.arrived.add(-i64::try_from(count).unwrap_or(i64::MAX));
        self.stored_since += count;
        if std::mem::take(&mut self.failure_count) > 0 {
            tracing::info!("usage records are stored again");
        }
    }

    /// The segment is of no more use.
    fn leave(&mut self, segment: &Segment) -> io::Result<()> {
        self.folder.remove(&segment.name)?;
        if segment.is_orphan {
            tracing::info!(segment = segment.name, records = self.stored_since, "usage segment of a run before stored");
        }
        self.cells.bytes_gone.add(-i64::try_from(segment.bytes).unwrap_or(i64::MAX));
        (self.at, self.salt, self.stored_since, self.failure_count) = (0, None, 0, 0);
        self.forget();
        self.tail.remove_oldest();
        Ok(())
    }

    fn failed(&mut self, what: &'static str, why: &str, now: Mono) -> Did {
        self.cells.store_failures.increment();
        if self.failure_count == 0 {
            tracing::warn!(why, "{what}");
        }
        self.failure_count += 1;
        let wait = (AGAIN_FIRST * self.failure_count).min(AGAIN_LAST);
        self.again_at = now + wait;
        if self.tail.is_hurried() { self.give_up() } else { Did::Wait(wait) }
    }

    fn give_up(&self) -> Did {
        tracing::warn!("usage records could not be stored in time; the next start stores them");
        Did::Ended
    }
}
