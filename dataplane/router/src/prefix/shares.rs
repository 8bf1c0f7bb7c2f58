//! What each engine was given to prefill lately beyond its share: what levels work in the long run, where nobody waits
//! and the moment's load says nothing.
//!
//! Kept in the ledger by each core, of its own decisions: where each core is even, all are. Counted by the scheduler
//! when a request is placed, as estimated, and set right by whoever reads what the engine says it had cached. Forgets
//! by work, not by time: an idle pool that gives all to one engine is as uneven as a busy one. Never looks at prompts.

use std::sync::atomic::{AtomicU32, Ordering};

use llmgw_types::BoardSlot;

/// Tokens of prefill, in the mean of a pool's engines, after which an excess is forgotten to a third.
pub const MEMORY_TOKENS: f32 = 1_000_000.0;

/// Tokens of prefill over or under each engine's share, as one core knows them. Writer: that core.
#[derive(Debug)]
pub struct Shares {
    /// By board slot: the bits of a number.
    beyond: Box<[AtomicU32]>,
}

impl Shares {
    /// Of so many board slots.
    pub fn new(slots: usize) -> Self {
        Self { beyond: (0..slots).map(|_| AtomicU32::new(0)).collect() }
    }

    /// What an engine was given beyond its share of late, in tokens of prefill; below 0 where it got less. Engines that
    /// are new have their share.
    #[inline]
    pub fn beyond(&self, slot: BoardSlot) -> f32 {
        self.beyond.get(slot.idx()).map_or(0.0, |cell| f32::from_bits(cell.load(Ordering::Relaxed)))
    }

    /// Counts tokens that one of a pool's engines is given. `members` are those that might have got them, with their
    /// weights. Owner: that core.
    ///
    /// Cost: two passes over the members, no allocation.
    pub fn give(&self, members: impl Iterator<Item = (BoardSlot, f32)> + Clone, to: BoardSlot, tokens: u32) {
        if tokens == 0 {
            return;
        }
        let (count, weight) = members.clone().fold((0.0, 0.0), |(count, sum), (_, weight)| (count + 1.0, sum + weight));
        let tokens = tokens as f32;
        let keep = MEMORY_TOKENS / (MEMORY_TOKENS + tokens / f32::max(count, 1.0));
        let due = tokens / f32::max(weight, f32::MIN_POSITIVE);
        members.for_each(|(slot, weight)| self.change(slot, |beyond| keep * beyond - due * weight));
        self.change(to, |beyond| beyond + tokens);
    }

    /// Says what came of it: an engine that was given `given` tokens had to prefill `found`. Owner: that core.
    pub fn set_right(&self, slot: BoardSlot, given: u32, found: u64) {
        self.change(slot, |beyond| beyond + (found as f32 - given as f32));
    }

    fn change(&self, slot: BoardSlot, by: impl Fn(f32) -> f32) {
        if let Some(cell) = self.beyond.get(slot.idx()) {
            cell.store(by(f32::from_bits(cell.load(Ordering::Relaxed))).to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(weights: &'static [f32]) -> impl Iterator<Item = (BoardSlot, f32)> + Clone {
        (0..).map(BoardSlot).zip(weights.iter().copied())
    }

    #[test]
    fn whoever_gets_more_than_its_share_is_beyond_it_and_the_others_are_behind() {
        let shares = Shares::new(5);
        shares.give(pool(&[1.0, 1.0, 2.0]), BoardSlot(0), 4000);
        let beyond = || [0, 1, 2, 3].map(|slot| shares.beyond(BoardSlot(slot)));
        assert_eq!(beyond(), [3000.0, -1000.0, -2000.0, 0.0]);
        shares.give(pool(&[1.0, 1.0, 2.0]), BoardSlot(0), 0);
        assert_eq!(beyond()[0], 3000.0);
        shares.set_right(BoardSlot(0), 4000, 9000);
        shares.set_right(BoardSlot(2), 500, 0);
        assert_eq!(beyond(), [8000.0, -1000.0, -2500.0, 0.0]);
        shares.set_right(BoardSlot(100), 500, 0);
        assert_eq!(shares.beyond(BoardSlot(100)), 0.0, "there is no such engine");
    }

    #[test]
    fn who_gets_its_share_stays_even_whatever_its_weight() {
        let shares = Shares::new(3);
        for _ in 0..10_000 {
            [0, 1, 2, 2].iter().for_each(|slot| shares.give(pool(&[1.0, 1.0, 2.0]), BoardSlot(*slot), 5000));
        }
        let beyond = [0, 1, 2].map(|slot| shares.beyond(BoardSlot(slot)));
        assert!(beyond.iter().all(|tokens| tokens.abs() < 10_000.0), "{beyond:?}");
    }

    #[test]
    fn an_excess_is_forgotten_by_work_and_has_a_bound() {
        let shares = Shares::new(2);
        shares.give(pool(&[1.0, 1.0]), BoardSlot(0), 100_000);
        let before = shares.beyond(BoardSlot(0));
        // A memory's worth of work to each.
        (0..800).for_each(|at| shares.give(pool(&[1.0, 1.0]), BoardSlot(at % 2), 2500));
        let left = shares.beyond(BoardSlot(0)) / before;
        assert!((0.30..0.45).contains(&left), "{left}");
        (0..10_000).for_each(|_| shares.give(pool(&[1.0, 1.0]), BoardSlot(1), 100_000));
        assert!(shares.beyond(BoardSlot(1)) < 1.2 * MEMORY_TOKENS, "{}", shares.beyond(BoardSlot(1)));
    }
}
