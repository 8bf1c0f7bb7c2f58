//! Sessions: one engine each, within the bound, and what happens when it is out.

use std::collections::HashSet;
use std::time::Duration;

use llmgw_router::endpoint::BreakerState;
use llmgw_router::scheduler::run::Seat;
use llmgw_router::session::key_hash;
use llmgw_router::{Grant, Wanted};
use llmgw_types::BoardSlot;

use crate::world::{NOW, World, table, wanted};

fn of(session: &str) -> Wanted<'static> {
    Wanted { session: Some(key_hash(session.as_bytes())), ..wanted() }
}

#[test]
fn a_session_stays_on_one_engine_whichever_core_serves_it() {
    let mut world = World::of(&table(&[&[8]], &[("queue", 1.0), ("kv", 1.0)], "p2c", 0.0), 4);
    let mut used = HashSet::new();
    for session in (0..50).map(|at| format!("session {at}")) {
        let slots: HashSet<_> = (0..40).map(|at| world.dispatch(at % 4, &of(&session)).unwrap().slot).collect();
        assert_eq!(slots.len(), 1, "{session}");
        used.extend(slots);
    }
    assert!(used.len() >= 7, "{used:?}");
}

#[test]
fn a_full_engine_passes_its_sessions_on_and_gets_them_back() {
    let mut world = World::pool(4, &[], "p2c");
    let home = world.dispatch(0, &of("s")).unwrap().slot;
    let held: Vec<Grant> = (0..40).map(|_| world.dispatch(0, &of("s")).unwrap()).collect();
    let loads: Vec<i64> = (0..4).map(|slot| world.board.in_flight(BoardSlot(slot))).collect();
    // 40 requests, 10 each on average: nobody above 12.5, rounded up.
    assert!(loads.iter().all(|&load| load <= 13) && loads[home.idx()] >= 10, "{loads:?}");
    drop(held);
    assert_eq!(world.dispatch(0, &of("s")).unwrap().slot, home);
}

#[test]
fn a_session_that_went_away_stays_there_while_there_is_room() {
    let mut world = World::pool(4, &[], "p2c");
    let own = world.dispatch(0, &of("s")).unwrap();
    assert_eq!(own.seat, Seat::Own);
    let _second = world.dispatch(0, &of("s")).unwrap();
    let third = world.dispatch(0, &of("s")).unwrap();
    assert!(third.seat == Seat::Away && third.slot != own.slot);
    let (away, own_slot) = (third.slot, own.slot);
    drop((own, _second, third));
    let at = |away| Wanted { away: Some(away), ..of("s") };
    let seat = |world: &mut World, wanted: &Wanted<'_>| {
        let grant = world.dispatch(0, wanted).unwrap();
        (grant.slot, grant.seat)
    };
    assert_eq!(seat(&mut world, &at(away)), (away, Seat::Away), "also when its own engine has room again");
    assert_eq!(seat(&mut world, &at(own_slot)), (own_slot, Seat::Own));
    assert_eq!(seat(&mut world, &at(BoardSlot(77))), (own_slot, Seat::Own), "gone");
    world.board.set_ready(away, false);
    assert_eq!(seat(&mut world, &at(away)), (own_slot, Seat::Own), "out");
    world.board.set_ready(away, true);
    (0..2).for_each(|_| world.board.raise(llmgw_types::CoreId(0), away, 1));
    assert_eq!(seat(&mut world, &at(away)), (own_slot, Seat::Own), "full");
    assert_eq!(seat(&mut world, &wanted()).1, Seat::Unasked);
}

#[test]
fn an_engine_that_is_out_moves_its_sessions_only() {
    let mut world = World::pool(5, &[], "p2c");
    let names: Vec<String> = (0..200).map(|at| format!("session {at}")).collect();
    let before: Vec<u32> = names.iter().map(|name| world.slot(&of(name)).unwrap()).collect();
    world.board.endpoint(BoardSlot(2)).set_breaker(BreakerState::Open, NOW + Duration::from_secs(5));
    for (name, before) in names.iter().zip(&before) {
        let slot = world.slot(&of(name)).unwrap();
        assert!(slot != 2 && (*before == 2 || slot == *before), "{name}: {before} to {slot}");
    }
    world.board.endpoint(BoardSlot(2)).set_breaker(BreakerState::Closed, NOW);
    let after: Vec<u32> = names.iter().map(|name| world.slot(&of(name)).unwrap()).collect();
    assert_eq!(before, after);
}

#[test]
fn sessions_are_not_followed_in_turn_nor_where_they_are_off() {
    let mut world = World::pool(4, &[], "round-robin");
    assert_eq!(world.shares(400, &of("s")), [100; 4]);
    let mut off = table(&[&[4]], &[], "p2c", 0.0);
    off.models[0].placement.session = None;
    let shares = World::of(&off, 1).shares(400, &of("s"));
    assert!(shares.iter().all(|n| (50..=150).contains(n)), "{shares:?}");
}

#[test]
fn a_profile_that_names_sessions_weighs_them_against_the_rest() {
    for (picker, weight, stays) in [("p2c", 0.5, false), ("p2c", 3.0, true), ("max-score", 3.0, true)] {
        let mut world = World::pool(6, &[("session", weight), ("inflight", 1.0)], picker);
        let home = world.slot(&of("s")).unwrap();
        // Every engine holds a request, so that none is over the bound, and the session's own a long one: inflight says
        // 0 there and almost 1 elsewhere.
        for slot in 0..6 {
            let tokens = if slot == home { 100_000 } else { 0 };
            world.board.raise(llmgw_types::CoreId(0), BoardSlot(slot), tokens);
        }
        let seen = world.shares(200, &of("s"));
        assert_eq!(seen[home as usize] == 200, stays, "{picker} {weight}: {seen:?}");
    }
}
