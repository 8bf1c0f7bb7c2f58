//! How requests spread among equals, over cores and over models.

use llmgw_router::Wanted;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_types::BoardSlot;

use crate::world::{World, table, wanted};

#[test]
fn two_models_in_turn_each_use_both_of_their_engines() {
    for picker in ["round-robin", "p2c", "max-score"] {
        let mut world = World::of(&table(&[&[2], &[2]], &[], picker, 0.0), 1);
        let mut seen = [0u32; 4];
        for at in 0..10_000 {
            let slot = world.slot(&Wanted { model: at % 2, ..wanted() }).unwrap();
            seen[slot as usize] += 1;
        }
        let margin = if picker == "round-robin" { 0 } else { 150 };
        assert!(seen.iter().all(|n| n.abs_diff(2_500) <= margin), "{picker}: {seen:?}");
    }
}

#[test]
fn ties_among_eight_engines_are_even_over_all_cores() {
    for (picker, temperature) in [("p2c", 0.0), ("max-score", 0.0), ("softmax", 0.2), ("softmax", 0.0)] {
        let mut world = World::of(&table(&[&[8]], &[("queue", 1.0), ("kv", 1.0)], picker, temperature), 16);
        let mut seen = [0u32; 8];
        for at in 0..10_000 {
            seen[world.dispatch(at % 16, &wanted()).unwrap().slot.idx()] += 1;
        }
        assert!(seen.iter().all(|n| (1_100..=1_400).contains(n)), "{picker} {temperature}: {seen:?}");
    }
}

#[test]
fn cores_that_go_in_turn_do_not_begin_together() {
    let mut world = World::of(&table(&[&[8]], &[], "round-robin", 0.0), 16);
    let first: std::collections::HashSet<_> =
        (0..16).map(|core| world.dispatch(core, &wanted()).unwrap().slot).collect();
    assert!(first.len() >= 4, "{first:?}");
    // Each of them is even by itself.
    let mut seen = [0u32; 8];
    (0..8_000).for_each(|_| seen[world.dispatch(0, &wanted()).unwrap().slot.idx()] += 1);
    assert_eq!(seen, [1_000; 8]);
}

#[test]
fn endpoints_share_by_weight_when_idle() {
    for picker in ["max-score", "p2c", "softmax"] {
        let mut table = table(&[&[2]], &[], picker, 0.1);
        table.endpoints[1].weight = 25;
        let shares = World::of(&table, 1).shares(10_000, &wanted());
        assert!((1_850..=2_150).contains(&shares[1]), "{picker}: {shares:?}");
    }
}

#[test]
fn softmax_draws_by_score_and_a_higher_temperature_spreads_more() {
    let share = |temperature| {
        let mut world = World::of(&table(&[&[2]], &[("inflight", 1.0)], "softmax", temperature), 1);
        // The first holds a request for good: scores 0 and 1.
        world.board.raise(llmgw_types::CoreId(0), BoardSlot(0), 1);
        world.shares(10_000, &wanted())[0]
    };
    // 1 / (1 + e^(1 / temperature)).
    for (temperature, expected) in [(0.0, 0), (0.2, 67), (0.5, 1_192), (1.0, 2_689), (100.0, 4_975)] {
        let seen = share(temperature);
        assert!(seen.abs_diff(expected) <= 150 && (expected > 0 || seen == 0), "{temperature}: {seen}");
    }
}

#[test]
fn the_model_picks_by_its_own_profile_and_a_request_by_the_one_it_names() {
    let mut table = table(&[&[3]], &[], "p2c", 0.0);
    table.profiles.push(llmgw_types::snapshot::ProfileSpec {
        name: "debug".into(),
        scorers: vec![("lora".into(), 3.0)],
        picker: "round-robin".into(),
        temperature: 0.0,
    });
    let mut world = World::of(&table, 1);
    for (profile, picker) in [(None, "p2c"), (Some(1), "round-robin")] {
        let mut explanation = Explanation::default();
        world.explain(0, &Wanted { profile, ..wanted() }, Some(&mut explanation)).unwrap();
        let look = &explanation.pools[0];
        assert_eq!(look.picker, picker);
        assert_eq!(look.scorers, [("inflight", 1.0)], "a scorer that is not there counts nothing");
    }
}
