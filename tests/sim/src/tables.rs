//! Route tables of a world: which pools and endpoints there are, made into snapshots as the side runtime makes them.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_types::admission::{Admission, QueueOrder};
use llmgw_types::snapshot::{Endpoint, Member, ModelName, ModelRoute, Placement, Pool, ProfileSpec, Units};
use llmgw_types::{BoardSlot, EngineKind, PoolSlot, RouteTable, Snapshot};

use crate::plan::{MODELS, POOLS, Plan};

/// An endpoint for its life: its slot may be another's later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) instance: usize,
    pub(crate) slot: BoardSlot,
    /// The first table it is in.
    pub(crate) since: u64,
}

/// A pool that is there.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) slot: PoolSlot,
    pub(crate) members: Vec<Joined>,
}

/// One publication, as cores take it.
pub(crate) struct Publication {
    pub(crate) generation: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) profiles: Vec<RoutingProfile>,
    /// Instances by the table's endpoint rows.
    pub(crate) instances: Vec<usize>,
    /// With the gate of each.
    pools: BTreeMap<PoolSlot, u64>,
    members: BTreeSet<(PoolSlot, BoardSlot)>,
}

impl Publication {
    /// Whether a pool of that gate is in the table.
    pub(crate) fn knows(&self, gate: u64, pool: PoolSlot) -> bool {
        self.pools.get(&pool) == Some(&gate)
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = PoolSlot> + '_ {
        self.pools.keys().copied()
    }

    /// Whether a request at that endpoint counts in that pool.
    pub(crate) fn counts(&self, pool: PoolSlot, endpoint: BoardSlot) -> bool {
        !self.pools.contains_key(&pool) || self.members.contains(&(pool, endpoint))
    }
}

/// The gate that a pool belongs to: the base model's first two, the other's third.
pub(crate) fn gate_of(pool: usize) -> u64 {
    if pool < 2 { 1 } else { 2 }
}

/// The gate of a model's pools.
pub(crate) fn gate_of_model(model: u32) -> u64 {
    gate_of(ROUTES[model as usize][0])
}

/// Pools of each model, in order of preference.
const ROUTES: [&[usize]; MODELS] = [&[0, 1], &[0], &[2]];

/// The core that keeps a gate's queue.
pub(crate) fn owner_of(gate: u64, cores: u32) -> llmgw_types::CoreId {
    llmgw_types::CoreId(gate as u32 % cores)
}

/// A publication of these pools.
pub(crate) fn publication(generation: u64, pools: &[Option<Shape>; POOLS], plan: &Plan) -> Publication {
    let mut table = RouteTable {
        generation,
        stale_after_ms: 6000,
        profiles: vec![ProfileSpec { name: "p".into(), scorers: vec![], picker: "p2c".into(), temperature: 0.0 }],
        ..RouteTable::default()
    };
    let mut instances = Vec::new();
    let (mut known, mut members) = (BTreeMap::new(), BTreeSet::new());
    let mut rows = [None; POOLS];
    for (at, pool) in pools.iter().enumerate() {
        let Some(pool) = pool.as_ref().filter(|pool| !pool.members.is_empty()) else { continue };
        known.insert(pool.slot, gate_of(at));
        let first = table.endpoints.len() as u32;
        for member in &pool.members {
            members.insert((pool.slot, member.slot));
            instances.push(member.instance);
            table.endpoints.push(Endpoint {
                name: format!("e{}", member.instance),
                slot: member.slot.0,
                addr: Some(([127, 0, 0, 1], 9000).into()),
                host: String::new(),
                authorization: None,
                engine: EngineKind::Sim,
                weight: 100,
                idle_limit_ms: 4000,
                queue_order: QueueOrder::Arrival,
            });
        }
        rows[at] = Some((first, pool.members.len() as u32, pool.slot));
    }
    for (model, route) in (0u32..).zip(ROUTES) {
        let mut pools = Vec::new();
        for &at in route {
            let Some((first, count, slot)) = rows[at] else { continue };
            pools.push(table.pools.len() as u32);
            table.pools.push(Pool {
                model,
                label: format!("none/{at}"),
                priority: 100 - at as u32,
                metric_row: table.pools.len() as u32 + 1,
                slot: slot.0,
                gate: gate_of(at),
                thresholds: plan.thresholds.clone(),
                prefix: None,
                members: (first..first + count).map(|endpoint| Member { endpoint, served_as: "m".into() }).collect(),
            });
        }
        table.models.push(ModelRoute {
            name: format!("m{model}"),
            created: 0,
            pools,
            profile: 0,
            placement: Placement::default(),
            admission: Admission::default(),
            fallbacks: Vec::new(),
            budget_fallback: None,
            units: Units::default(),
        });
        table.names.push(ModelName { name: format!("m{model}"), model });
    }
    let snapshot = Snapshot::of(&table).expect("a table that fits together");
    let profiles = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
    Publication { generation, snapshot, profiles, instances, pools: known, members }
}
