//! Prompts go where they are cached: a small form of `cargo x bench quality`, by what engines count. How large the
//! difference is depends on the machine's mood; that there is one does not.

use std::path::PathBuf;
use std::time::Duration;

use llmgw_test_kit::quality::{BLOCK_COST, Chats, Engines, Policy, ROUND_ROBIN, Run, Setup, Workload, measure_alone};

use crate::pair::llmgw;

const ENGINES: Engines = Engines {
    count: 8,
    blocks: 1000,
    prefill_tokens_per_second: 8000.0,
    tokens_per_second: 50.0,
    step_us_per_seq: 50.0,
    stream_interval: 64,
};

#[track_caller]
fn run(policy: &str, workload: &Workload) -> Run {
    let (llmgw, peers) = (llmgw().to_owned(), PathBuf::new());
    let setup = Setup { llmgw, peers, engines: ENGINES, speed: 75.0, bytes_per_token: 4 };
    let policy = Policy::find(policy).expect("a policy");
    let run = measure_alone(&setup, policy, workload).unwrap_or_else(|what| panic!("{what}"));
    assert!(run.bad.is_empty(), "{run:?}");
    assert_eq!(run.blocks_hit, run.blocks_hit_by_usage, "{run:?}");
    run
}

#[track_caller]
fn check(workload: &Workload) {
    let (in_turn, by_cost) = (run(ROUND_ROBIN, workload), run(BLOCK_COST, workload));
    let shown = format!("{}: in turn {in_turn:?}, by cost {by_cost:?}", workload.name);
    assert!(in_turn.blocks_hit > 0 && by_cost.blocks_hit >= in_turn.blocks_hit, "{shown}");
    // All at one engine would be 8, all at two of them 4. Three hundred calls on a busy machine come to 2.1 at most;
    // how evenly thousands are spread is the benchmark's to say.
    assert!(by_cost.prompt_imbalance < 3.9, "{shown}");
}

#[test]
fn conversations_hit_at_least_as_much_by_cost_as_in_turn() {
    let text = include_str!("../../../bench/data/mooncake_conversation.jsonl");
    check(&Workload::of_trace("conversation", text).expect("a trace"));
}

#[test]
fn chats_hit_at_least_as_much_by_cost_as_in_turn_whatever_the_seed() {
    for seed in [1, 2] {
        let (time, think) = (Duration::from_secs(150), Duration::from_secs(15));
        check(&Chats { seed, time, think, ..Chats::default() }.workload());
    }
}
