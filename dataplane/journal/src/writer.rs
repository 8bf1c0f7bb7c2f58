//! The writing half: records from the cores' rings into the newest segment, and onto the disk.
//!
//! [`Writer::turn`] is called again and again by the one thread of the journal. Each turn writes what was taken from
//! the rings, so that a killed process loses little; every [`Options::commit_every`] what was written is brought onto
//! the disk, while more is written, and only then may it be read on. Whatever fails, records wait in memory up to a
//! bound and go into a fresh segment: after a failed commit nobody knows what the disk has, and a record that stands
//! there twice is one all the same. Never waits for the store, and for the disk at its end alone.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::entry::Entry;
use crate::files::Files;
use crate::metrics::Cells;
use crate::open::{Brought, Open};
use crate::segment::HEAD_BYTES;
use crate::tail::{Segment, Tail};
use crate::waiting::Waiting;

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
            commit_every: Duration::from_millis(50),
            again_after: Duration::from_millis(500),
        }
    }
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
    /// The one before, until all of it is on the disk.
    leaving: Option<Open<F::File>>,
    committed_at: Mono,
    /// Records without a segment yet.
    waiting: Rc<Waiting>,
    again_at: Option<Mono>,
    /// That it fails was said, so that it is said once.
    is_failing: bool,
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
        let waiting = Rc::new(Waiting::new(options.waiting_bytes_max, cells.clone()));
        Self {
            files,
            options,
            tail,
            cells,
            name: Box::new(name),
            opened_count: 0,
            open: None,
            leaving: None,
            committed_at: Mono::default(),
            waiting,
            again_at: None,
            is_failing: false,
        }
    }

    /// Takes a record. Answer: whether it did. Loss: where the bound of memory is reached it is dropped, counted, and
    /// said once.
    pub fn take(&mut self, entry: &Entry<'_>) -> bool {
        self.waiting.take(entry)
    }

    /// Where records wait: what is taken there while a turn waits for the disk is as if it were taken here.
    pub(crate) fn waiting(&self) -> Rc<Waiting> {
        self.waiting.clone()
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

    /// Whether the disk is at a commit; between two turns it is at nothing else.
    pub(crate) fn is_committing(&self) -> bool {
        [&self.open, &self.leaving].into_iter().flatten().any(Open::is_committing)
    }

    /// Brings whatever it has onto the disk, and seals; then nothing more comes.
    pub async fn end(&mut self, now: Mono) {
        self.again_at = None;
        if let Err(error) = self.settle(now).await {
            self.failed(&error, now).await;
        }
        let left = self.waiting.count();
        if left > 0 {
            self.cells.lost.add(left);
            self.cells.came.add(-i64::try_from(left).unwrap_or(i64::MAX));
            tracing::error!(records = left, "usage records are lost: the journal could not be written to the end");
        }
        self.tail.end();
    }

    async fn try_turn(&mut self, now: Mono) -> io::Result<()> {
        self.tend_leaving().await?;
        if self.open.as_ref().is_some_and(|open| open.age(now) >= self.options.segment_age) {
            self.leave().await?;
        }
        while !self.waiting.is_empty() && self.room(now).await? {
            self.fill();
            if let Some(open) = &mut self.open {
                open.write(&mut self.files).await?;
            }
        }
        // One after the other: the reader is told of segments in their order.
        if self.leaving.is_none()
            && let Some(open) = &mut self.open
        {
            if now.since(self.committed_at) >= self.options.commit_every && !open.is_committing() {
                self.committed_at = now;
                open.commit(&mut self.files);
            }
            if let Some(brought) = open.look().await? {
                told(&self.tail, &self.cells, open, &brought);
                self.well();
            }
        }
        Ok(())
    }

    /// Writes all that waits, and has all of it on the disk.
    async fn settle(&mut self, now: Mono) -> io::Result<()> {
        loop {
            self.try_turn(now).await?;
            if self.waiting.is_empty() {
                break;
            }
            self.wait_leaving().await?;
        }
        self.wait_leaving().await?;
        self.leave().await?;
        self.wait_leaving().await
    }

    /// Sees to a segment with room for the entry that waits longest. Answer: whether there is one; if not, it comes
    /// when a segment before has left.
    ///
    /// Errors: there is no room for another, or it cannot be made.
    async fn room(&mut self, now: Mono) -> io::Result<bool> {
        if self.open.is_some() && !self.fits() && !self.leave().await? {
            return Ok(false);
        }
        if self.open.is_some() {
            return Ok(true);
        }
        if !self.fits() {
            if self.leaving.is_some() {
                return Ok(false);
            }
            return Err(io::Error::other("it is full, for the store has taken nothing for long"));
        }
        self.opened_count += 1;
        let name = (self.name)(self.opened_count);
        let file = self.files.create(&name).await?;
        self.open = Some(Open::new(name, file, now));
        Ok(true)
    }

    /// Whether the next entry fits into the open segment, or into a new one where none is open, and into the journal.
    fn fits(&self) -> bool {
        self.waiting.next_bytes() <= self.space()
    }

    /// Bytes that the open segment, or a new one where none is open, may get now. The reader can only make it more.
    fn space(&self) -> u64 {
        let in_segment = self.open.as_ref().map_or(u64::MAX, |open| {
            let left = self.options.segment_bytes.saturating_sub(open.committed() + open.pending());
            // A segment takes one entry, however small its bound is.
            if open.is_fresh() { left.max(self.waiting.next_bytes()) } else { left }
        });
        let pending = self.leaving.as_ref().map_or(0, Open::pending)
            + self.open.as_ref().map_or(HEAD_BYTES as u64, Open::pending);
        in_segment.min(self.options.bytes_max.saturating_sub(self.tail.bytes() + pending))
    }

    /// Moves what waits behind what is written, as far as there is room.
    fn fill(&mut self) {
        let space = self.space();
        if let Some(open) = &mut self.open {
            self.waiting.go(space, |frame| open.add(frame));
        }
    }

    /// The open segment gets no more; another may be opened while the last of it is brought onto the disk. Answer:
    /// whether that is so; not while the one before is still at it.
    async fn leave(&mut self) -> io::Result<bool> {
        if self.leaving.is_some() {
            return Ok(false);
        }
        self.leaving = self.open.take();
        self.tend_leaving().await?;
        Ok(true)
    }

    /// Commits what is left of the segment that leaves, and seals it when that is done.
    async fn tend_leaving(&mut self) -> io::Result<()> {
        while let Some(leaving) = &mut self.leaving {
            if leaving.is_settled() {
                let leaving = self.leaving.take();
                self.close(leaving).await;
                return Ok(());
            }
            leaving.commit(&mut self.files);
            let Some(brought) = leaving.look().await? else { return Ok(()) };
            told(&self.tail, &self.cells, leaving, &brought);
            self.well();
        }
        Ok(())
    }

    /// As [`Self::tend_leaving`], to its end.
    async fn wait_leaving(&mut self) -> io::Result<()> {
        self.tend_leaving().await?;
        while let Some(leaving) = &mut self.leaving {
            if let Some(brought) = leaving.wait().await? {
                told(&self.tail, &self.cells, leaving, &brought);
                self.well();
            }
            self.tend_leaving().await?;
        }
        Ok(())
    }

    async fn close(&mut self, segment: Option<Open<F::File>>) {
        let Some(segment) = segment else { return };
        let (name, is_empty) = (segment.name().to_owned(), segment.committed() == 0);
        self.files.close(segment.into_file()).await;
        if is_empty {
            self.files.discard(&name).await;
        } else {
            self.tail.seal();
        }
    }

    /// What was not committed waits for a fresh segment.
    async fn failed(&mut self, error: &io::Error, now: Mono) {
        self.cells.journal_failures.increment();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "the usage journal cannot be written; records wait in memory");
        }
        self.again_at = Some(now + self.options.again_after);
        // The newest first, since each goes before all that waits.
        for mut segment in [self.open.take(), self.leaving.take()].into_iter().flatten() {
            let (frames, count) = segment.take_back();
            self.waiting.put_back(frames, count);
            self.close(Some(segment)).await;
        }
    }

    /// A commit went well.
    fn well(&mut self) {
        self.again_at = None;
        let (is_failing, lost) = (std::mem::take(&mut self.is_failing), self.waiting.lost());
        if is_failing || lost > 0 {
            tracing::info!(lost, "the usage journal is written again");
        }
    }
}

/// A commit is through: the reader may read on.
fn told<F>(tail: &Tail, cells: &Cells, segment: &Open<F>, brought: &Brought) {
    cells.commits.observe(brought.time);
    if segment.committed() == brought.bytes {
        let bytes = segment.committed();
        tail.add(Segment { name: segment.name().to_owned(), bytes, is_sealed: false, is_orphan: false });
    } else {
        tail.committed(segment.committed());
    }
    cells.journaled.add(brought.records);
    cells.bytes_written.add(i64::try_from(brought.bytes).unwrap_or(i64::MAX));
}
