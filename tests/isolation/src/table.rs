//! The route table of a case: one model on one engine, two bands.

use llmgw_types::admission::{Band, QueueOrder, Thresholds};
use llmgw_types::snapshot::{Endpoint, EngineAddr, Member, ModelName, ModelRoute, Placement, ProfileSpec, Units};
use llmgw_types::{BandRank, BoardSlot, EngineKind as Kind, Pool, PoolSlot, RouteTable};

use crate::case::Case;

pub(crate) const GATE: u64 = 0;
pub(crate) const POOL: PoolSlot = PoolSlot(0);
pub(crate) const SLOT: BoardSlot = BoardSlot(0);
/// The bands: bronze, and platinum above it, as configured by default but for the first one's share.
pub(crate) const BRONZE: BandRank = BandRank(1);
pub(crate) const PLATINUM: BandRank = BandRank(2);

/// The table that cores work with.
pub(crate) fn table(case: &Case) -> RouteTable {
    let band = |name: &str, priority, saturation_ceiling, capacity_share| Band {
        name: name.to_owned(),
        priority,
        metric_row: 0,
        saturation_ceiling,
        capacity_share,
    };
    let bands = vec![
        band("bronze", 100, if case.takes_out { 0.0 } else { 0.30 }, case.share),
        band("platinum", 400, case.high_ceiling, 1.0),
    ];
    let admission = llmgw_types::admission::Admission { bands, ..Default::default() };
    RouteTable {
        generation: 1,
        stale_after_ms: 6000,
        endpoints: vec![Endpoint {
            name: "engine".into(),
            slot: SLOT.0,
            addr: Some(EngineAddr::Unix("engine.sock".into())),
            host: String::new(),
            authorization: None,
            engine: Kind::Sim,
            weight: 100,
            idle_limit_ms: 4000,
            queue_order: QueueOrder::LowestFirst,
        }],
        pools: vec![Pool {
            model: 0,
            label: "none/unknown".into(),
            priority: 100,
            metric_row: 1,
            slot: POOL.0,
            gate: GATE,
            thresholds: Thresholds::default(),
            prefix: None,
            members: vec![Member { endpoint: 0, served_as: "m".into() }],
        }],
        models: vec![ModelRoute {
            name: "m".into(),
            created: 1,
            pools: vec![0],
            profile: 0,
            placement: Placement::default(),
            admission,
            fallbacks: vec![],
            budget_fallback: None,
            units: Units::default(),
        }],
        names: vec![ModelName { name: "m".into(), model: 0 }],
        profiles: vec![ProfileSpec { name: "chat".into(), scorers: vec![], picker: "p2c".into(), temperature: 0.0 }],
    }
}
