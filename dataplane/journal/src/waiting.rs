//! Records between the cores' rings and a segment: encoded, in order, in memory up to a bound.
//!
//! Filled by whoever empties the rings, also while the writer waits for the disk; emptied by the writer. Both are on
//! the journal's one thread. What waits is one run of bytes, frames without their checksums, which are a segment's: a
//! record costs no allocation, and on its way into a segment one copy.

use std::cell::RefCell;
use std::sync::Arc;

use crate::entry::Entry;
use crate::metrics::Cells;
use crate::segment;

/// Memory that stays when nothing waits: what a busy gateway ends in a few turns. More is given back.
const KEPT_BYTES: usize = 256 << 10;

/// See the head of this file.
pub(crate) struct Waiting {
    bytes_max: usize,
    cells: Arc<Cells>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Frames without checksums, one after the other.
    frames: Vec<u8>,
    /// Where those begin that wait.
    front: usize,
    /// Records that wait.
    count: u64,
    /// Records dropped since that was asked last.
    lost: u64,
}

impl State {
    fn bytes(&self) -> usize {
        self.frames.len() - self.front
    }

    /// Gives up what does not wait any more, in steps that cost a record's bytes a copy at most.
    fn tidy(&mut self) {
        if self.bytes() > self.front {
            return;
        }
        self.frames.drain(..self.front);
        self.front = 0;
        if self.frames.capacity() > KEPT_BYTES.max(4 * self.frames.len()) {
            self.frames.shrink_to(KEPT_BYTES);
        }
    }
}

impl Waiting {
    pub(crate) fn new(bytes_max: usize, cells: Arc<Cells>) -> Self {
        Self { bytes_max, cells, state: RefCell::default() }
    }

    /// Takes a record. Answer: whether it did. Loss: at the bound it is dropped, counted, and said once.
    pub(crate) fn take(&self, entry: &Entry<'_>) -> bool {
        let mut state = self.state.borrow_mut();
        let before = state.frames.len();
        segment::frame_without_checksum(entry, &mut state.frames);
        if state.bytes() > self.bytes_max {
            state.frames.truncate(before);
            self.cells.lost.increment();
            if state.lost == 0 {
                tracing::error!("usage records are lost: the journal cannot be written and memory holds no more");
            }
            state.lost += 1;
            return false;
        }
        self.cells.came.increment();
        state.count += 1;
        true
    }

    /// Records that wait.
    pub(crate) fn count(&self) -> u64 {
        self.state.borrow().count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Whether half of the bound is reached.
    pub(crate) fn is_half_full(&self) -> bool {
        self.state.borrow().bytes() > self.bytes_max / 2
    }

    /// Bytes that the next record takes in a segment; none where there is none.
    pub(crate) fn next_bytes(&self) -> u64 {
        let state = self.state.borrow();
        segment::first_frame(state.frames.get(state.front..).unwrap_or_default()).map_or(0, |frame| frame.len() as u64)
    }

    /// Lets go of records as far as their frames fit into `space` bytes.
    pub(crate) fn go(&self, space: u64, mut each: impl FnMut(&[u8])) {
        let mut state = self.state.borrow_mut();
        let mut left = space;
        while let Some(frame) = segment::first_frame(state.frames.get(state.front..).unwrap_or_default()) {
            let bytes = frame.len();
            if bytes as u64 > left {
                break;
            }
            each(frame);
            left -= bytes as u64;
            state.front += bytes;
            state.count -= 1;
        }
        state.tidy();
    }

    /// Records that were let go come before all others again: `frames` of them, whatever their checksums are.
    pub(crate) fn put_back(&self, mut frames: Vec<u8>, count: u64) {
        let mut state = self.state.borrow_mut();
        frames.extend_from_slice(state.frames.get(state.front..).unwrap_or_default());
        (state.frames, state.front) = (frames, 0);
        state.count += count;
    }

    /// How many records were dropped since this was asked last.
    pub(crate) fn lost(&self) -> u64 {
        std::mem::take(&mut self.state.borrow_mut().lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::entry;
    use crate::segment::Salt;

    fn waiting(bytes_max: usize) -> Waiting {
        Waiting::new(bytes_max, Arc::default())
    }

    fn frame_bytes(number: u64) -> usize {
        let mut bytes = Vec::new();
        segment::frame_without_checksum(&entry(number), &mut bytes);
        bytes.len()
    }

    /// The numbers of the records that go.
    fn gone(waiting: &Waiting, space: u64) -> Vec<u64> {
        let salt = Salt::of("a");
        let mut bytes = segment::head(salt).to_vec();
        waiting.go(space, |frame| segment::add_frame(frame, salt, &mut bytes));
        let mut numbers = Vec::new();
        let sound = segment::read(&bytes, |entry| numbers.push((entry.record_id >> 64) as u64));
        assert_eq!(sound, bytes.len());
        numbers
    }

    #[test]
    fn records_go_in_order_as_far_as_there_is_space() {
        let waiting = waiting(1 << 20);
        for number in 0..5 {
            assert!(waiting.take(&entry(number)));
        }
        assert_eq!(waiting.next_bytes(), frame_bytes(0) as u64);
        assert_eq!(gone(&waiting, waiting.next_bytes() - 1), Vec::<u64>::new());
        assert_eq!(gone(&waiting, (frame_bytes(0) + frame_bytes(1)) as u64), [0, 1]);
        assert!(waiting.take(&entry(5)));
        assert_eq!(waiting.count(), 4);
        assert_eq!(gone(&waiting, u64::MAX), [2, 3, 4, 5]);
        assert_eq!((waiting.count(), waiting.next_bytes()), (0, 0));
    }

    #[test]
    fn what_is_put_back_goes_first() {
        let waiting = waiting(1 << 20);
        (0..4).for_each(|number| assert!(waiting.take(&entry(number))));
        let mut back = Vec::new();
        waiting.go((frame_bytes(0) + frame_bytes(1) + 1) as u64, |frame| back.extend_from_slice(frame));
        waiting.put_back(back, 2);
        assert_eq!(waiting.count(), 4);
        assert_eq!(gone(&waiting, u64::MAX), [0, 1, 2, 3]);
    }

    #[test]
    fn at_the_bound_the_newest_are_dropped_and_memory_is_given_back_afterwards() {
        let bytes_max = 4 << 20;
        let waiting = waiting(bytes_max);
        let mut taken = 0;
        while waiting.take(&entry(taken)) {
            taken += 1;
        }
        assert!(waiting.is_half_full());
        assert_eq!((waiting.cells.lost.value(), waiting.lost(), waiting.lost()), (1, 1, 0));
        assert_eq!(gone(&waiting, u64::MAX), (0..taken).collect::<Vec<_>>());
        assert!(waiting.state.borrow().frames.capacity() <= KEPT_BYTES);
        // One that goes while others come does not leave what is gone in memory.
        for number in 0..100_000 {
            assert!(waiting.take(&entry(number)));
            if number > 9 {
                waiting.go(waiting.next_bytes(), |_| ());
            }
        }
        assert_eq!(waiting.count(), 10);
        assert!(waiting.state.borrow().frames.len() < 10_000);
    }
}
