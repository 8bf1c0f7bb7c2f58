//! A pool of busy engines to decide on: everything ready, every engine with a fresh sample of its own.

use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::endpoint::Sample;
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::session::Ring;
use llmgw_router::{Board, Dispatcher, Grant, Map, Wanted};
use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
use llmgw_types::snapshot::{Endpoint, Member, ModelName, ModelRoute, Placement, ProfileSpec, SessionSpec, Units};
use llmgw_types::{BoardSlot, CoreId, EngineKind, Pool, RouteTable, Snapshot};

/// When every decision is made.
const NOW: Mono = Mono(1_000_000_000_000);

/// The scorers of a decision, four of them.
const SCORERS: [(&str, f32); 4] = [("queue", 3.0), ("kv", 1.0), ("load", 1.0), ("inflight", 1.0)];

/// What one core decides with.
pub(crate) struct World {
    snapshot: Arc<Snapshot>,
    profiles: Vec<RoutingProfile>,
    rings: Vec<Ring>,
    dispatcher: Dispatcher,
    at: u32,
}

/// One model in one pool of `count` endpoints.
pub(crate) fn table(count: u32, picker: &str) -> RouteTable {
    let endpoint = |slot: u32| Endpoint {
        name: format!("engine-{slot}"),
        slot,
        addr: Some(([10, 0, (slot >> 8) as u8, slot as u8], 8000).into()),
        host: format!("engine-{slot}.fleet.internal:8000"),
        authorization: None,
        engine: EngineKind::Vllm,
        weight: 100,
        idle_limit_ms: 4000,
        queue_order: QueueOrder::default(),
    };
    let session = SessionSpec { header: "x-session-id".into(), load_factor: 1.25 };
    RouteTable {
        generation: 1,
        stale_after_ms: 6000,
        endpoints: (0..count).map(endpoint).collect(),
        pools: vec![Pool {
            model: 0,
            label: "none/none".into(),
            priority: 100,
            metric_row: 1,
            slot: 0,
            gate: 1,
            thresholds: Thresholds::default(),
            prefix: None,
            members: (0..count).map(|endpoint| Member { endpoint, served_as: "m0".into() }).collect(),
        }],
        models: vec![ModelRoute {
            name: "m0".into(),
            created: 0,
            pools: vec![0],
            profile: 0,
            placement: Placement { session: Some(session) },
            admission: Admission::default(),
            fallbacks: Vec::new(),
            budget_fallback: None,
            units: Units::default(),
        }],
        names: vec![ModelName { name: "m0".into(), model: 0 }],
        profiles: vec![ProfileSpec {
            name: "chat".into(),
            scorers: SCORERS.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            picker: picker.into(),
            temperature: 0.0,
        }],
    }
}

/// A board of `cores` cores on which every core has requests in flight at every endpoint.
pub(crate) fn board(count: u32, cores: u32) -> Arc<Board> {
    let board = Arc::new(Board::new(cores as usize, count as usize));
    for slot in (0..count).map(BoardSlot) {
        board.set_ready(slot, true);
        board.endpoint(slot).set_ready_since(Mono(NOW.0 / 2));
        (0..cores).for_each(|core| (0..=slot.0 % 5).for_each(|_| board.raise(CoreId(core), slot, 100 + slot.0)));
        board.endpoint(slot).set_sample(&Sample {
            running: 8 + slot.0 % 9,
            waiting: slot.0 % 3,
            kv_usage_ratio: Some(0.2 + (slot.0 % 11) as f32 / 20.0),
            drain_rate: Some(1.0 + (slot.0 % 4) as f32),
            at: Mono(NOW.0 - 1_000_000),
        });
    }
    board
}

impl World {
    /// One core of a board of `cores`.
    pub(crate) fn of(count: u32, picker: &str, cores: u32) -> Self {
        Self::on(&board(count, cores), count, picker, CoreId(0))
    }

    /// `core` of a board that exists.
    ///
    /// # Panics
    /// When the table of this file does not fit together.
    #[expect(clippy::expect_used, reason = "the table is a constant of this file")]
    pub(crate) fn on(board: &Arc<Board>, count: u32, picker: &str, core: CoreId) -> Self {
        let snapshot = Arc::new(Snapshot::of(&table(count, picker)).expect("a table that fits together"));
        let profiles = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
        let rings = Ring::all(snapshot.table());
        let scheduler = Scheduler::new(Chance::seeded(7 + u64::from(core.0)));
        Self { snapshot, profiles, rings, dispatcher: Dispatcher::new(board.clone(), core, scheduler), at: 0 }
    }

    /// One decision: picked, counted up, and counted down again when the grant is dropped.
    pub(crate) fn decide(&mut self) -> Option<Grant> {
        self.at = self.at.wrapping_add(1);
        let map = Map { table: self.snapshot.table(), rings: &self.rings, profiles: &self.profiles };
        let wanted = Wanted { tokens: 100 + self.at % 64, now: NOW, ..Wanted::default() };
        self.dispatcher.dispatch(map, &wanted, None).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_finds_an_endpoint() {
        for picker in ["p2c", "max-score"] {
            let mut world = World::of(100, picker, 2);
            assert!((0..1000).all(|_| world.decide().is_some()), "{picker}");
        }
    }
}
