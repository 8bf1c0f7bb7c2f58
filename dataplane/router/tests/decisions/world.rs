//! A table, a board and dispatchers for tests: models with pools of endpoints that are all ready.

use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::session::Ring;
use llmgw_router::{Board, Dispatcher, Grant, Map, NoEndpoint, Wanted};
use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
use llmgw_types::snapshot::{
    Endpoint, Member, ModelName, ModelRoute, Placement, PrefixSpec, ProfileSpec, SessionSpec, Units,
};
use llmgw_types::{BoardSlot, CoreId, EngineKind, Pool, RouteTable, Snapshot};

/// When everything happens, unless a test says otherwise.
pub(crate) const NOW: Mono = Mono(1_000_000_000_000);

pub(crate) struct World {
    pub(crate) board: Arc<Board>,
    pub(crate) snapshot: Snapshot,
    pub(crate) profiles: Vec<RoutingProfile>,
    pub(crate) rings: Vec<Ring>,
    pub(crate) cores: Vec<Dispatcher>,
}

/// A table of one profile, picker with temperature, in which each model has pools of so many endpoints.
pub(crate) fn table(models: &[&[u32]], scorers: &[(&str, f32)], picker: &str, temperature: f32) -> RouteTable {
    let mut table = RouteTable {
        generation: 1,
        stale_after_ms: 6000,
        profiles: vec![ProfileSpec {
            name: "p".into(),
            scorers: scorers.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            picker: picker.into(),
            temperature,
        }],
        ..RouteTable::default()
    };
    for (model, pools) in (0u32..).zip(models) {
        let mut rows = Vec::new();
        for (step, &count) in (0u32..).zip(*pools) {
            let first = table.endpoints.len() as u32;
            table.endpoints.extend((first..first + count).map(|slot| Endpoint {
                name: format!("e{slot}"),
                slot,
                addr: Some(([127, 0, 0, 1], 9000).into()),
                host: String::new(),
                authorization: None,
                engine: EngineKind::Sim,
                weight: 100,
                idle_limit_ms: 4000,
                queue_order: QueueOrder::default(),
            }));
            rows.push(table.pools.len() as u32);
            table.pools.push(Pool {
                model,
                label: format!("none/{step}"),
                priority: 100 - step,
                metric_row: table.pools.len() as u32 + 1,
                slot: table.pools.len() as u32,
                gate: u64::from(model) + 1,
                thresholds: Thresholds::default(),
                prefix: Some(PrefixSpec::default()),
                members: (first..first + count).map(|endpoint| Member { endpoint, served_as: "m".into() }).collect(),
            });
        }
        let session = Some(SessionSpec { header: "x-session-id".into(), load_factor: 1.25 });
        let placement = Placement { session };
        table.models.push(ModelRoute {
            name: format!("m{model}"),
            created: 0,
            pools: rows,
            profile: 0,
            placement,
            admission: Admission::default(),
            fallbacks: Vec::new(),
            budget_fallback: None,
            units: Units::default(),
        });
        table.names.push(ModelName { name: format!("m{model}"), model });
    }
    table
}

impl World {
    /// Everything ready, `cores` cores with seeds of their own.
    pub(crate) fn of(table: &RouteTable, cores: u32) -> Self {
        let snapshot = Snapshot::of(table).unwrap();
        let board = Arc::new(Board::new(cores as usize, table.endpoints.len()));
        (0..table.endpoints.len() as u32).for_each(|slot| board.set_ready(BoardSlot(slot), true));
        let profiles = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
        let rings = Ring::all(snapshot.table());
        let dispatcher = |core: u32| {
            let scheduler = Scheduler::new(Chance::seeded(u64::from(core) * 77 + 5));
            Dispatcher::new(board.clone(), CoreId(core), scheduler)
        };
        let cores = (0..cores).map(dispatcher).collect();
        Self { board, snapshot, profiles, rings, cores }
    }

    /// One model, one pool, one core.
    pub(crate) fn pool(count: u32, scorers: &[(&str, f32)], picker: &str) -> Self {
        Self::of(&table(&[&[count]], scorers, picker, 0.0), 1)
    }

    pub(crate) fn dispatch(&mut self, core: usize, wanted: &Wanted<'_>) -> Result<Grant, NoEndpoint> {
        self.explain(core, wanted, None)
    }

    pub(crate) fn explain(
        &mut self,
        core: usize,
        wanted: &Wanted<'_>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Grant, NoEndpoint> {
        let map = Map { table: self.snapshot.table(), rings: &self.rings, profiles: &self.profiles };
        self.cores[core].dispatch(map, wanted, explanation)
    }

    /// The slot of a request that ends at once; `None` when nobody may get it.
    pub(crate) fn slot(&mut self, wanted: &Wanted<'_>) -> Option<u32> {
        self.dispatch(0, wanted).ok().map(|grant| grant.slot.0)
    }

    /// The same for one that would find nobody.
    pub(crate) fn last_resort(&mut self, wanted: &Wanted<'_>) -> Option<u32> {
        let map = Map { table: self.snapshot.table(), rings: &self.rings, profiles: &self.profiles };
        self.cores[0].last_resort(map, wanted).ok().map(|grant| grant.slot.0)
    }

    /// How often each slot gets one of `count` requests that end at once.
    pub(crate) fn shares(&mut self, count: usize, wanted: &Wanted<'_>) -> Vec<u32> {
        let mut seen = vec![0; self.board.slot_count()];
        for _ in 0..count {
            let slot = self.slot(wanted).expect("somebody takes it");
            seen[slot as usize] += 1;
        }
        seen
    }
}

/// A request to the first model.
pub(crate) fn wanted() -> Wanted<'static> {
    Wanted { tokens: 100, now: NOW, ..Wanted::default() }
}
