//! The writing half: records from the cores' rings into the newest segment, and onto the disk.
//!
//! [`Writer::turn`] is called again and again by the one thread of the journal. Each turn empties the rings and writes;
//! every [`Options::commit_every`] what was written is brought onto the disk, and only then may it be read on. Whatever
//! fails, records wait in memory up to a bound and go into a fresh segment: after a failed commit nobody knows what the
//! disk has, and a record that stands there twice is one all the same. Never waits for the store.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::entry::Entry;
use crate::files::Files;
use crate::metrics::Cells;
use crate::segment::{self, FRAME_HEAD_BYTES, HEAD_BYTES, Salt};
use crate::tail::{Segment, Tail};

/// The journal's bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A segment is sealed when it would be longer. It is replayed whole after a crash.
    pub segment_bytes: u64,
    /// A segment is sealed at this age, however short it is.
    pub segment_age: Duration,
    /// All segments together. At the bound newer records wait in memory.
    pub bytes_max: u64,
    /// Records in memory that could not be written yet, in bytes. At the bound newer ones are dropped.
    pub waiting_bytes_max: usize,
    /// How often written records are brought onto the disk: what the power cord takes.
    pub commit_every: Duration,
    /// The wait after a failure.
    pub again_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            segment_age: Duration::from_secs(600),
            bytes_max: 1 << 30,
            waiting_bytes_max: 16 << 20,
            commit_every: Duration::from_millis(20),
            again_after: Duration::from_millis(500),
        }
    }
}

/// The newest segment.
struct Open<F> {
    name: String,
    file: F,
    salt: Salt,
    opened_at: Mono,
    /// Bytes that are on the disk.
    committed: u64,
}

/// See the head of this file.
pub struct Writer<F: Files> {
    files: F,
    options: Options,
    tail: Arc<Tail>,
    cells: Arc<Cells>,
    /// Names segments.
    name: Box<dyn Fn(u64) -> String + Send>,
    opened_count: u64,
    open: Option<Open<F::File>>,
    /// Frames of the open segment that are not on the disk, in order.
    uncommitted: Vec<u8>,
    /// How much of them was written.
    written: usize,
    uncommitted_count: u64,
    committed_at: Mono,
    /// Entries without a segment yet, encoded.
    waiting: VecDeque<Box<[u8]>>,
    waiting_bytes: usize,
    again_at: Option<Mono>,
    trouble: Trouble,
}

/// What was said of failures, so that it is said once.
#[derive(Default)]
struct Trouble {
    is_failing: bool,
    lost: u64,
}

impl<F: Files> Writer<F> {
    /// A writer without a segment; `name` names segments by their number.
    pub fn new(
        files: F,
        options: Options,
        tail: Arc<Tail>,
        cells: Arc<Cells>,
        name: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        Self {
            files,
            options,
            tail,
            cells,
            name: Box::new(name),
            opened_count: 0,
            open: None,
            uncommitted: Vec::new(),
            written: 0,
            uncommitted_count: 0,
            committed_at: Mono::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            again_at: None,
            trouble: Trouble::default(),
        }
    }

    /// Takes a record. Answer: whether it did. Loss: where the bound of memory is reached it is dropped, counted, and
    /// said once.
    pub fn take(&mut self, entry: &Entry<'_>) -> bool {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        if self.waiting_bytes + bytes.len() > self.options.waiting_bytes_max {
            self.cells.lost.increment();
            if self.trouble.lost == 0 {
                tracing::error!("usage records are lost: the journal cannot be written and memory holds no more");
            }
            self.trouble.lost += 1;
            return false;
        }
        self.cells.came.increment();
        self.waiting_bytes += bytes.len();
        self.waiting.push_back(bytes.into());
        true
    }

    /// Writes what it has, and commits when that is due.
    pub async fn turn(&mut self, now: Mono) {
        if self.again_at.is_some_and(|at| now < at) {
            return;
        }
        if let Err(error) = self.try_turn(now).await {
            self.failed(&error, now).await;
        }
    }

    /// Commits whatever it has, and seals; then nothing more comes.
    pub async fn end(&mut self, now: Mono) {
        self.again_at = None;
        let mut outcome = self.try_turn(now).await;
        if outcome.is_ok() {
            outcome = self.commit(now).await;
        }
        if let Err(error) = outcome {
            self.failed(&error, now).await;
        }
        let left = self.waiting.len();
        if left > 0 {
            self.cells.lost.add(left as u64);
            self.cells.came.add(-i64::try_from(left).unwrap_or(i64::MAX));
            tracing::error!(records = left, "usage records are lost: the journal could not be written to the end");
        }
        self.close().await;
        self.tail.end();
    }

    /// Waits for the next turn.
    pub async fn pause(&mut self, time: Duration) {
        self.files.pause(time).await;
    }

    async fn try_turn(&mut self, now: Mono) -> io::Result<()> {
        let is_old = |open: &Open<F::File>| now.since(open.opened_at) >= self.options.segment_age;
        if self.open.as_ref().is_some_and(is_old) {
            self.commit(now).await?;
            self.close().await;
        }
        while !self.waiting.is_empty() {
            self.room(now).await?;
            self.fill();
            self.write().await?;
        }
        let is_due = now.since(self.committed_at) >= self.options.commit_every;
        if is_due && !self.uncommitted.is_empty() {
            self.commit(now).await?;
        }
        Ok(())
    }

    /// A segment with room for the entry that waits longest.
    ///
    /// Errors: there is no room for another, or it cannot be made.
    async fn room(&mut self, now: Mono) -> io::Result<()> {
        if self.open.is_some() && !self.fits() {
            self.commit(now).await?;
            self.close().await;
        }
        if self.open.is_some() {
            return Ok(());
        }
        if !self.fits() {
            return Err(io::Error::other("it is full, for the store has taken nothing for long"));
        }
        self.opened_count += 1;
        let name = (self.name)(self.opened_count);
        let file = self.files.create(&name).await?;
        let salt = Salt::of(&name);
        self.open = Some(Open { name, file, salt, opened_at: now, committed: 0 });
        self.uncommitted = segment::head(salt).to_vec();
        // Before it can hold what is committed.
        self.files.sync_folder().await
    }

    /// Whether the next entry fits into the open segment, or into a new one where none is open, and into the journal.
    fn fits(&self) -> bool {
        let frame = self.waiting.front().map_or(0, |entry| (FRAME_HEAD_BYTES + entry.len()) as u64);
        let (uncommitted, head) = (self.uncommitted.len() as u64, HEAD_BYTES as u64);
        // A segment takes one entry, however small its bound is.
        let in_segment = self.open.as_ref().is_none_or(|open| {
            let is_fresh = open.committed == 0 && self.uncommitted_count == 0;
            is_fresh || open.committed + uncommitted + frame <= self.options.segment_bytes
        });
        in_segment && self.tail.bytes() + uncommitted.max(head) + frame <= self.options.bytes_max
    }

    /// Moves what waits behind what is written, as far as there is room.
    fn fill(&mut self) {
        while self.fits() {
            let Some(open) = &self.open else { return };
            let Some(entry) = self.waiting.pop_front() else { return };
            segment::frame_of(&entry, open.salt, &mut self.uncommitted);
            self.waiting_bytes -= entry.len();
            self.uncommitted_count += 1;
        }
    }

    async fn write(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let at = open.committed + self.written as u64;
        let new = self.uncommitted.get(self.written..).unwrap_or_default().to_vec();
        self.files.write(&mut open.file, at, new).await?;
        self.written = self.uncommitted.len();
        Ok(())
    }

    /// Brings what was written onto the disk, and says so to the reader.
    async fn commit(&mut self, now: Mono) -> io::Result<()> {
        self.committed_at = now;
        let Some(open) = self.open.as_mut().filter(|_| !self.uncommitted.is_empty()) else { return Ok(()) };
        let began = Mono::now();
        self.files.sync(&mut open.file).await?;
        self.cells.commits.observe(Mono::now().since(began));
        let bytes = self.uncommitted.len() as u64;
        match open.committed {
            0 => self.tail.add(Segment { name: open.name.clone(), bytes, is_sealed: false, is_orphan: false }),
            before => self.tail.committed(before + bytes),
        }
        open.committed += bytes;
        self.cells.journaled.add(self.uncommitted_count);
        self.cells.bytes_written.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.uncommitted.clear();
        (self.written, self.uncommitted_count) = (0, 0);
        self.well();
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.files.close(open.file).await;
            if open.committed > 0 {
                self.tail.seal();
            } else {
                self.files.discard(&open.name).await;
            }
        }
    }

    /// What was not committed waits for a fresh segment.
    async fn failed(&mut self, error: &io::Error, now: Mono) {
        self.cells.journal_failures.increment();
        if !std::mem::replace(&mut self.trouble.is_failing, true) {
            tracing::error!(%error, "the usage journal cannot be written; records wait in memory");
        }
        self.again_at = Some(now + self.options.again_after);
        if let Some(open) = &self.open {
            let head = if open.committed == 0 { HEAD_BYTES } else { 0 };
            let frames = self.uncommitted.get(head..).unwrap_or_default();
            for entry in segment::encoded_of(frames).into_iter().rev() {
                self.waiting_bytes += entry.len();
                self.waiting.push_front(entry);
            }
        }
        self.uncommitted.clear();
        (self.written, self.uncommitted_count) = (0, 0);
        self.close().await;
    }

    /// A commit went well.
    fn well(&mut self) {
        self.again_at = None;
        let Trouble { is_failing, lost } = std::mem::take(&mut self.trouble);
        if is_failing || lost > 0 {
            tracing::info!(lost, "the usage journal is written again");
        }
    }
}
