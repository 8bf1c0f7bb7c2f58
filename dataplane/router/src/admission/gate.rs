//! The gate on a home core: passes a request at once where there is room and nobody waits, counts it while it lives,
//! and owes the owner a nudge after every lowering that somebody waits for.
//!
//! Called by the dispatcher for every request, by whoever receives a grant, and on a new table. Never waits, sends or
//! allocates per request: what is owed is handed out with [`Gate::pay`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use llmgw_types::{BandRank, BoardSlot, CoreId, PoolSlot};

use super::slab::Slab;
use super::{Cells, Fault, UNBOUNDED, sum};
use crate::message::{TICKET_POOLS_MAX, TicketPools};

/// A pool, and the core that keeps its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGate {
    /// Its column on the board.
    pub slot: PoolSlot,
    /// The owner of its gate.
    pub owner: CoreId,
}

/// What a core's gate went through, added up until it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that passed at once.
    pub passed: u64,
    /// Requests that found the gates of all pools that could serve them shut.
    pub shut: u64,
}

/// A core's side of all gates. Owner: that core.
pub struct Gate<C: Cells> {
    share: Rc<Share<C>>,
}

/// What places lean on.
struct Share<C: Cells> {
    cells: C,
    core: CoreId,
    places: RefCell<Slab<Held>>,
    owed: RefCell<Owed>,
    on_debt: Box<dyn Fn()>,
    passed: Cell<u64>,
    shut: Cell<u64>,
}

/// A request that holds a place.
struct Held {
    pool: PoolGate,
    /// Where it runs, once that is decided.
    endpoint: Option<BoardSlot>,
    /// Whether it counts: not while its endpoint is out of the pool.
    counts: bool,
}

/// Nudges not sent: each pool at most once.
#[derive(Default)]
struct Owed {
    pools: Vec<PoolGate>,
    bits: Vec<u64>,
}

impl Owed {
    /// Answer: whether it is the first.
    fn add(&mut self, pool: PoolGate) -> bool {
        let (word, bit) = (pool.slot.idx() / 64, 1u64 << (pool.slot.idx() % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit != 0 {
            return false;
        }
        self.bits[word] |= bit;
        self.pools.push(pool);
        self.pools.len() == 1
    }

    fn pay(&mut self, mut send: impl FnMut(PoolGate) -> bool) -> bool {
        let bits = &mut self.bits;
        self.pools.retain(|pool| {
            let is_sent = send(*pool);
            if is_sent {
                bits[pool.slot.idx() / 64] &= !(1 << (pool.slot.idx() % 64));
            }
            !is_sent
        });
        self.pools.is_empty()
    }
}

impl<C: Cells> Gate<C> {
    /// The gates as `core` sees them. `on_debt` is called when a nudge is owed and none was before: [`Gate::pay`] is to
    /// be called before the core sleeps.
    pub fn new(cells: C, core: CoreId, on_debt: impl Fn() + 'static) -> Self {
        let share = Share {
            cells,
            core,
            places: RefCell::default(),
            owed: RefCell::default(),
            on_debt: Box::new(on_debt),
            passed: Cell::new(0),
            shut: Cell::new(0),
        };
        Self { share: Rc::new(share) }
    }

    /// Begins to look for a pool with room for a request of that band.
    pub fn attempt(&self, band: BandRank) -> Attempt<C> {
        let shut = [PoolGate::NONE; TICKET_POOLS_MAX];
        Attempt { share: self.share.clone(), band, shut, count: 0, has_passed: false, owes: true }
    }

    /// The place that came with a grant: the owner has counted it. Where nobody waits for the grant any more, it is to
    /// be dropped, which gives the place back.
    pub fn granted(&self, pool: PoolGate) -> PoolPlace<C> {
        self.share.place(pool)
    }

    /// A place that needs no room: for requests that go to an engine past the gate, so that they count there.
    pub fn unasked(&self, pool: PoolGate) -> PoolPlace<C> {
        self.share.cells.add_load(self.share.core, pool.slot, 1);
        self.share.place(pool)
    }

    /// Hands out what is owed; `send` says whether the owner's lane had room (the owner may be this very core). Answer:
    /// whether nothing is owed any more.
    pub fn pay(&self, send: impl FnMut(PoolGate) -> bool) -> bool {
        self.share.owed.borrow_mut().pay(send)
    }

    /// Counts this core's requests anew where endpoints left pools or came back. `is_member` is the new table's word
    /// for a pool that is in it, and `true` for a pool that is not: its cells live on until its last request ends.
    ///
    /// Called when a table is taken, before the core says so on the board, and when an endpoint begins or ends to
    /// drain.
    /// Cost: one pass over the requests that run.
    pub fn recount(&self, is_member: impl Fn(PoolSlot, BoardSlot) -> bool) {
        let share = &self.share;
        if share.cells.planted(Fault::NotRecounted) {
            return;
        }
        let end = share.places.borrow().end();
        for row in 0..end {
            let mut places = share.places.borrow_mut();
            let Some(held) = places.get_mut(row) else { continue };
            let Some(endpoint) = held.endpoint else { continue };
            let (counts, pool) = (is_member(held.pool.slot, endpoint), held.pool);
            let did = held.counts;
            if counts == did {
                continue;
            }
            held.counts = counts || share.cells.planted(Fault::CountedTwice);
            drop(places);
            match counts {
                true => share.cells.add_load(share.core, pool.slot, 1),
                false => share.lower(pool),
            }
        }
    }

    /// Requests of this core that hold a place in a pool.
    pub fn held_count(&self) -> usize {
        self.share.places.borrow().len()
    }

    /// What this gate went through since it was asked last.
    pub fn take_tally(&self) -> Tally {
        Tally { passed: self.share.passed.take(), shut: self.share.shut.take() }
    }
}

impl<C: Cells> Share<C> {
    fn place(self: &Rc<Self>, pool: PoolGate) -> PoolPlace<C> {
        let row = self.places.borrow_mut().insert(Held { pool, endpoint: None, counts: true });
        PoolPlace { share: self.clone(), row, pool }
    }

    /// Gives a count up, then looks whether somebody waits for it.
    fn lower(&self, pool: PoolGate) {
        if self.cells.planted(Fault::LooksBeforeLowering) {
            self.look(pool);
            return self.cells.add_load(self.core, pool.slot, -1);
        }
        self.cells.add_load(self.core, pool.slot, -1);
        self.look(pool);
    }

    fn look(&self, pool: PoolGate) {
        if self.cells.waiting(pool.slot) != BandRank::NOBODY
            && !self.cells.planted(Fault::NudgeLost)
            && self.owed.borrow_mut().add(pool)
        {
            (self.on_debt)();
        }
    }

    /// Passes, or leaves everything as it was; the look at who waits is then the caller's.
    fn pass(&self, band: BandRank, pool: PoolGate) -> bool {
        let Self { cells, core, .. } = self;
        if cells.planted(Fault::PassChecksFirst) {
            let has_room = sum(cells, pool.slot, pool.owner) < i64::from(cells.room(pool.slot, band));
            if has_room && cells.waiting(pool.slot) < band {
                cells.add_load(*core, pool.slot, 1);
                return true;
            }
            return false;
        }
        let early = cells.planted(Fault::WaitersReadFirst).then(|| cells.waiting(pool.slot));
        // Raise first, then look at the load: whoever raised before us is in our sum.
        cells.add_load(*core, pool.slot, 1);
        let room = cells.room(pool.slot, band);
        if room == UNBOUNDED {
            return true;
        }
        let has_room = sum(cells, pool.slot, pool.owner) <= i64::from(room);
        // Who waits is read last: that read is the moment of passing.
        if has_room && early.unwrap_or_else(|| cells.waiting(pool.slot)) < band {
            return true;
        }
        cells.add_load(*core, pool.slot, -1);
        false
    }
}

impl PoolGate {
    const NONE: Self = Self { slot: PoolSlot(u32::MAX), owner: CoreId(0) };
}

/// One request at the gates of its pools, in its order of preference, within one turn.
///
/// Every pool that was shut was raised and lowered, so somebody may wait for it. Dropped, it looks at all of them;
/// where an `Enqueue` that names them was sent ([`Attempt::sent`]) that is not needed, for the owner looks at it
/// anyway.
#[must_use = "pools that were shut are to be waited for, or looked at when this is dropped"]
pub struct Attempt<C: Cells> {
    share: Rc<Share<C>>,
    band: BandRank,
    shut: [PoolGate; TICKET_POOLS_MAX],
    count: usize,
    has_passed: bool,
    owes: bool,
}

impl<C: Cells> Attempt<C> {
    /// Tries one pool. A place, if the request passed: it is counted and gives that back when it is dropped.
    ///
    /// Cost: one cache line a core, no allocation.
    #[inline]
    pub fn try_pool(&mut self, pool: PoolGate) -> Option<PoolPlace<C>> {
        if self.share.pass(self.band, pool) {
            self.share.passed.set(self.share.passed.get() + 1);
            self.has_passed = true;
            return Some(self.share.place(pool));
        }
        match self.shut.get_mut(self.count) {
            Some(shut) => {
                *shut = pool;
                self.count += 1;
            }
            // A request waits for so many pools at most.
            None => self.share.look(pool),
        }
        None
    }

    /// The pool that was tried last is not to be waited for: the request could not run there.
    pub fn leave_out_last(&mut self) {
        if let Some(last) = self.count.checked_sub(1) {
            self.share.look(self.shut[last]);
            self.count = last;
        }
    }

    /// Pools to wait for; empty when none was shut. All have the same owner as the first where they are one model's.
    pub fn shut(&self) -> &[PoolGate] {
        &self.shut[..self.count]
    }

    /// The same, as a message carries them.
    pub fn pools(&self) -> TicketPools {
        self.shut().iter().map(|pool| pool.slot).collect()
    }

    /// The band that it asks for.
    pub fn band(&self) -> BandRank {
        self.band
    }

    /// An `Enqueue` for these pools has entered the owner's lane.
    pub fn sent(mut self) {
        self.owes = false;
    }
}

impl<C: Cells> Drop for Attempt<C> {
    fn drop(&mut self) {
        if self.count > 0 && !self.has_passed {
            self.share.shut.set(self.share.shut.get() + 1);
        }
        if self.owes && !self.share.cells.planted(Fault::FullLaneOwesNothing) {
            (0..self.count).for_each(|at| self.share.look(self.shut[at]));
        }
    }
}

/// A request's count in its pool: up from the gate, or from the owner's grant, down when it is dropped.
pub struct PoolPlace<C: Cells> {
    share: Rc<Share<C>>,
    row: u32,
    pool: PoolGate,
}

impl<C: Cells> PoolPlace<C> {
    /// The pool.
    pub fn pool(&self) -> PoolGate {
        self.pool
    }

    /// Says where the request runs, so that it is counted out when that endpoint leaves the pool. A retry in the same
    /// pool says it again.
    pub fn runs_at(&self, endpoint: BoardSlot) {
        let mut places = self.share.places.borrow_mut();
        let Some(held) = places.get_mut(self.row) else { return };
        held.endpoint = Some(endpoint);
        let did_count = std::mem::replace(&mut held.counts, true);
        drop(places);
        if !did_count {
            // It was counted out with the endpoint it leaves.
            self.share.cells.add_load(self.share.core, self.pool.slot, 1);
        }
    }
}

impl<C: Cells> Drop for PoolPlace<C> {
    fn drop(&mut self) {
        let held = self.share.places.borrow_mut().remove(self.row);
        if held.is_some_and(|held| held.counts) {
            self.share.lower(self.pool);
            if self.share.cells.planted(Fault::ReleasedTwice) {
                self.share.lower(self.pool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::admission::publish_room;
    use crate::board::Board;

    const LOW: BandRank = BandRank(1);
    const HIGH: BandRank = BandRank(2);

    /// Two cores, the first the owner of both pools; so much room for low and high.
    fn gates(low: i32, high: i32) -> (Arc<Board>, [Gate<Arc<Board>>; 2]) {
        let board = Arc::new(Board::new(2, 4));
        for pool in [0, 1] {
            assert!(!publish_room(&board, PoolSlot(pool), [(LOW, low), (HIGH, high)]));
        }
        let gates = [0, 1].map(|core| Gate::new(board.clone(), CoreId(core), || {}));
        (board, gates)
    }

    fn pool(slot: u32) -> PoolGate {
        PoolGate { slot: PoolSlot(slot), owner: CoreId(0) }
    }

    fn pass(gate: &Gate<Arc<Board>>, band: BandRank) -> Option<PoolPlace<Arc<Board>>> {
        gate.attempt(band).try_pool(pool(0))
    }

    fn owed(gate: &Gate<Arc<Board>>) -> Vec<u32> {
        let mut owed = Vec::new();
        gate.pay(|pool| {
            owed.push(pool.slot.0);
            true
        });
        owed
    }

    #[test]
    fn requests_pass_up_to_the_room_of_their_band_and_give_it_back() {
        let (board, [a, b]) = gates(1, 2);
        let first = pass(&a, LOW).unwrap();
        assert!(pass(&b, LOW).is_none());
        let second = pass(&b, HIGH).unwrap();
        assert!(pass(&a, HIGH).is_none());
        assert_eq!((board.pool_load(PoolSlot(0)), a.held_count(), b.held_count()), (2, 1, 1));
        drop((first, second));
        assert_eq!((board.pool_load(PoolSlot(0)), a.held_count()), (0, 0));
        assert_eq!(a.take_tally(), Tally { passed: 1, shut: 1 });
        assert_eq!(a.take_tally(), Tally::default());
    }

    #[test]
    fn nobody_passes_while_one_of_their_band_or_above_waits() {
        let (board, [a, _]) = gates(9, 9);
        board.set_waiting(PoolSlot(0), LOW);
        assert!(pass(&a, LOW).is_none());
        assert!(pass(&a, HIGH).is_some());
        board.set_waiting(PoolSlot(0), HIGH);
        assert!(pass(&a, HIGH).is_none());
        board.set_room(PoolSlot(0), HIGH, UNBOUNDED);
        assert!(pass(&a, HIGH).is_some(), "a band that never waits asks nobody");
    }

    #[test]
    fn every_lowering_that_somebody_waits_for_owes_a_nudge_once() {
        let (board, [_, b]) = gates(9, 9);
        let places: Vec<_> = (0..3).map(|_| pass(&b, LOW).unwrap()).collect();
        board.set_waiting(PoolSlot(0), HIGH);
        drop(places);
        assert_eq!((owed(&b), owed(&b)), (vec![0], vec![]));
        // A lane without room keeps it.
        drop(pass(&b, LOW));
        assert!(!b.pay(|_| false));
        assert_eq!(owed(&b), [0]);
        // With an Enqueue under way nothing is owed; without one, everything that was shut.
        let mut attempt = b.attempt(LOW);
        assert!(attempt.try_pool(pool(0)).is_none());
        assert_eq!(attempt.shut(), [pool(0)]);
        attempt.sent();
        assert_eq!(owed(&b), Vec::<u32>::new());
        drop(pass(&b, LOW));
        assert_eq!(owed(&b), [0]);
    }

    #[test]
    fn the_first_debt_is_told_and_later_ones_are_not() {
        let board = Arc::new(Board::new(1, 1));
        let told = Rc::new(Cell::new(0));
        let gate = Gate::new(board.clone(), CoreId(0), {
            let told = told.clone();
            move || told.set(told.get() + 1)
        });
        board.set_waiting(PoolSlot(0), HIGH);
        board.set_waiting(PoolSlot(1), HIGH);
        (0..3).for_each(|_| drop(gate.unasked(pool(0))));
        drop(gate.unasked(pool(1)));
        assert_eq!((told.get(), owed(&gate)), (1, vec![0, 1]));
        drop(gate.unasked(pool(1)));
        assert_eq!(told.get(), 2);
    }

    #[test]
    fn the_next_pool_is_tried_and_one_that_cannot_serve_is_not_waited_for() {
        let (board, [a, _]) = gates(0, 0);
        board.set_room(PoolSlot(1), LOW, 1);
        let mut attempt = a.attempt(LOW);
        assert!(attempt.try_pool(pool(0)).is_none());
        let place = attempt.try_pool(pool(1)).unwrap();
        assert_eq!((place.pool(), attempt.shut()), (pool(1), [pool(0)].as_slice()));
        assert!(attempt.try_pool(pool(1)).is_none());
        board.set_waiting(PoolSlot(1), HIGH);
        attempt.leave_out_last();
        assert_eq!((attempt.shut(), owed(&a)), ([pool(0)].as_slice(), vec![1]));
        assert_eq!(attempt.pools().iter().collect::<Vec<_>>(), [PoolSlot(0)]);
    }

    #[test]
    fn a_grant_counts_at_the_owner_and_its_end_at_home() {
        let (board, [_, home]) = gates(9, 9);
        board.add_load(CoreId(0), PoolSlot(0), 1);
        drop(home.granted(pool(0)));
        assert_eq!((board.load(CoreId(0), PoolSlot(0)), board.load(CoreId(1), PoolSlot(0))), (1, -1));
        assert_eq!(board.pool_load(PoolSlot(0)), 0);
    }

    #[test]
    fn requests_at_an_endpoint_that_leaves_are_counted_out_once_and_in_again_if_they_move_or_it_returns() {
        let (board, [a, _]) = gates(9, 9);
        let places: Vec<_> = (0..4).map(|_| pass(&a, LOW).unwrap()).collect();
        for (place, endpoint) in places.iter().zip([0, 0, 1]) {
            place.runs_at(BoardSlot(endpoint));
        }
        let load = || board.pool_load(PoolSlot(0));
        board.set_waiting(PoolSlot(0), LOW);
        let is_member = |_: PoolSlot, endpoint: BoardSlot| endpoint != BoardSlot(0);
        a.recount(is_member);
        a.recount(is_member);
        assert_eq!((load(), owed(&a)), (2, vec![0]), "the one that is not placed yet counts");
        places[0].runs_at(BoardSlot(1));
        assert_eq!(load(), 3);
        a.recount(|_, _| true);
        assert_eq!(load(), 4);
        a.recount(is_member);
        assert_eq!(load(), 3);
        drop(places);
        assert_eq!((load(), a.held_count()), (0, 0));
    }
}
