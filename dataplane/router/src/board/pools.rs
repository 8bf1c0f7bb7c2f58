//! The gate's cells of every pool: loads by core, who waits, how much room there is. Sequentially consistent, since the
//! gate rests on one order of all accesses (`crate::admission`).

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};

use llmgw_types::{BandRank, CoreId, PoolSlot};

use super::Board;
use crate::admission::{BANDS_MAX, Cells};

/// Pools a board has room for. A table that needs more is refused when it is published.
pub const POOL_SLOTS_MAX: usize = 4096;

/// Loads on one cache line pair, all of one core.
const IN_LINE: usize = 16;

#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicI64; IN_LINE]);

/// What one core counted, by pool. Writer: that core.
pub(super) struct CoreLoads(Box<[Line]>);

impl Default for CoreLoads {
    fn default() -> Self {
        Self((0..POOL_SLOTS_MAX / IN_LINE).map(|_| Line::default()).collect())
    }
}

impl CoreLoads {
    fn at(&self, pool: PoolSlot) -> &AtomicI64 {
        &self.0[pool.idx() / IN_LINE].0[pool.idx() % IN_LINE]
    }
}

/// One pool's other cells, alone on their cache lines.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct PoolCells {
    /// The highest band with somebody in the queue. Writer: the core that owns the gate.
    waiting: AtomicU32,
    /// By band; the first is nobody's. Writer: the side runtime.
    room: [AtomicI32; BANDS_MAX + 1],
}

impl PoolCells {
    /// As for a pool nobody has heard of. Its loads need nothing: they add up to zero.
    pub(super) fn clear(&self) {
        self.waiting.store(0, Ordering::SeqCst);
        self.room.iter().for_each(|room| room.store(0, Ordering::SeqCst));
    }
}

impl Board {
    /// Requests that hold a place in a pool, over all cores: never below the truth once nobody counts up there, and
    /// for pages at any time. The gate sums in an order of its own. Cost: one cache line a core.
    pub fn pool_load(&self, pool: PoolSlot) -> i64 {
        self.cores.iter().map(|row| row.pools.at(pool).load(Ordering::SeqCst)).sum()
    }
}

impl Cells for Board {
    fn core_count(&self) -> u32 {
        self.cores.len() as u32
    }

    #[inline]
    fn add_load(&self, core: CoreId, pool: PoolSlot, by: i64) {
        let cell = self.cores[core.idx()].pools.at(pool);
        // One writer a cell: what it holds is known without an order.
        cell.store(cell.load(Ordering::Relaxed) + by, Ordering::SeqCst);
    }

    #[inline]
    fn load(&self, core: CoreId, pool: PoolSlot) -> i64 {
        self.cores[core.idx()].pools.at(pool).load(Ordering::SeqCst)
    }

    #[inline]
    fn waiting(&self, pool: PoolSlot) -> BandRank {
        BandRank(self.pools[pool.idx()].waiting.load(Ordering::SeqCst) as u8)
    }

    fn set_waiting(&self, pool: PoolSlot, band: BandRank) {
        self.pools[pool.idx()].waiting.store(band.0.into(), Ordering::SeqCst);
    }

    #[inline]
    fn room(&self, pool: PoolSlot, band: BandRank) -> i32 {
        self.pools[pool.idx()].room[band.idx()].load(Ordering::SeqCst)
    }

    fn set_room(&self, pool: PoolSlot, band: BandRank, room: i32) {
        self.pools[pool.idx()].room[band.idx()].store(room, Ordering::SeqCst);
    }
}
