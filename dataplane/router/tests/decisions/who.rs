//! Who may get a request: breaker, cooldown, drain, pins.

use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_router::endpoint::BreakerState;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::{Place, Wanted};
use llmgw_types::{BoardSlot, PoolIdx};

use crate::world::{NOW, World, table, wanted};

const LATER: Mono = Mono(NOW.0 + 1);

#[test]
fn an_endpoint_that_cools_down_or_is_open_gets_nothing_until_its_time_is_up() {
    for (state, at_its_time) in
        [(BreakerState::Closed, Some(0)), (BreakerState::Open, Some(0)), (BreakerState::HalfOpen, Some(0))]
    {
        let mut world = World::pool(1, &[], "max-score");
        world.board.endpoint(BoardSlot(0)).set_breaker(state, LATER);
        assert_eq!(world.slot(&wanted()), None, "{state:?}");
        assert_eq!(world.slot(&Wanted { now: LATER, ..wanted() }), at_its_time, "{state:?}");
    }
}

#[test]
fn a_draining_endpoint_takes_no_new_work() {
    let mut world = World::pool(2, &[], "p2c");
    world.board.endpoint(BoardSlot(1)).set_draining(true);
    assert_eq!(world.shares(20, &wanted()), [20, 0]);
    world.board.endpoint(BoardSlot(1)).set_draining(false);
    assert!(world.shares(100, &wanted())[1] > 0);
}

#[test]
fn a_pinned_request_goes_to_its_endpoint_or_nowhere() {
    let mut world = World::of(&table(&[&[2, 2]], &[], "p2c", 0.0), 1);
    let pinned = Wanted { pinned: Some(BoardSlot(3)), ..wanted() };
    let grant = world.dispatch(0, &pinned).unwrap();
    assert_eq!((grant.slot, grant.pool), (BoardSlot(3), PoolIdx(1)), "also in a pool that is not the first");
    drop(grant);
    world.board.endpoint(BoardSlot(3)).set_breaker(BreakerState::Closed, NOW + Duration::from_secs(9));
    assert_eq!(world.slot(&pinned), None, "cooling");
    assert_eq!(world.slot(&Wanted { pinned: Some(BoardSlot(77)), ..wanted() }), None, "gone");
    assert_eq!(world.last_resort(&pinned), Some(3), "better a try than a refusal");
    assert_eq!(world.last_resort(&Wanted { pinned: Some(BoardSlot(77)), ..wanted() }), None);
    assert_eq!(world.slot(&Wanted { pinned: Some(BoardSlot(2)), ..wanted() }), Some(2));
}

#[test]
fn what_filters_dropped_is_counted_and_told() {
    let mut world = World::pool(5, &[], "max-score");
    world.board.set_ready(BoardSlot(0), false);
    world.board.endpoint(BoardSlot(1)).set_draining(true);
    world.board.endpoint(BoardSlot(2)).set_breaker(BreakerState::Open, LATER);
    let mut explanation = Explanation::default();
    let excluded = [BoardSlot(3)];
    let grant = world.explain(0, &Wanted { excluded: &excluded, ..wanted() }, Some(&mut explanation)).unwrap();
    assert_eq!(grant.slot, BoardSlot(4));
    let tally = world.cores[0].take_tally();
    assert_eq!((tally.considered, tally.filtered), (5, [1, 1, 1, 1, 0]));
    assert_eq!(world.cores[0].take_tally().considered, 0, "told once");
    let said: Vec<_> = explanation.pools[0].candidates.iter().map(|candidate| candidate.dropped_by).collect();
    assert_eq!(said, [Some("ready"), Some("draining"), Some("breaker"), Some("excluded"), None]);
}

#[test]
fn whatever_ends_a_request_its_place_goes_down_once() {
    let mut world = World::of(&table(&[&[3]], &[], "p2c", 0.0), 2);
    let mut chance = llmgw_kit::chance::Chance::seeded(9);
    let mut open: Vec<Place> = Vec::new();
    for _ in 0..100_000 {
        let core = chance.below(2) as usize;
        if let Ok(grant) = world.dispatch(core, &Wanted { tokens: chance.below(9000), ..wanted() }) {
            open.push(grant.place);
        }
        if open.len() > 64 {
            open.swap_remove(chance.below(65) as usize);
        }
        let sums = (0..3).map(|slot| world.board.in_flight(BoardSlot(slot)));
        assert!(sums.clone().all(|sum| sum >= 0) && sums.sum::<i64>() == open.len() as i64);
    }
    open.clear();
    for slot in (0..3).map(BoardSlot) {
        assert_eq!((world.board.in_flight(slot), world.board.tokens_in_flight(slot)), (0, 0));
    }
}

#[test]
fn a_decision_that_explains_itself_is_the_same_and_counts_the_same() {
    let world = || {
        let mut world = World::pool(40, &[("queue", 1.0), ("load", 1.0)], "p2c");
        for slot in 0..40 {
            let cells = world.board.endpoint(BoardSlot(slot));
            world.board.set_ready(BoardSlot(slot), slot % 7 != 0);
            cells.set_draining(slot % 5 == 0);
            cells.set_breaker(BreakerState::Closed, if slot % 11 == 0 { LATER } else { NOW });
        }
        world.cores[0].take_tally();
        world
    };
    let (mut plain, mut explained) = (world(), world());
    for turn in 0..200 {
        let excluded = [BoardSlot(turn % 40), BoardSlot(turn % 13)];
        let pinned = (turn % 9 == 0).then_some(BoardSlot(turn % 40));
        let wanted = Wanted { excluded: &excluded, pinned, ..wanted() };
        let grant = explained.explain(0, &wanted, Some(&mut Explanation::default()));
        assert_eq!(plain.slot(&wanted), grant.ok().map(|grant| grant.slot.0), "{turn}");
        assert_eq!(plain.cores[0].take_tally(), explained.cores[0].take_tally(), "{turn}");
    }
}
