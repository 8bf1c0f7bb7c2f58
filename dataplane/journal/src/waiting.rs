//! Records between the cores' rings and a segment: encoded, in order, in memory up to a bound.
//!
//! Filled by whoever empties the rings, also while the writer waits for the disk; emptied by the writer. Both are on
//! the journal's one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::entry::Entry;
use crate::metrics::Cells;
use crate::open::frame_bytes;

/// See the head of this file.
pub(crate) struct Waiting {
    bytes_max: usize,
    cells: Arc<Cells>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Records dropped since that was asked last.
    lost: u64,
}

impl Waiting {
    pub(crate) fn new(bytes_max: usize, cells: Arc<Cells>) -> Self {
        Self { bytes_max, cells, state: RefCell::default() }
    }

    /// Takes a record. Answer: whether it did. Loss: at the bound it is dropped, counted, and said once.
    pub(crate) fn take(&self, entry: &Entry<'_>) -> bool {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        let mut state = self.state.borrow_mut();
        if state.bytes + bytes.len() > self.bytes_max {
            self.cells.lost.increment();
            if state.lost == 0 {
                tracing::error!("usage records are lost: the journal cannot be written and memory holds no more");
            }
            state.lost += 1;
            return false;
        }
        self.cells.came.increment();
        state.bytes += bytes.len();
        state.entries.push_back(bytes.into());
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.state.borrow().entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the next record takes in a segment; none where there is none.
    pub(crate) fn next_bytes(&self) -> u64 {
        self.state.borrow().entries.front().map_or(0, |entry| frame_bytes(entry))
    }

    pub(crate) fn next(&self) -> Option<Box<[u8]>> {
        let mut state = self.state.borrow_mut();
        let entry = state.entries.pop_front()?;
        state.bytes -= entry.len();
        Some(entry)
    }

    /// Records that were taken from here come before all others again.
    pub(crate) fn put_back(&self, entries: Vec<Box<[u8]>>) {
        let mut state = self.state.borrow_mut();
        for entry in entries.into_iter().rev() {
            state.bytes += entry.len();
            state.entries.push_front(entry);
        }
    }

    /// How many records were dropped since this was asked last.
    pub(crate) fn lost(&self) -> u64 {
        std::mem::take(&mut self.state.borrow_mut().lost)
    }
}
