//! What engines are judged by: samples, thresholds, rates, slow start.

use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_router::Wanted;
use llmgw_router::endpoint::Sample;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_types::BoardSlot;

use crate::world::{NOW, World, table, wanted};

const IDLE: Sample = Sample { running: 0, waiting: 0, kv_usage_ratio: Some(0.0), drain_rate: None, at: NOW };

/// The scores of one scorer, by endpoint, when these are the samples (none: no sample).
fn scores(scorer: &str, samples: &[Option<Sample>]) -> Vec<f32> {
    let mut world = World::pool(samples.len() as u32, &[(scorer, 1.0)], "max-score");
    for (slot, sample) in (0..).map(BoardSlot).zip(samples) {
        if let Some(sample) = sample {
            world.board.endpoint(slot).set_sample(sample);
        }
    }
    let mut explanation = Explanation::default();
    world.explain(0, &wanted(), Some(&mut explanation)).unwrap();
    let look = &explanation.pools[0];
    let at = look.scorers.iter().position(|(name, _)| *name == scorer).expect("the scorer is on");
    look.candidates.iter().map(|candidate| candidate.scores[at]).collect()
}

fn check(scorer: &str, samples: &[Option<Sample>], expected: &[f32]) {
    let scores = scores(scorer, samples);
    let is_near = scores.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-3);
    assert!(is_near && scores.len() == expected.len(), "{scorer}: {scores:?}, expected {expected:?}");
}

#[test]
fn a_queue_counts_up_to_its_target() {
    let waiting = |waiting| Some(Sample { waiting, ..IDLE });
    check("queue", &[waiting(0), waiting(1), waiting(4), waiting(900)], &[1.0, 0.75, 0.0, 0.0]);
}

#[test]
fn a_cache_counts_by_what_is_free_and_far_down_above_the_ceiling() {
    let usage = |usage| Some(Sample { kv_usage_ratio: Some(usage), ..IDLE });
    check("kv", &[usage(0.0), usage(0.4), usage(0.9), usage(0.95)], &[1.0, 0.6, 0.1, -7.95]);
}

#[test]
fn a_slow_engine_is_told_from_a_busy_one() {
    let at = |running, rate| Some(Sample { running, drain_rate: Some(rate), ..IDLE });
    check("load", &[at(10, 10.0), at(10, 5.0), at(0, 5.0)], &[0.5, 0.0, 1.0]);
    check("load", &[at(3, 0.0), at(3, 3.0)], &[0.0, 0.9997]);
}

#[test]
fn an_engine_without_a_fresh_sample_counts_as_the_others_do_on_average() {
    let old = Some(Sample { waiting: 4, kv_usage_ratio: Some(0.99), at: Mono(NOW.0 - 6_000_000_001), ..IDLE });
    let waiting = |waiting| Some(Sample { waiting, ..IDLE });
    check("queue", &[waiting(0), waiting(2), old, None], &[1.0, 0.5, 0.75, 0.75]);
    check("queue", &[None, old], &[1.0, 1.0]);
    // An engine that publishes no cache usage is not held for one that is full.
    let full = Some(Sample { kv_usage_ratio: Some(0.99), ..IDLE });
    check("kv", &[full, Some(Sample { kv_usage_ratio: None, ..IDLE })], &[-7.99, 0.0]);
    let just_fresh = Some(Sample { waiting: 4, at: Mono(NOW.0 - 6_000_000_000), ..IDLE });
    check("queue", &[just_fresh, waiting(0)], &[0.0, 1.0]);
}

#[test]
fn our_own_requests_count_in_every_profile_by_their_prompts() {
    let mut world = World::pool(2, &[("queue", 1.0)], "max-score");
    let long = world.dispatch(0, &Wanted { tokens: 50_000, ..wanted() }).unwrap();
    let short: Vec<_> = (0..20).map(|_| world.dispatch(0, &wanted()).unwrap()).collect();
    assert!(short.iter().all(|grant| grant.slot != long.slot));
}

#[test]
fn an_engine_above_its_ceiling_is_taken_only_when_all_are() {
    for (picker, temperature) in [("max-score", 0.0), ("p2c", 0.0), ("softmax", 0.2)] {
        let scorers = [("queue", 3.0), ("kv", 1.0), ("load", 1.0)];
        let mut world = World::of(&table(&[&[2]], &scorers, picker, temperature), 1);
        world.board.endpoint(BoardSlot(0)).set_sample(&Sample { kv_usage_ratio: Some(0.95), ..IDLE });
        world.board.endpoint(BoardSlot(1)).set_sample(&Sample { waiting: 9, kv_usage_ratio: Some(0.89), ..IDLE });
        assert_eq!(world.shares(200, &wanted()), [0, 200], "{picker}");
        world.board.endpoint(BoardSlot(1)).set_sample(&Sample { kv_usage_ratio: Some(0.99), ..IDLE });
        assert_eq!(world.shares(200, &wanted()).iter().sum::<u32>(), 200);
    }
}

#[test]
fn thresholds_are_the_pools_own() {
    let mut table = table(&[&[2]], &[("queue", 1.0)], "max-score", 0.0);
    table.pools[0].thresholds.target_waiting = 8;
    let mut world = World::of(&table, 1);
    world.board.endpoint(BoardSlot(0)).set_sample(&Sample { waiting: 6, ..IDLE });
    world.board.endpoint(BoardSlot(1)).set_sample(&Sample { waiting: 7, ..IDLE });
    assert_eq!(world.shares(50, &wanted()), [50, 0], "with a target of 4 both were full");
}

#[test]
fn an_endpoint_that_has_just_become_ready_begins_with_a_part_of_its_share() {
    let mut world = World::pool(2, &[], "max-score");
    world.board.endpoint(BoardSlot(0)).set_ready_since(Mono(1));
    world.board.endpoint(BoardSlot(1)).set_ready_since(NOW);
    let at = |seconds| Wanted { now: NOW + Duration::from_secs(seconds), ..wanted() };
    // A tenth of the other's weight, then 55 of 100, then the same.
    for (seconds, low, high) in [(0, 600, 1250), (15, 3100, 4000), (30, 4700, 5300), (3000, 4700, 5300)] {
        let shares = world.shares(10_000, &at(seconds));
        assert!((low..=high).contains(&shares[1]), "after {seconds} s: {shares:?}");
    }
    // Under load too: twenty requests at once.
    let placed: Vec<_> = (0..20).map(|_| world.dispatch(0, &at(0)).unwrap()).collect();
    let new = placed.iter().filter(|grant| grant.slot == BoardSlot(1)).count();
    assert!(new <= 3, "{new}");
}
