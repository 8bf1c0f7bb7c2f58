//! What writer and reader of a journal know of each other: which segments there are, how far each is on the disk, what
//! of it is in the store.
//!
//! One lock, taken by the two threads and by nobody else; never by a core.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A segment, as far as it may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub name: String,
    /// Bytes that are on the disk. Of one that another process left, all it has: how many are sound is seen by reading.
    pub bytes: u64,
    /// Nothing is added to it any more.
    pub is_sealed: bool,
    /// Another process left it.
    pub is_orphan: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Tail {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    segments: VecDeque<Segment>,
    /// The writer has ended: nothing more will come.
    is_ended: bool,
    /// The reader is to give up what it cannot store soon.
    is_hurried: bool,
    /// Grows with every change.
    version: u64,
}

/// What the reader sees of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub oldest: Option<Segment>,
    /// Nothing more will come.
    pub is_ended: bool,
    pub version: u64,
}

impl Tail {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is let go.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.version += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// A further segment.
    pub fn add(&self, segment: Segment) {
        self.change(|state| state.segments.push_back(segment));
    }

    /// So much of the newest own segment is on the disk.
    pub fn committed(&self, bytes: u64) {
        self.change(|state| {
            if let Some(newest) = state.segments.back_mut() {
                newest.bytes = bytes;
            }
        });
    }

    /// Nothing is added to the newest own segment any more.
    pub fn seal(&self) {
        self.change(|state| {
            if let Some(newest) = state.segments.back_mut() {
                newest.is_sealed = true;
            }
        });
    }

    /// Nothing more will come.
    pub fn end(&self) {
        self.change(|state| {
            state.is_ended = true;
            state.segments.iter_mut().for_each(|segment| segment.is_sealed = true);
        });
    }

    /// The reader is to give up what it cannot store soon; it stays on the disk.
    pub fn hurry(&self) {
        self.change(|state| state.is_hurried = true);
    }

    pub fn is_hurried(&self) -> bool {
        self.state().is_hurried
    }

    /// The oldest segment, and whether nothing more will come.
    pub fn look(&self) -> Seen {
        let state = self.state();
        Seen { oldest: state.segments.front().cloned(), is_ended: state.is_ended, version: state.version }
    }

    /// The oldest segment is of no more use.
    pub fn remove_oldest(&self) {
        self.change(|state| drop(state.segments.pop_front()));
    }

    /// What all segments take on the disk.
    pub fn bytes(&self) -> u64 {
        self.state().segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Waits until `time` is over or something changed since that version.
    pub fn wait(&self, time: Duration, version: u64) {
        let is_same = |state: &mut State| state.version == version;
        // Whoever waits looks again, whatever it was that ended the wait.
        let _ = self.changed.wait_timeout_while(self.state(), time, is_same);
    }

    /// Waits until nothing is left of what other processes had written. Answer: whether that is so.
    pub fn wait_replayed(&self, limit: Duration) -> bool {
        let has_orphans = |state: &mut State| state.segments.iter().any(|segment| segment.is_orphan);
        let waited = self.changed.wait_timeout_while(self.state(), limit, has_orphans);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.segments.iter().any(|segment| segment.is_orphan)
    }
}
