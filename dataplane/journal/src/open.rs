//! A segment while it is written: what of it is on the disk, what was written since, and the commit under way.
//!
//! Called by the writer alone. A commit covers what was written when it began; more may be written beside it, so that
//! a slow disk holds up nothing but itself. Nothing counts as committed before its commit is through.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::files::{Bring, Files, Syncing};
use crate::segment::{self, HEAD_BYTES, Salt};

/// An open segment.
pub(crate) struct Open<F> {
    name: String,
    file: F,
    salt: Salt,
    opened_at: Mono,
    /// Bytes that are on the disk.
    committed: u64,
    /// The head and the frames that are not, in order.
    pending: Vec<u8>,
    /// How much of them was written.
    written: usize,
    /// Records among them.
    count: u64,
    commit: Option<Commit>,
}

/// A commit under way.
struct Commit {
    syncing: Syncing,
    began: Mono,
    /// What it covers of what is pending.
    bytes: usize,
    count: u64,
}

/// What a commit has brought onto the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brought {
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) time: Duration,
}

impl<F> Open<F> {
    /// A segment whose file was just made.
    pub(crate) fn new(name: String, file: F, now: Mono) -> Self {
        let salt = Salt::of(&name);
        let pending = segment::head(salt).to_vec();
        Self { name, file, salt, opened_at: now, committed: 0, pending, written: 0, count: 0, commit: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn age(&self, now: Mono) -> Duration {
        now.since(self.opened_at)
    }

    /// Bytes of it that are on the disk.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Bytes of it that are not.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Whether no record was added to it yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.committed == 0 && self.count == 0
    }

    /// Whether all that was added to it is on the disk.
    pub(crate) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    /// Adds a record by its frame, whatever the checksum of that is; [`Self::write`] writes it.
    pub(crate) fn add(&mut self, frame: &[u8]) {
        segment::add_frame(frame, self.salt, &mut self.pending);
        self.count += 1;
    }

    /// Writes what was added.
    pub(crate) async fn write(&mut self, files: &mut impl Files<File = F>) -> io::Result<()> {
        let at = self.committed + self.written as u64;
        let new = self.pending.get(self.written..).unwrap_or_default();
        files.write(&mut self.file, at, new).await?;
        self.written = self.pending.len();
        Ok(())
    }

    /// Begins to bring what was written onto the disk, unless that is under way or done.
    pub(crate) fn commit(&mut self, files: &mut impl Files<File = F>) {
        if self.commit.is_none() && self.written > 0 {
            // What is committed must be found, too.
            let bring = if self.committed == 0 { Bring::BytesAndName } else { Bring::Bytes };
            let syncing = files.sync(&mut self.file, bring);
            self.commit = Some(Commit { syncing, began: Mono::now(), bytes: self.written, count: self.count });
        }
    }

    /// Looks whether a commit is through. Errors: it failed; what it covered may be on the disk or not.
    pub(crate) async fn look(&mut self) -> io::Result<Option<Brought>> {
        let Some(commit) = &mut self.commit else { return Ok(None) };
        match poll_fn(|cx| Poll::Ready(commit.syncing.as_mut().poll(cx))).await {
            Poll::Ready(outcome) => self.ended(outcome),
            Poll::Pending => Ok(None),
        }
    }

    /// Waits for the commit under way. Errors: as [`Self::look`].
    pub(crate) async fn wait(&mut self) -> io::Result<Option<Brought>> {
        let Some(commit) = &mut self.commit else { return Ok(None) };
        let outcome = commit.syncing.as_mut().await;
        self.ended(outcome)
    }

    fn ended(&mut self, outcome: io::Result<()>) -> io::Result<Option<Brought>> {
        let Some(commit) = self.commit.take() else { return Ok(None) };
        outcome?;
        let Commit { bytes, count, began, .. } = commit;
        self.pending.drain(..bytes);
        self.written -= bytes;
        self.count -= count;
        self.committed += bytes as u64;
        Ok(Some(Brought { bytes: bytes as u64, records: count, time: Mono::now().since(began) }))
    }

    /// Frames of the records that are not on the disk, in order, and how many they are.
    pub(crate) fn take_back(&mut self) -> (Vec<u8>, u64) {
        let head = if self.committed == 0 { HEAD_BYTES } else { 0 };
        let (mut frames, count) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.count));
        (self.written, self.commit) = (0, None);
        frames.drain(..head.min(frames.len()));
        (frames, count)
    }

    pub(crate) fn into_file(self) -> F {
        self.file
    }
}
