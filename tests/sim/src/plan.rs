//! What a world is like, drawn from its seed: how many cores and bands, how large, how bursty, which troubles how
//! often.
//!
//! Called once a world. Every number is small on purpose: faults live where few requests meet at the last place.

use llmgw_kit::chance::Chance;
use llmgw_router::admission::BandSpec;
use llmgw_router::admission::Limits;
use llmgw_router::admission::band::NEVER_WAITS_MILLI;
use llmgw_types::admission::Thresholds;

/// Pools of a world: two of the base model (the first shared with its adapter), one of another model.
pub(crate) const POOLS: usize = 3;
/// Models: the base, its adapter, another.
pub(crate) const MODELS: usize = 3;
/// Virtual nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Where arrivals come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// Many at once, then nothing for a while.
    Bursts,
    /// As in the traces of bench/data, faster.
    Trace,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cores: usize,
    /// By rank, from 1.
    pub(crate) bands: Vec<BandSpec>,
    pub(crate) thresholds: Thresholds,
    pub(crate) limits: Limits,
    pub(crate) tenants: u32,
    /// The largest cost of a request, tokens.
    pub(crate) cost_max: u32,
    pub(crate) ttl_ns: u64,
    pub(crate) lane_capacity: usize,
    pub(crate) arrivals: Arrivals,
    pub(crate) burst_max: u32,
    pub(crate) gap_ns: u64,
    pub(crate) endpoints_max: u32,
    pub(crate) batch: usize,
    pub(crate) kv_blocks: usize,
    pub(crate) scrape_ns: u64,
    /// Steps between two looks at a world in which nothing is under way.
    pub(crate) quiet_every: u64,
    /// In a thousand: how often the actor that was at work goes on.
    pub(crate) sticks: u32,
    /// One step in so many lets time pass.
    pub(crate) hurry: u32,
    /// In a thousand accesses: how often an actor stands before the next.
    pub(crate) pauses: u32,
    /// For how many steps.
    pub(crate) pause_max: u32,
    /// In a thousand steps: troubles of all kinds together.
    pub(crate) troubles: u32,
    /// In a thousand accesses within a sum.
    pub(crate) sum_pauses: u32,
    /// In a thousand steps: clients that leave while their grant is under way, if there are such.
    pub(crate) crossings: u32,
    /// In a thousand requests.
    pub(crate) leavers: u32,
    /// The longest answer, tokens.
    pub(crate) output_max: u32,
    /// Whether a core that owns a gate hears its own requests at once, in place of over a lane to itself.
    pub(crate) is_direct: bool,
    /// Whether all cores drain before the end.
    pub(crate) drains: bool,
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let mut range = |low: u32, high: u32| low + chance.below(high - low + 1);
        let cores = [1, 2, 3, 4, 5, 6][range(0, 5) as usize];
        let count = range(1, 4);
        let (mut ceiling, mut share) = (range(0, 600), range(500, 1000));
        let mut bands = Vec::new();
        for _ in 0..count {
            bands.push(BandSpec { ceiling_milli: ceiling, capacity_share_milli: share });
            ceiling += range(0, 500);
            share = (share + range(0, 500)).min(1000);
        }
        if count > 1 && range(0, 4) == 0 {
            let top = BandSpec { ceiling_milli: NEVER_WAITS_MILLI, capacity_share_milli: 1000 };
            bands.pop();
            bands.push(top);
        }
        let per_band = range(2, 12);
        let slowest = [12, 40, 120][range(0, 2) as usize];
        let gap = range(2, slowest);
        let plan = Self {
            cores,
            bands,
            thresholds: Thresholds {
                target_waiting: range(1, 3),
                kv_ceiling: range(6, 10) as f32 / 10.0,
                kv_by_band: range(0, 5) == 0,
            },
            limits: Limits { per_band, total: range(per_band, 3 * per_band), bytes: range(200, 4000).into() },
            tenants: range(1, 4),
            cost_max: [2, 2000, 8000, 30_000][range(0, 3) as usize],
            ttl_ns: [30, 200, 1_000, 4_000][range(0, 3) as usize] * MS,
            lane_capacity: [1, 2, 8, 64][range(0, 3) as usize],
            arrivals: if range(0, 2) == 0 { Arrivals::Trace } else { Arrivals::Bursts },
            burst_max: [1, 2, 4, 16][range(0, 3) as usize],
            gap_ns: u64::from(gap) * MS,
            endpoints_max: range(1, 3),
            batch: range(1, 5) as usize,
            kv_blocks: [24, 64, 512][range(0, 2) as usize],
            scrape_ns: u64::from(range(20, 120)) * MS,
            quiet_every: [40, 120, 400][range(0, 2) as usize],
            sticks: [100, 500, 800, 950][range(0, 3) as usize],
            hurry: [3, 8, 25][range(0, 2) as usize],
            pauses: [0, 30, 150, 350][range(0, 3) as usize],
            pause_max: [10, 40, 200][range(0, 2) as usize],
            troubles: [3, 10, 40][range(0, 2) as usize],
            sum_pauses: [0, 100, 300, 700][range(0, 3) as usize],
            crossings: [0, 20, 100, 400][range(0, 3) as usize],
            leavers: [0, 100, 300, 600][range(0, 3) as usize],
            output_max: 6,
            is_direct: range(0, 1) == 0,
            drains: range(0, 2) == 0,
        };
        if range(0, 3) == 0 { plan.wide() } else { plan }
    }

    /// Pools with room for many short requests that opens and shuts all the time: grants come in crowds, and requests
    /// come and go while others still look.
    fn wide(self) -> Self {
        Self {
            cores: self.cores.max(3),
            endpoints_max: 3,
            batch: 8,
            kv_blocks: 512,
            limits: Limits { per_band: 12, total: 30, bytes: 12_000 },
            burst_max: 16,
            gap_ns: 20 * MS,
            scrape_ns: 20 * MS,
            hurry: 3,
            troubles: 40,
            sticks: 500,
            pauses: 0,
            crossings: self.crossings.max(20),
            sum_pauses: self.sum_pauses.max(300),
            output_max: 1,
            ..self
        }
    }
}
