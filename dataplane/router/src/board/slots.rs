//! Slots of the board: whose column is whose, and when it may be another's. Used by whoever publishes route tables.

use llmgw_types::{BoardSlot, PoolSlot};

use super::Board;

/// What has slots on the board.
pub trait SlotKind: Copy {
    /// The slot of that number.
    fn numbered(number: u32) -> Self;
    /// Whether nothing is counted there. Right only once no core counts up there any more.
    fn is_idle(self, board: &Board) -> bool;
    /// Makes it as for somebody nobody has heard of.
    fn clear(self, board: &Board);
}

impl SlotKind for BoardSlot {
    fn numbered(number: u32) -> Self {
        Self(number)
    }

    fn is_idle(self, board: &Board) -> bool {
        board.in_flight(self) == 0
    }

    fn clear(self, board: &Board) {
        board.endpoints[self.idx()].clear();
        board.free_trial(self);
    }
}

impl SlotKind for PoolSlot {
    fn numbered(number: u32) -> Self {
        Self(number)
    }

    fn is_idle(self, board: &Board) -> bool {
        // Nobody counts up any more, so a sum is never below the truth, whatever the order.
        board.pool_load(self) == 0
    }

    fn clear(self, board: &Board) {
        board.pools[self.idx()].clear();
    }
}

/// Hands out slots. A slot is its holder's own for life and free again only when no core can still count on it: every
/// core has taken a table without it, and its sum is zero. So a late release never lands on a newcomer.
///
/// Owner: whoever publishes route tables.
pub struct SlotBook<S> {
    free: Vec<S>,
    /// Left a table, with the generation of the first table without it.
    leaving: Vec<(S, u64)>,
}

impl<S: SlotKind> SlotBook<S> {
    /// All of that many slots are free.
    pub fn new(slots: usize) -> Self {
        let count = u32::try_from(slots).unwrap_or(u32::MAX);
        Self { free: (0..count).rev().map(S::numbered).collect(), leaving: Vec::new() }
    }

    /// A slot for a newcomer; `None` when the board is full.
    pub fn take(&mut self, board: &Board) -> Option<S> {
        self.reclaim(board);
        self.free.pop()
    }

    /// Slots that could be taken at this moment.
    pub fn free_count(&mut self, board: &Board) -> usize {
        self.reclaim(board);
        self.free.len()
    }

    /// The holder is gone from the table of `generation` on.
    pub fn leave(&mut self, slot: S, generation: u64) {
        self.leaving.push((slot, generation));
    }

    fn reclaim(&mut self, board: &Board) {
        let oldest = board.oldest_generation();
        let free = &mut self.free;
        self.leaving.retain(|&(slot, generation)| {
            let is_free = oldest >= generation && slot.is_idle(board);
            if is_free {
                slot.clear(board);
                free.push(slot);
            }
            !is_free
        });
    }
}

#[cfg(test)]
mod tests {
    use llmgw_types::CoreId;

    use super::*;
    use crate::admission::Cells;

    #[test]
    fn a_pools_slot_is_free_again_only_when_its_sum_is_zero() {
        let board = Board::new(2, 1);
        let mut book: SlotBook<PoolSlot> = SlotBook::new(1);
        let slot = book.take(&board).unwrap();
        // Granted on core 0, ended on core 1: no cell is zero, their sum is.
        board.add_load(CoreId(0), slot, 1);
        board.set_room(slot, llmgw_types::BandRank(1), 7);
        book.leave(slot, 0);
        assert_eq!(book.take(&board), None);
        board.add_load(CoreId(1), slot, -1);
        assert_eq!(book.take(&board), Some(slot));
        assert_eq!(board.room(slot, llmgw_types::BandRank(1)), 0, "the next holder begins with nothing");
    }

    #[test]
    fn a_slot_is_free_again_only_when_every_core_moved_on_and_nothing_is_in_flight() {
        let board = Board::new(2, 1);
        let mut book: SlotBook<BoardSlot> = SlotBook::new(1);
        let slot = book.take(&board).unwrap();
        board.raise(CoreId(1), slot, 1);
        book.leave(slot, 5);
        assert_eq!(book.take(&board), None, "cores still work with older tables");
        board.set_generation(CoreId(0), 5);
        board.set_generation(CoreId(1), 6);
        assert_eq!(book.take(&board), None, "a request is still running there");
        board.lower(CoreId(1), slot, 1);
        assert_eq!(book.free_count(&board), 1);
        assert_eq!(book.take(&board), Some(slot));
        assert_eq!((book.free_count(&board), book.take(&board)), (0, None));
    }

    #[test]
    fn a_slot_that_was_left_tells_its_next_endpoint_nothing() {
        let board = Board::new(1, 1);
        let mut book: SlotBook<BoardSlot> = SlotBook::new(1);
        let slot = book.take(&board).unwrap();
        board.set_ready(slot, true);
        book.leave(slot, 0);
        board.endpoint(slot).set_draining(true);
        assert_eq!(book.take(&board), Some(slot));
        assert!(!board.is_ready(slot) && !board.endpoint(slot).is_draining());
    }
}
