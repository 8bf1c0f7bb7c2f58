//! What each engine got, has to do and can hold, in tokens: cells with one writer each that every core reads.
//!
//! Written by the dispatcher as requests are placed and end, and by the side runtime as engines come, restart and go.
//! Never looks at prompts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use llmgw_types::{BoardSlot, CoreId};

/// What an engine is taken to hold until it is known, in tokens.
pub const CAPACITY_UNKNOWN: u64 = 400_000;
/// The most an engine can hold, in tokens; also how far its count jumps when everything of it is to be forgotten.
pub const CAPACITY_MAX: u64 = 1 << 35;
/// What one request counts in a cell of tokens: more than all tokens of all requests.
const ONE_REQUEST: i64 = 1 << 44;
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
