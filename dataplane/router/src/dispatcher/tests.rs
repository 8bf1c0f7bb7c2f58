//! Whom requests go to, and what the board counts for them.

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
use llmgw_types::snapshot::{Endpoint, Member, ModelName, ModelRoute, Placement, Pool, ProfileSpec, Units};
use llmgw_types::{EngineKind, RouteTable, Snapshot};

use super::*;
use crate::scheduler::profile::RoutingProfile;

struct World {
    board: Arc<Board>,
    snapshot: Snapshot,
    profiles: Vec<RoutingProfile>,
    dispatcher: Dispatcher,
}

/// One model; a pool for each entry of `pools` with so many endpoints, by falling priority; all ready.
fn world(pools: &[u32], picker: &str) -> World {
    let count: u32 = pools.iter().sum();
    let mut next = 0;
    let table = RouteTable {
        generation: 1,
        endpoints: (0..count)
            .map(|slot| Endpoint {
                name: format!("e{slot}"),
                slot,
                addr: Some(([127, 0, 0, 1], 9000).into()),
                host: String::new(),
                authorization: None,
                engine: EngineKind::Sim,
                weight: 100,
                idle_limit_ms: 4000,
                queue_order: QueueOrder::default(),
            })
            .collect(),
        pools: (100..)
            .zip(pools)
            .map(|(step, &members)| {
                let first = next;
                next += members;
                Pool {
                    model: 0,
                    label: format!("none/{step}"),
                    priority: 1000 - step,
                    metric_row: 1,
                    slot: step - 100,
                    gate: 1,
                    thresholds: Thresholds::default(),
                    prefix: None,
                    members: (first..next).map(|endpoint| Member { endpoint, served_as: "m".into() }).collect(),
                }
            })
            .collect(),
        models: vec![ModelRoute {
            name: "m".into(),
            created: 0,
            pools: (0..u32::try_from(pools.len()).unwrap()).collect(),
            profile: 0,
            placement: Placement::default(),
            admission: Admission::default(),
            fallbacks: vec![],
            budget_fallback: None,
            units: Units::default(),
        }],
        names: vec![ModelName { name: "m".into(), model: 0 }],
        profiles: vec![ProfileSpec { name: "p".into(), scorers: vec![], picker: picker.into(), temperature: 0.0 }],
        ..RouteTable::default()
    };
    let snapshot = Snapshot::of(&table).unwrap();
    let board = Arc::new(Board::new(1, count as usize));
    (0..count).for_each(|slot| board.set_ready(BoardSlot(slot), true));
    let profiles = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
    let dispatcher = Dispatcher::new(board.clone(), CoreId(0), Scheduler::new(Chance::seeded(5)));
    World { board, snapshot, profiles, dispatcher }
}

impl World {
    fn dispatch(&mut self, excluded: &[u32]) -> Result<Grant, NoEndpoint> {
        let excluded: Vec<BoardSlot> = excluded.iter().copied().map(BoardSlot).collect();
        self.dispatch_as(&Wanted { excluded: &excluded, tokens: 100, ..Wanted::default() })
    }

    fn dispatch_as(&mut self, wanted: &Wanted<'_>) -> Result<Grant, NoEndpoint> {
        let map = Map { table: self.snapshot.table(), rings: &[], profiles: &self.profiles };
        self.dispatcher.dispatch(map, wanted, None)
    }

    fn loads(&self) -> Vec<i64> {
        (0..self.board.slot_count()).map(|slot| self.board.in_flight(BoardSlot(slot as u32))).collect()
    }
}

#[test]
fn a_request_passes_the_first_gate_with_room_and_somebody_to_serve_it() {
    let mut world = world(&[1, 1, 1], "p2c");
    let gate = Gate::new(world.board.clone(), CoreId(0), || {});
    let band = BandRank(1);
    (0..3).for_each(|pool| world.board.set_room(PoolSlot(pool), band, 1));
    world.board.set_ready(BoardSlot(1), false);
    let admit = |world: &mut World| {
        let map = Map { table: world.snapshot.table(), rings: &[], profiles: &world.profiles };
        let at = AtGate { gate: &gate, band, owner_of: |_, _| CoreId(0) };
        world.dispatcher.admit(map, &Wanted::default(), at, None)
    };
    let held: Vec<_> = (0..2).map(|_| admit(&mut world).ok().unwrap()).collect();
    assert_eq!(held.iter().map(|(grant, _)| grant.pool.0).collect::<Vec<_>>(), [0, 2]);
    let Err(Held::Shut(attempt)) = admit(&mut world) else { panic!("no room is left") };
    assert_eq!(attempt.shut().iter().map(|pool| pool.slot.0).collect::<Vec<_>>(), [0, 2], "1 could not serve it");
    drop(attempt);
    assert_eq!((0..3).map(|pool| world.board.pool_load(PoolSlot(pool))).collect::<Vec<_>>(), [1, 0, 1]);
    // Another try in the same pool keeps the place in it.
    let map = Map { table: world.snapshot.table(), rings: &[], profiles: &world.profiles };
    let again = world.dispatcher.dispatch_in(map, &Wanted::default(), &held[1].1, None).unwrap();
    assert_eq!((again.pool, world.board.pool_load(PoolSlot(2))), (PoolIdx(2), 1));
    drop((held, again));
    (0..3).for_each(|slot| world.board.set_ready(BoardSlot(slot), false));
    assert!(matches!(admit(&mut world), Err(Held::NoEndpoint)));
    assert_eq!((0..3).map(|pool| world.board.pool_load(PoolSlot(pool))).sum::<i64>(), 0);
}

#[test]
fn requests_spread_evenly_under_both_pickers() {
    for (picker, widest) in [("max-score", 1), ("p2c", 4)] {
        let mut world = world(&[5], picker);
        let grants: Vec<Grant> = (0..100).map(|_| world.dispatch(&[]).unwrap()).collect();
        let loads = world.loads();
        let gap = loads.iter().max().unwrap() - loads.iter().min().unwrap();
        assert!(gap <= widest, "{picker}: {loads:?}");
        drop(grants);
        assert_eq!(world.loads(), vec![0; 5]);
    }
}

#[test]
fn an_endpoint_that_is_not_ready_or_was_tried_gets_nothing() {
    let mut world = world(&[3], "max-score");
    world.board.set_ready(BoardSlot(1), false);
    for _ in 0..50 {
        let grant = world.dispatch(&[2]).unwrap();
        assert_eq!(grant.slot, BoardSlot(0));
    }
    world.board.set_ready(BoardSlot(0), false);
    assert!(matches!(world.dispatch(&[2]), Err(NoEndpoint)));
}

#[test]
fn the_last_resort_is_the_one_that_comes_back_first_of_those_that_are_ready() {
    let mut world = world(&[2, 2], "p2c");
    let out = |world: &World, slot, until| {
        world.board.endpoint(BoardSlot(slot)).set_breaker(crate::endpoint::BreakerState::Open, Mono(until));
    };
    for (slot, until) in [(0, 900), (1, 700), (2, 800), (3, 600)] {
        out(&world, slot, until);
    }
    world.board.set_ready(BoardSlot(3), false);
    assert!(matches!(world.dispatch(&[]), Err(NoEndpoint)));
    let mut resort = |excluded: &[u32]| {
        let excluded: Vec<BoardSlot> = excluded.iter().copied().map(BoardSlot).collect();
        let map = Map { table: world.snapshot.table(), rings: &[], profiles: &world.profiles };
        let wanted = Wanted { excluded: &excluded, ..Wanted::default() };
        world.dispatcher.last_resort(map, &wanted).map(|grant| (grant.slot.0, grant.pool.0)).ok()
    };
    assert_eq!(resort(&[]), Some((1, 0)));
    assert_eq!(resort(&[1]), Some((2, 1)));
    assert_eq!(resort(&[0, 1, 2]), None);
    assert_eq!(world.loads(), vec![0; 4]);
}

#[test]
fn the_next_pool_serves_only_when_the_first_has_nobody() {
    let mut world = world(&[1, 2], "p2c");
    assert_eq!(world.dispatch(&[]).unwrap().pool, PoolIdx(0));
    world.board.set_ready(BoardSlot(0), false);
    assert_eq!(world.dispatch(&[]).unwrap().pool, PoolIdx(1));
}

#[test]
fn ties_among_idle_endpoints_are_shared_evenly() {
    for picker in ["max-score", "p2c"] {
        let mut world = world(&[8], picker);
        let mut seen = [0u32; 8];
        for _ in 0..10_000 {
            // The place is given back at once, so every pick is among equals.
            seen[world.dispatch(&[]).unwrap().slot.idx()] += 1;
        }
        assert!(seen.iter().all(|&n| (1_100..=1_400).contains(&n)), "{picker}: {seen:?}");
    }
}

#[test]
fn a_heavier_endpoint_takes_its_share_and_long_prompts_count_for_more() {
    let mut world = world(&[2], "max-score");
    let heavy = world.dispatch_as(&Wanted { tokens: 100_000, ..Wanted::default() }).unwrap();
    let small: Vec<Grant> = (0..50).map(|_| world.dispatch(&[]).unwrap()).collect();
    assert!(small.iter().all(|grant| grant.slot != heavy.slot));
}
