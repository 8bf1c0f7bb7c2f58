//! What each engine got, has to do and can hold, in tokens: cells with one writer each that every core reads.
//!
//! Written by the dispatcher as requests are placed and end, and by the side runtime as engines come, restart and go.
//! Never looks at prompts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use llmgw_types::{BoardSlot, CoreId};

use super::capacity::{Evidence, Learned};
use super::shares::Shares;

/// What an engine is taken to hold until it is known, in tokens.
pub const CAPACITY_UNKNOWN: u64 = 400_000;
/// The most an engine can hold, in tokens; also how far its count jumps when everything of it is to be forgotten.
pub const CAPACITY_MAX: u64 = 1 << 35;
/// What one request counts in a cell of tokens: more than all tokens of all requests.
const ONE_REQUEST: i64 = 1 << 44;
/// Bits for what was learned; those above are of the tenure in which it was.
const TENURE_SHIFT: u32 = 40;
/// Where counts begin.
const COUNT_FIRST: u64 = 1;

/// Cells of one core, alone on their cache lines.
#[repr(align(128))]
struct CoreRow {
    /// New tokens sent to each engine.
    sent: Box<[AtomicU64]>,
    /// Tokens that each engine still has to prefill, of requests without a first token; above [`ONE_REQUEST`] how many
    /// those are.
    queued: Box<[AtomicI64]>,
    /// What this core learned of what each engine holds, in tokens; above [`TENURE_SHIFT`] whose it was when it did.
    learned: Box<[AtomicU64]>,
    /// What this core gave each engine beyond its share.
    shares: Shares,
}

/// Cells of one engine.
struct EngineCells {
    /// Where its count begins: jumps when it forgets. Writer: the side runtime.
    base: AtomicU64,
    /// Its count when it forgot last. Writer: the side runtime.
    forgot_at: AtomicU64,
    /// What it can hold, 0 while unknown. Writer: the side runtime.
    capacity: AtomicU64,
}

/// The cells of all cores and engines.
pub struct Ledger {
    cores: Box<[CoreRow]>,
    engines: Box<[EngineCells]>,
}

/// A request's share of what its engine has to prefill. Owner: the core that counted it.
#[must_use = "it is to be counted down at the first token or the end"]
#[derive(Debug)]
pub struct Prefill {
    core: CoreId,
    slot: BoardSlot,
    tokens: u32,
}

impl Ledger {
    /// A ledger for so many cores and board slots.
    pub fn new(cores: usize, slots: usize) -> Self {
        let row = |_| CoreRow {
            sent: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            queued: (0..slots).map(|_| AtomicI64::new(0)).collect(),
            learned: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            shares: Shares::new(slots),
        };
        let engine = |_| EngineCells {
            base: AtomicU64::new(COUNT_FIRST),
            forgot_at: AtomicU64::new(COUNT_FIRST),
            capacity: AtomicU64::new(0),
        };
        Self { cores: (0..cores).map(row).collect(), engines: (0..slots).map(engine).collect() }
    }

    /// Board slots there are.
    pub fn slot_count(&self) -> usize {
        self.engines.len()
    }

    /// What an engine got, over all cores: only differences mean anything. Cost: one cache line a core.
    pub fn count(&self, slot: BoardSlot) -> u64 {
        let sent = self.cores.iter().map(|row| row.sent[slot.idx()].load(Ordering::Relaxed)).sum::<u64>();
        self.engines[slot.idx()].base.load(Ordering::Relaxed).wrapping_add(sent)
    }

    /// Counts tokens that take room in an engine's cache: of a prompt when it is sent, of an answer when it ended.
    /// Owner: that core.
    pub fn add_sent(&self, core: CoreId, slot: BoardSlot, tokens: u32) {
        let cell = &self.cores[core.idx()].sent[slot.idx()];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(tokens.into()), Ordering::Relaxed);
    }

    /// What a core gave engines beyond their shares.
    pub fn shares(&self, core: CoreId) -> &Shares {
        &self.cores[core.idx()].shares
    }

    /// Counts tokens that an engine has to prefill. Owner: that core.
    pub fn queue(&self, core: CoreId, slot: BoardSlot, tokens: u32) -> Prefill {
        self.change_queued(core, slot, ONE_REQUEST + i64::from(tokens));
        Prefill { core, slot, tokens }
    }

    /// Counts them down: the first token came, or the request ended before it. Owner: the core that counted them.
    #[expect(clippy::needless_pass_by_value, reason = "counted down once")]
    pub fn done(&self, prefill: Prefill) {
        self.change_queued(prefill.core, prefill.slot, -ONE_REQUEST - i64::from(prefill.tokens));
    }

    fn change_queued(&self, core: CoreId, slot: BoardSlot, by: i64) {
        let cell = &self.cores[core.idx()].queued[slot.idx()];
        cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    /// Tokens that an engine is likely to have left to prefill, over all cores: of the request that it works on, half.
    /// Cost: one cache line a core.
    pub fn queued(&self, slot: BoardSlot) -> i64 {
        let sum = self.cores.iter().map(|row| row.queued[slot.idx()].load(Ordering::Relaxed)).sum::<i64>().max(0);
        let (requests, tokens) = (sum / ONE_REQUEST, sum % ONE_REQUEST);
        tokens - tokens / (2 * requests.max(1))
    }

    /// Says what an engine can hold; `None` while nobody knows. Owner: the side runtime.
    pub fn set_capacity(&self, slot: BoardSlot, tokens: Option<u64>) {
        let tokens = tokens.map_or(0, |tokens| tokens.clamp(1, CAPACITY_MAX - 1));
        self.engines[slot.idx()].capacity.store(tokens, Ordering::Relaxed);
    }

    /// What an engine can hold, in tokens.
    pub fn capacity(&self, slot: BoardSlot) -> u64 {
        match self.engines[slot.idx()].capacity.load(Ordering::Relaxed) {
            0 => CAPACITY_UNKNOWN,
            known => known,
        }
    }

    /// Learns from an answer what its engine holds. `tenure` is that of the slot: what was learned of another engine
    /// there is no news. Owner: that core.
    pub fn learn(&self, core: CoreId, slot: BoardSlot, tenure: u32, evidence: &Evidence) {
        let cell = &self.cores[core.idx()].learned[slot.idx()];
        let mut learned = read(cell, tenure).map_or_else(Learned::default, Learned::from_tokens);
        learned.learn(evidence);
        cell.store(u64::from(tenure) << TENURE_SHIFT | learned.tokens(), Ordering::Relaxed);
    }

    /// What the cores learned of what an engine holds, in tokens: the mean of those that learned anything. Cost: one
    /// cache line a core.
    pub fn learned(&self, slot: BoardSlot, tenure: u32) -> Option<u64> {
        let known = self.cores.iter().filter_map(|row| read(&row.learned[slot.idx()], tenure));
        let (count, sum) = known.fold((0, 0), |(count, sum), tokens| (count + 1, sum + tokens));
        u64::checked_div(sum, count)
    }

    /// Forgets at once all that an engine got: it restarted, emptied its cache, or the slot is another's. What it has
    /// to do is not touched: requests count that down themselves. Owner: the side runtime.
    pub fn forget(&self, slot: BoardSlot) {
        let cells = &self.engines[slot.idx()];
        cells.base.store(cells.base.load(Ordering::Relaxed).wrapping_add(CAPACITY_MAX), Ordering::Relaxed);
        cells.forgot_at.store(self.count(slot), Ordering::Relaxed);
    }

    /// Whether an engine got enough since it forgot to have what all have: a 64th of what it holds.
    pub fn is_warm(&self, slot: BoardSlot) -> bool {
        let since = self.count(slot).wrapping_sub(self.engines[slot.idx()].forgot_at.load(Ordering::Relaxed));
        (self.capacity(slot) / 64..CAPACITY_MAX).contains(&since)
    }
}

/// What a cell holds of that tenure.
fn read(cell: &AtomicU64, tenure: u32) -> Option<u64> {
    let word = cell.load(Ordering::Relaxed);
    let (of, tokens) = (word >> TENURE_SHIFT, word & ((1 << TENURE_SHIFT) - 1));
    let is_its = of == u64::from(tenure) & (u64::MAX >> TENURE_SHIFT);
    Some(tokens).filter(|tokens| is_its && *tokens > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cores_count_adds_up_and_comes_back_to_nothing() {
        let (ledger, slot) = (Ledger::new(3, 2), BoardSlot(1));
        let before = ledger.count(slot);
        ledger.add_sent(CoreId(0), slot, 10);
        ledger.add_sent(CoreId(2), slot, 5);
        assert_eq!(ledger.count(slot) - before, 15);
        let first = ledger.queue(CoreId(0), slot, 60);
        assert_eq!(ledger.queued(slot), 30, "half of the one it works on");
        let held = [first, ledger.queue(CoreId(1), slot, 20), ledger.queue(CoreId(0), slot, 40)];
        assert_eq!((ledger.queued(slot), ledger.queued(BoardSlot(0))), (100, 0));
        held.into_iter().for_each(|prefill| ledger.done(prefill));
        assert_eq!(ledger.queued(slot), 0);
    }

    #[test]
    fn what_cores_learn_of_an_engine_is_not_said_of_the_next_one_in_its_slot() {
        let (ledger, slot) = (Ledger::new(3, 1), BoardSlot(0));
        assert_eq!(ledger.learned(slot, 7), None);
        let there = Evidence { age: 2 * CAPACITY_UNKNOWN, known_tokens: 100, cached_tokens: 100 };
        let gone = Evidence { age: CAPACITY_UNKNOWN / 2, known_tokens: 100, cached_tokens: 0 };
        (0..100).for_each(|_| ledger.learn(CoreId(0), slot, 7, &there));
        (0..100).for_each(|_| ledger.learn(CoreId(2), slot, 7, &gone));
        let learned = ledger.learned(slot, 7).expect("two cores learned");
        assert!((CAPACITY_UNKNOWN * 5 / 4).abs_diff(learned) < CAPACITY_UNKNOWN / 50, "{learned}");
        assert_eq!((ledger.learned(slot, 8), ledger.learned(slot, 6)), (None, None));
        ledger.learn(CoreId(1), slot, 8, &gone);
        assert!(ledger.learned(slot, 8).is_some_and(|tokens| tokens < CAPACITY_UNKNOWN));
        // The largest there are.
        let all = Evidence { age: CAPACITY_MAX - 1, known_tokens: 1, cached_tokens: 1 };
        (0..1000).for_each(|_| ledger.learn(CoreId(1), slot, u32::MAX, &all));
        assert!(ledger.learned(slot, u32::MAX).is_some_and(|tokens| tokens > CAPACITY_MAX / 2));
    }

    #[test]
    fn a_capacity_nobody_knows_is_the_usual_one_and_none_is_beyond_a_jump() {
        let (ledger, slot) = (Ledger::new(1, 1), BoardSlot(0));
        for (said, expected) in
            [(None, CAPACITY_UNKNOWN), (Some(5), 5), (Some(0), 1), (Some(u64::MAX), CAPACITY_MAX - 1)]
        {
            ledger.set_capacity(slot, said);
            assert_eq!(ledger.capacity(slot), expected);
        }
    }
}
