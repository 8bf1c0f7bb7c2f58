//! The load board: what cores know of the engines, in cells that have one writer each and that anyone may read.
//!
//! In-flight cells are written by the core that sent the request, endpoint cells by the side runtime. Nothing is locked
//! and nothing is a shared read-modify-write: a core adds to its own row with a plain load and store. A sum over cores
//! is not a snapshot; it is off by what changed while it was read.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use llmgw_kit::clock::Mono;
use llmgw_types::{BoardSlot, CoreId};

pub use self::pools::POOL_SLOTS_MAX;
pub use self::slots::{SlotBook, SlotKind};

mod pools;
mod slots;

use self::pools::{CoreLoads, PoolCells};
use crate::breaker::state::Tally;
use crate::endpoint::EndpointCells;
use crate::session_table::Holder;

/// Endpoints a board has room for. A table that needs more is refused when it is published.
pub const SLOTS_MAX: usize = 4096;
/// Marks of one core for the sessions in its table: four for each that it may hold.
const MARKS: usize = 4 * crate::session_table::SESSIONS_MAX;

/// A request's tokens count as so many at most, so that a cell has room for 65,536 of the largest requests.
const TOKENS_MAX: u32 = (1 << 24) - 1;
/// A cell's lower bits are tokens, the upper ones requests.
const TOKEN_BITS: u32 = 40;

/// What is in flight to an endpoint: requests, and the tokens that their prompts cost, in one word.
///
/// Words add up as they are: neither half can overflow within the bound on tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight(u64);

impl InFlight {
    /// Requests.
    #[inline]
    pub fn requests(self) -> i64 {
        (self.0 >> TOKEN_BITS) as i64
    }

    /// The tokens that their prompts cost.
    #[inline]
    pub fn tokens(self) -> i64 {
        (self.0 & ((1 << TOKEN_BITS) - 1)) as i64
    }
}

/// Cells of one core, alone on their cache lines.
#[repr(align(128))]
struct CoreRow {
    /// Requests in flight to each slot and what their prompts cost, in one word ([`InFlight`]): a decision reads this
    /// cell of every core and endpoint.
    in_flight: Box<[AtomicU64]>,
    /// Answers of each slot's endpoint that were no failure, and its failures.
    answered: Box<[AtomicU64]>,
    failed: Box<[AtomicU64]>,
    /// The newest route table this core works with.
    generation: AtomicU64,
    /// How many of the sessions in this core's table fall on each mark.
    sessions: Box<[AtomicU16]>,
    /// What this core counted up less what it counted down, for each pool.
    pools: CoreLoads,
}

/// The cells of all cores and endpoints.
pub struct Board {
    cores: Box<[CoreRow]>,
    endpoints: Box<[EndpointCells]>,
    pools: Box<[PoolCells]>,
    /// Until when each slot's trial is taken, nanoseconds; 0 is free. Written by whichever core takes it.
    trials: Box<[AtomicU64]>,
}

impl Board {
    /// A board for `cores` cores and `slots` endpoints, everything zero and nobody ready.
    pub fn new(cores: usize, slots: usize) -> Self {
        let counts = || (0..slots).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let row = |_| CoreRow {
            in_flight: counts(),
            answered: counts(),
            failed: counts(),
            generation: AtomicU64::new(0),
            sessions: (0..MARKS).map(|_| AtomicU16::new(0)).collect(),
            pools: CoreLoads::default(),
        };
        Self {
            cores: (0..cores).map(row).collect(),
            endpoints: (0..slots).map(|_| EndpointCells::default()).collect(),
            pools: (0..POOL_SLOTS_MAX).map(|_| PoolCells::default()).collect(),
            trials: counts(),
        }
    }

    /// Slots of this board.
    pub fn slot_count(&self) -> usize {
        self.endpoints.len()
    }

    /// Counts a request up on `core`. Owner: that core.
    pub fn raise(&self, core: CoreId, slot: BoardSlot, tokens: u32) {
        self.change(core, slot, |cell, one| cell.wrapping_add(one), tokens);
    }

    /// Counts a request down on `core`. Owner: that core.
    pub fn lower(&self, core: CoreId, slot: BoardSlot, tokens: u32) {
        self.change(core, slot, |cell, one| cell.wrapping_sub(one), tokens);
    }

    fn change(&self, core: CoreId, slot: BoardSlot, change: impl FnOnce(u64, u64) -> u64, tokens: u32) {
        // One writer a cell: a load and a store are enough, and cost what an addition costs.
        let cell = &self.cores[core.idx()].in_flight[slot.idx()];
        let one = (1 << TOKEN_BITS) | u64::from(tokens.min(TOKENS_MAX));
        cell.store(change(cell.load(Ordering::Relaxed), one), Ordering::Release);
    }

    /// What is in flight to an endpoint, over all cores. Cost: one cache line a core.
    #[inline]
    pub fn load(&self, slot: BoardSlot) -> InFlight {
        let cells = self.cores.iter().map(|row| row.in_flight[slot.idx()].load(Ordering::Acquire));
        InFlight(cells.fold(0, u64::wrapping_add))
    }

    /// Adds what is in flight to each of `slots`, over all cores, to the load at its place: core by core, since a
    /// core's cells lie together.
    #[inline]
    pub fn add_loads(&self, slots: impl Iterator<Item = BoardSlot> + Clone, loads: &mut [InFlight]) {
        for row in &self.cores {
            for (slot, load) in slots.clone().zip(loads.iter_mut()) {
                load.0 = load.0.wrapping_add(row.in_flight[slot.idx()].load(Ordering::Acquire));
            }
        }
    }

    /// Requests in flight to an endpoint, over all cores. Cost: one cache line a core.
    #[inline]
    pub fn in_flight(&self, slot: BoardSlot) -> i64 {
        self.load(slot).requests()
    }

    /// Requests that one core has in flight to an endpoint.
    #[inline]
    pub fn in_flight_of(&self, core: CoreId, slot: BoardSlot) -> i64 {
        InFlight(self.cores[core.idx()].in_flight[slot.idx()].load(Ordering::Acquire)).requests()
    }

    /// Prompt tokens in flight to an endpoint, over all cores. Cost: one cache line a core.
    #[inline]
    pub fn tokens_in_flight(&self, slot: BoardSlot) -> i64 {
        self.load(slot).tokens()
    }

    /// Counts an answer that was no failure. Owner: that core.
    pub fn count_answer(&self, core: CoreId, slot: BoardSlot) {
        let cell = &self.cores[core.idx()].answered[slot.idx()];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Counts a failure. Owner: that core.
    pub fn count_failure(&self, core: CoreId, slot: BoardSlot) {
        let cell = &self.cores[core.idx()].failed[slot.idx()];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Answers and failures of a slot since the process began, over all cores. Cost: two cache lines a core.
    pub fn tally(&self, slot: BoardSlot) -> Tally {
        self.cores.iter().fold(Tally::default(), |sum, row| Tally {
            answered: sum.answered + row.answered[slot.idx()].load(Ordering::Acquire),
            failed: sum.failed + row.failed[slot.idx()].load(Ordering::Acquire),
        })
    }

    /// Whether the trial of a half-open endpoint is to be had.
    #[inline]
    pub fn is_trial_free(&self, slot: BoardSlot, now: Mono) -> bool {
        self.trials[slot.idx()].load(Ordering::Acquire) <= now.0
    }

    /// Takes the trial of a half-open endpoint until `until`, for one request on one core. Answer: whether it was free.
    ///
    /// The one cell that several cores change together; only while a breaker is not closed.
    pub fn take_trial(&self, slot: BoardSlot, now: Mono, until: Mono) -> bool {
        let cell = &self.trials[slot.idx()];
        let taken = cell.load(Ordering::Acquire);
        taken <= now.0 && cell.compare_exchange(taken, until.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Keeps the trial taken until `until`, by whoever has it.
    pub fn hold_trial(&self, slot: BoardSlot, until: Mono) {
        self.trials[slot.idx()].store(until.0, Ordering::Release);
    }

    /// Gives the trial back.
    pub fn free_trial(&self, slot: BoardSlot) {
        self.trials[slot.idx()].store(0, Ordering::Release);
    }

    /// Whether the endpoint answered its last check.
    #[inline]
    pub fn is_ready(&self, slot: BoardSlot) -> bool {
        self.endpoint(slot).is_ready()
    }

    /// Says whether the endpoint is ready. Owner: the side runtime.
    pub fn set_ready(&self, slot: BoardSlot, ready: bool) {
        self.endpoint(slot).set_ready(ready);
    }

    /// The cells of one endpoint.
    #[inline]
    pub fn endpoint(&self, slot: BoardSlot) -> &EndpointCells {
        &self.endpoints[slot.idx()]
    }

    /// The endpoint that has the slot, to be told from those that have it later.
    pub fn holder(&self, slot: BoardSlot) -> Holder {
        Holder { slot, tenure: self.endpoint(slot).tenure() }
    }

    /// Whether the slot is still that endpoint's own.
    pub fn is_current(&self, holder: Holder) -> bool {
        self.endpoints.get(holder.slot.idx()).is_some_and(|cells| cells.tenure() == holder.tenure)
    }

    /// Whether the table of `core`, which owns the session, may know it. Never wrong when it says no, but for what is
    /// on its way. Cost: one load.
    pub fn may_know_session(&self, core: CoreId, hash: u64) -> bool {
        self.cores[core.idx()].sessions[hash as usize % MARKS].load(Ordering::Relaxed) > 0
    }

    /// Counts a session of a core's table up or down. Owner: that core.
    pub(crate) fn mark_session(&self, core: CoreId, hash: u64, by: i16) {
        let cell = &self.cores[core.idx()].sessions[hash as usize % MARKS];
        cell.store(cell.load(Ordering::Relaxed).saturating_add_signed(by), Ordering::Relaxed);
    }

    /// Says which route table `core` works with from now on. Owner: that core.
    pub fn set_generation(&self, core: CoreId, generation: u64) {
        self.cores[core.idx()].generation.store(generation, Ordering::Release);
    }

    /// The oldest route table that some core still works with.
    pub fn oldest_generation(&self) -> u64 {
        self.cores.iter().map(|row| row.generation.load(Ordering::Acquire)).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cores_count_up_and_down_adds_up() {
        let board = Board::new(3, 2);
        let (a, b) = (BoardSlot(0), BoardSlot(1));
        board.raise(CoreId(0), a, 100);
        board.raise(CoreId(2), a, 50);
        board.raise(CoreId(1), b, 7);
        assert_eq!((board.in_flight(a), board.tokens_in_flight(a)), (2, 150));
        board.lower(CoreId(0), a, 100);
        board.lower(CoreId(2), a, 50);
        assert_eq!((board.in_flight(a), board.tokens_in_flight(a), board.in_flight(b)), (0, 0, 1));
    }

    #[test]
    fn a_request_of_absurd_size_is_counted_up_and_down_as_the_most_there_is() {
        let (board, slot) = (Board::new(2, 1), BoardSlot(0));
        for core in [0, 1] {
            (0..300).for_each(|_| board.raise(CoreId(core), slot, u32::MAX));
        }
        let load = board.load(slot);
        assert_eq!((load.requests(), load.tokens()), (600, 600 * i64::from(TOKENS_MAX)));
        let mut loads = [InFlight::default(); 1];
        board.add_loads(std::iter::once(slot), &mut loads);
        assert_eq!(loads, [load]);
        for core in [0, 1] {
            (0..300).for_each(|_| board.lower(CoreId(core), slot, u32::MAX));
        }
        assert_eq!(board.load(slot), InFlight::default());
    }

    #[test]
    fn what_cores_count_of_answers_adds_up() {
        let board = Board::new(2, 2);
        let slot = BoardSlot(1);
        board.count_answer(CoreId(0), slot);
        board.count_answer(CoreId(1), slot);
        board.count_failure(CoreId(1), slot);
        assert_eq!(board.tally(slot), Tally { answered: 2, failed: 1 });
        assert_eq!(board.tally(BoardSlot(0)), Tally::default());
    }

    #[test]
    fn a_trial_is_had_by_one_until_it_is_given_back_or_its_time_is_up() {
        let (board, slot) = (Board::new(2, 1), BoardSlot(0));
        assert!(board.is_trial_free(slot, Mono(5)) && board.take_trial(slot, Mono(5), Mono(9)));
        assert!(!board.is_trial_free(slot, Mono(8)) && !board.take_trial(slot, Mono(8), Mono(20)));
        assert!(board.take_trial(slot, Mono(9), Mono(20)));
        board.hold_trial(slot, Mono(30));
        assert!(!board.is_trial_free(slot, Mono(29)) && board.is_trial_free(slot, Mono(30)));
        board.free_trial(slot);
        assert!(board.take_trial(slot, Mono(10), Mono(20)));
    }
}
