//! How near the estimate comes to one pooled cache, on traces of real conversations. With `--nocapture` the figures are
//! printed: of all blocks, those that engines had cached, and what the busiest engine prefilled over the mean.

#![expect(clippy::print_stdout, reason = "figures for whoever asks")]

mod engines;
mod replay;

use engines::Engine;
use llmgw_load::quality::{Chats, Workload};
use llmgw_router::prefix::Thresholds;
use llmgw_router::prefix::cost::W_OVERLAP;
use replay::{Fleet, Outcome, Policy, Router, Row, replay, rows};

const FLEET: Fleet = Fleet { engines: 8, blocks: 2000, table: 2.0 };
const THRESHOLDS: Thresholds = Thresholds { cache: 0.30, balance_abs: 16.0, balance_rel: 1.5 };
const COST: Policy = Policy::Cost { w_overlap: W_OVERLAP, thresholds: THRESHOLDS };

#[expect(clippy::disallowed_methods, reason = "a test's own trace; no core runs here")]
fn trace(name: &str) -> Workload {
    let path = format!("{}/../../bench/data/mooncake_{name}_whole.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the trace is part of the repository");
    Workload::of_trace(name, &text).expect("a trace")
}

fn check(workload: &Workload, below_pooled: f64, seeds: u64) {
    let rows = rows(workload);
    let limit = workload.pooled_hit_percent(FLEET.engines * FLEET.blocks);
    let round_robin = replay(&rows, FLEET, Policy::RoundRobin, 1);
    let least_load = replay(&rows, FLEET, Policy::LeastLoad, 1);
    let figures =
        |name: &str, Outcome { hit_percent, imbalance }| format!("{name} {hit_percent:.1} % / {imbalance:.2}");
    let seeds: Vec<Outcome> = (1..=seeds).map(|seed| replay(&rows, FLEET, COST, seed)).collect();
    let shown = format!(
        "{}: pooled {limit:.1} %, {}, {}, {}",
        workload.name,
        figures("round robin", round_robin),
        figures("least load", least_load),
        seeds.iter().map(|outcome| figures("cost", *outcome)).collect::<Vec<_>>().join(", ")
    );
    for outcome in seeds {
        assert!(outcome.hit_percent >= limit - below_pooled && outcome.imbalance <= 1.15, "{shown}");
        assert!(outcome.hit_percent > round_robin.hit_percent.max(least_load.hit_percent), "{shown}");
    }
    println!("{shown}");
}

#[test]
fn conversations_hit_within_two_points_of_one_pooled_cache_and_load_is_even() {
    check(&trace("conversation"), 1.8, 3);
}

#[test]
fn synthetic_requests_hit_within_two_points_of_one_pooled_cache_and_load_is_even() {
    check(&trace("synthetic"), 2.0, 3);
}

#[test]
fn chats_that_share_a_few_beginnings_load_engines_evenly_though_nobody_waits() {
    for seed in 1..=3 {
        check(&Chats { seed, ..Chats::default() }.workload(), 5.0, 2);
    }
}

#[test]
fn a_burst_of_one_unseen_prefix_is_prefilled_by_two_engines_at_most() {
    for (spacing_us, tail) in [(0, 100), (0, 0), (500, 100), (5_000, 100)] {
        let mut router = Router::new(FLEET, 7);
        let mut engines: Vec<Engine> = (0..FLEET.engines).map(|_| Engine::new(FLEET.blocks)).collect();
        let mut prefilled = vec![0; FLEET.engines];
        for number in 0..200u64 {
            // 16 blocks of 512 tokens that all share, and an end of its own.
            let ids = (1..=16).chain([1000 + number]).collect();
            let tokens = 16 * replay::BLOCK_TOKENS + tail;
            let row = Row { at_ms: number * spacing_us / 1000, tokens, ids, output_tokens: 200 };
            router.pass(&mut engines, spacing_us as f64 / 1e6);
            let chosen = router.choose(&row, &engines, W_OVERLAP, &THRESHOLDS);
            let placed = router.place(&row, chosen);
            let hit = engines[chosen].cache.run(&row.ids);
            prefilled[chosen] += u32::from(hit == 0);
            let left = f64::from(row.tokens - replay::BLOCK_TOKENS * hit as u32);
            engines[chosen].take(Some(placed), left, row.output_tokens);
        }
        assert!(prefilled.iter().sum::<u32>() <= 2, "{spacing_us} µs apart: {prefilled:?}");
    }
}
