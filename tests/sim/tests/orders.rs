//! The gate's and the owner's own code, and the outbox of nudges, under every order in which threads may see each
//! other's stores: two threads, one pool, the least that shows each rule.
//!
//! loom knows sequential consistency by fences alone, so these cells are a store and a fence where the board's are
//! sequentially consistent stores, which is no weaker. Without the fences both faults of weaker orders are found.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use llmgw_kit::clock::Mono;
use llmgw_router::admission::{Answer, Cells, Controller, Gate, PoolGate};
use llmgw_router::message::{Enqueue, Ticket};
use llmgw_types::{BandRank, CoreId, PoolSlot};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicI64, AtomicU32, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

const POOL: PoolGate = PoolGate { slot: PoolSlot(0), owner: OWNER };
const OWNER: CoreId = CoreId(0);
const HOME: CoreId = CoreId(1);
const BAND: BandRank = BandRank(1);

/// The cells of one pool, with so much room for everybody.
struct LoomCells {
    load: [AtomicI64; 2],
    waiting: AtomicU32,
    room: i32,
    is_fenced: bool,
}

impl LoomCells {
    fn new(room: i32, is_fenced: bool) -> Arc<Self> {
        let load = [0, 0].map(AtomicI64::new);
        Arc::new(Self { load, waiting: AtomicU32::new(0), room, is_fenced })
    }

    fn fence(&self) {
        if self.is_fenced {
            fence(SeqCst);
        }
    }
}

/// One thread's view of them.
#[derive(Clone)]
struct Shared {
    cells: Arc<LoomCells>,
    /// Nothing is given up any more: who has a place keeps it.
    is_kept: Rc<Cell<bool>>,
}

fn shared(cells: &Arc<LoomCells>) -> Shared {
    Shared { cells: cells.clone(), is_kept: Rc::default() }
}

impl Cells for Shared {
    fn core_count(&self) -> u32 {
        2
    }

    fn add_load(&self, core: CoreId, _: PoolSlot, by: i64) {
        if by < 0 && self.is_kept.get() {
            return;
        }
        let cell = &self.cells.load[core.idx()];
        cell.store(cell.load(Relaxed) + by, Release);
        self.cells.fence();
    }

    fn load(&self, core: CoreId, _: PoolSlot) -> i64 {
        self.cells.load[core.idx()].load(Acquire)
    }

    fn waiting(&self, _: PoolSlot) -> BandRank {
        BandRank(self.cells.waiting.load(Acquire) as u8)
    }

    fn set_waiting(&self, _: PoolSlot, band: BandRank) {
        self.cells.waiting.store(band.0.into(), Release);
        self.cells.fence();
    }

    fn room(&self, _: PoolSlot, _: BandRank) -> i32 {
        self.cells.room
    }

    fn set_room(&self, _: PoolSlot, _: BandRank, _: i32) {}
}

fn asked(number: u64) -> Enqueue {
    Enqueue {
        ticket: Ticket { core: OWNER, number },
        gate: 1,
        generation: 0,
        tenant: 1,
        deadline: Mono(1),
        cost: 1,
        bytes: 1,
        pools: [POOL.slot].into_iter().collect(),
        band: BAND,
    }
}

/// One holds the only place at home and gives it up, while the owner takes in one that waits: it is granted at once, or
/// the home core owes a nudge, and the grant that follows finds the place.
fn a_place_is_handed_on(is_fenced: bool) {
    loom::model(move || {
        let cells = LoomCells::new(1, is_fenced);
        // The place is taken before anybody else moves.
        shared(&cells).add_load(HOME, POOL.slot, 1);
        let theirs = cells.clone();
        let home = thread::spawn(move || {
            let gate = Gate::new(shared(&theirs), HOME, || {});
            drop(gate.granted(POOL));
            let mut owes = false;
            gate.pay(|_| {
                owes = true;
                true
            });
            owes
        });
        let mut controller = Controller::new(shared(&cells), OWNER);
        let mut granted = 0;
        let count = |_: Ticket, answer: Answer| granted += u32::from(matches!(answer, Answer::Granted(_)));
        controller.enqueue(&asked(1), |_, _| true, |_, _| {});
        let mut count = count;
        controller.turn(&mut count);
        if home.join().unwrap() {
            controller.nudge(POOL.slot);
            controller.turn(&mut count);
        }
        assert_eq!(granted, 1, "missed nudge");
    });
}

/// Two cores at the last place: one of them at most has it.
fn the_last_place_is_taken_once(is_fenced: bool) {
    loom::model(move || {
        let cells = LoomCells::new(1, is_fenced);
        let pass = |cells: Arc<LoomCells>, core: CoreId| {
            let view = shared(&cells);
            let gate = Gate::new(view.clone(), core, || {});
            let place = gate.attempt(BAND).try_pool(POOL);
            view.is_kept.set(true);
            place.is_some()
        };
        let theirs = cells.clone();
        let home = thread::spawn(move || pass(theirs, HOME));
        let here = pass(cells, OWNER);
        assert!(!(home.join().unwrap() && here), "both took the last place");
    });
}

/// A grant at the owner and its end at home while the home core's other request sums: nobody gets in above the room,
/// and what is counted at the end is what holds a place. The lane is a bounded queue; a nudge that it has no room for
/// stays owed.
fn a_grant_crosses_a_lane() {
    loom::model(|| {
        let cells = LoomCells::new(1, true);
        let lane = Arc::new(Mutex::new(VecDeque::from([()])));
        let (theirs, their_lane) = (cells.clone(), lane.clone());
        // The owner grants to somebody at home while that one passes by itself.
        let home = thread::spawn(move || {
            let gate = Gate::new(shared(&theirs), HOME, || {});
            drop(gate.attempt(BAND).try_pool(POOL));
            let mut send = |_: PoolGate| {
                let mut lane = their_lane.lock().unwrap();
                let has_room = lane.len() < 2;
                if has_room {
                    lane.push_back(());
                }
                has_room
            };
            let paid = gate.pay(&mut send);
            assert!(paid, "the lane has room for one");
        });
        let mut controller = Controller::new(shared(&cells), OWNER);
        let mut granted = 0;
        controller.enqueue(&asked(1), |_, _| true, |_, _| {});
        controller.turn(|_, _| granted += 1);
        home.join().unwrap();
        // Everything that was sent arrives: one nudge at most, for one pool.
        let nudges = lane.lock().unwrap().len() - 1;
        (0..nudges).for_each(|_| controller.nudge(POOL.slot));
        controller.turn(|_, _| granted += 1);
        assert_eq!(granted, 1, "nobody holds the place, and one waits for ever");
        let total: i64 = [OWNER, HOME].map(|core| shared(&cells).load(core, POOL.slot)).iter().sum();
        assert_eq!(total, 1);
    });
}

#[test]
fn a_place_that_is_given_up_reaches_whoever_waits() {
    a_place_is_handed_on(true);
}

#[test]
#[should_panic(expected = "missed nudge")]
fn with_weaker_orders_a_nudge_is_missed() {
    a_place_is_handed_on(false);
}

#[test]
fn two_cores_at_the_last_place_do_not_both_have_it() {
    the_last_place_is_taken_once(true);
}

#[test]
#[should_panic(expected = "both took the last place")]
fn with_weaker_orders_both_have_it() {
    the_last_place_is_taken_once(false);
}

#[test]
fn a_pass_and_a_grant_that_cross_leave_nobody_waiting() {
    a_grant_crosses_a_lane();
}
