//! The board's cells, with a stop in front of every access: there the scheduler lets others go on.
//!
//! A stop suspends the coroutine in which the core's code runs, so the router's functions are interleaved access by
//! access without knowing it.

use std::rc::Rc;

use corosensei::Yielder;
use llmgw_router::admission::{Cells, Fault};
use llmgw_types::{BandRank, CoreId, PoolSlot};

use crate::mutants::Mutant;
use crate::world::{Job, Stop, World};

pub(crate) struct SimCells<'y> {
    pub(crate) world: Rc<World>,
    pub(crate) yielder: &'y Yielder<Job, Stop>,
    /// Whose cells these are.
    pub(crate) actor: usize,
}

impl SimCells<'_> {
    fn stop(&self) {
        // A world that is taken down runs to its end without stops.
        if !self.world.is_closing.get() {
            let _go_on = self.yielder.suspend(Stop::Access);
        }
    }
}

impl Cells for SimCells<'_> {
    fn core_count(&self) -> u32 {
        self.world.board.core_count()
    }

    fn add_load(&self, core: CoreId, pool: PoolSlot, by: i64) {
        self.stop();
        self.world.board.add_load(core, pool, by);
        self.world.truth.borrow_mut().moves(self.actor, pool, by);
    }

    fn load(&self, core: CoreId, pool: PoolSlot) -> i64 {
        self.stop();
        let load = self.world.board.load(core, pool);
        self.world.truth.borrow_mut().reads(self.actor, pool, load);
        load
    }

    fn waiting(&self, pool: PoolSlot) -> BandRank {
        self.stop();
        self.world.board.waiting(pool)
    }

    fn set_waiting(&self, pool: PoolSlot, band: BandRank) {
        self.stop();
        self.world.board.set_waiting(pool, band);
    }

    fn room(&self, pool: PoolSlot, band: BandRank) -> i32 {
        self.stop();
        self.world.board.room(pool, band)
    }

    fn set_room(&self, pool: PoolSlot, band: BandRank, room: i32) {
        self.stop();
        self.world.board.set_room(pool, band, room);
        self.world.truth.borrow_mut().room_set(pool, band, room);
    }

    fn planted(&self, fault: Fault) -> bool {
        self.world.mutant == Some(Mutant::Router(fault))
    }
}
