//! When a request goes: the gate of a pool, and the queue behind it.
//!
//! While there is room, [`gate`] lets a request pass on its home core with no message. Where there is none, the core
//! that owns the gate keeps the queue ([`controller`]) and grants places in the order of bands, and of tenants within a
//! band. The side runtime says how much room there is ([`band`], [`saturation`]). Reading order: [`Cells`], [`gate`],
//! [`controller`], [`queue`], [`fairness`], [`displace`], [`band`], [`saturation`], [`fault`].
//!
//! No clock, no task, no I/O: messages and `now` come in, answers go out. The same functions run over the board's
//! atomics on cores and over cells that stop at every access in the simulator.
//!
//! Invariant: the sum of a pool's load cells is what holds a place there, plus trial raises that are lowered within the
//! turn. Invariant: whoever lowers a load looks at `waiting` after it and owes the owner a nudge if somebody waits.

pub mod band;
pub mod controller;
pub mod displace;
pub mod fairness;
pub mod fault;
pub mod gate;
pub mod queue;
pub mod saturation;
pub(crate) mod slab;

use std::rc::Rc;
use std::sync::Arc;

pub use llmgw_types::admission::BANDS_MAX;
use llmgw_types::{BandRank, CoreId, PoolSlot};

pub use self::band::BandSpec;
pub use self::controller::{Answer, Controller, Progress};
pub use self::fault::Fault;
pub use self::gate::{Attempt, Gate, PoolGate, PoolPlace};
pub use self::queue::Limits;

/// Room for a band that never waits.
pub const UNBOUNDED: i32 = i32::MAX;

/// The cells of pools: one writer each, every access in one order that all cores agree on.
///
/// The board has them as sequentially consistent atomics; the simulator stops at every access to let others go on.
pub trait Cells {
    /// Cores there are, each with a load cell in every pool.
    fn core_count(&self) -> u32;
    /// Adds to what `core` counted in a pool. Owner: that core.
    fn add_load(&self, core: CoreId, pool: PoolSlot, by: i64);
    /// What `core` counted up in a pool less what it counted down. Says nothing alone: see [`sum`].
    fn load(&self, core: CoreId, pool: PoolSlot) -> i64;
    /// The highest band with somebody in the queue who may use the pool.
    fn waiting(&self, pool: PoolSlot) -> BandRank;
    /// Says who waits. Owner: the core that owns the gate.
    fn set_waiting(&self, pool: PoolSlot, band: BandRank);
    /// How many requests the pool may hold for one of that band to be the last of them.
    fn room(&self, pool: PoolSlot, band: BandRank) -> i32;
    /// Says how much room there is. Owner: the side runtime, which then looks at `waiting` and nudges.
    fn set_room(&self, pool: PoolSlot, band: BandRank, room: i32);
    /// Whether a mistake is planted. Only the simulator's cells plant any; elsewhere this is nothing at run time.
    #[inline(always)]
    fn planted(&self, _fault: Fault) -> bool {
        false
    }
}

macro_rules! cells_through {
    ($pointer:ident) => {
        impl<C: Cells> Cells for $pointer<C> {
            #[inline]
            fn core_count(&self) -> u32 {
                (**self).core_count()
            }
            #[inline]
            fn add_load(&self, core: CoreId, pool: PoolSlot, by: i64) {
                (**self).add_load(core, pool, by);
            }
            #[inline]
            fn load(&self, core: CoreId, pool: PoolSlot) -> i64 {
                (**self).load(core, pool)
            }
            #[inline]
            fn waiting(&self, pool: PoolSlot) -> BandRank {
                (**self).waiting(pool)
            }
            #[inline]
            fn set_waiting(&self, pool: PoolSlot, band: BandRank) {
                (**self).set_waiting(pool, band);
            }
            #[inline]
            fn room(&self, pool: PoolSlot, band: BandRank) -> i32 {
                (**self).room(pool, band)
            }
            #[inline]
            fn set_room(&self, pool: PoolSlot, band: BandRank, room: i32) {
                (**self).set_room(pool, band, room);
            }
            #[inline(always)]
            fn planted(&self, fault: Fault) -> bool {
                (**self).planted(fault)
            }
        }
    };
}
cells_through!(Arc);
cells_through!(Rc);

/// The load of a pool: all other cores' cells, the owner's last. A request that is counted up at the owner and down at
/// home between two reads would otherwise be missed; so the sum can only be too high.
///
/// Cost: one cache line a core.
#[inline]
pub fn sum(cells: &impl Cells, pool: PoolSlot, owner: CoreId) -> i64 {
    let others = (0..cells.core_count()).map(CoreId).filter(|core| *core != owner);
    if cells.planted(Fault::OwnersCellFirst) {
        let first = cells.load(owner, pool);
        return others.map(|core| cells.load(core, pool)).sum::<i64>() + first;
    }
    let others: i64 = others.map(|core| cells.load(core, pool)).sum();
    others + cells.load(owner, pool)
}

/// Stores new room for every band, by rank, then says whether somebody waits: the owner of the gate is to be nudged.
///
/// Owner: the side runtime.
#[must_use = "who waits is to hear of new room"]
pub fn publish_room(cells: &impl Cells, pool: PoolSlot, room: impl IntoIterator<Item = (BandRank, i32)>) -> bool {
    for (band, room) in room {
        cells.set_room(pool, band, room);
    }
    cells.waiting(pool) != BandRank::NOBODY
}
