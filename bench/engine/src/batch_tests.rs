//! What the batch promises, in virtual time.

use super::*;
use llmgw_kit::chance::Chance;

const MS: u64 = 1_000_000;

fn config() -> BatchConfig {
    BatchConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 64,
        policy: Policy::Fifo,
        memory: Memory::Blocks { block_count: 64, block_tokens: 16, prefix_caching: true },
        // A decode step is 10 ms, a prompt token 1 ms.
        pace: Pace { tokens_per_second: 100.0, step_us_per_seq: 0.0, prefill_tokens_per_second: 1000.0 },
    }
}

fn job(start: u32, prompt_tokens: usize, output_tokens: u32) -> Job {
    let prompt = (start..start + prompt_tokens as u32).collect();
    Job { prompt, output_tokens, priority: 0, salt: 0, answer_seed: u64::from(start) }
}

/// Runs until nothing is left to do, or for `limit` calls.
fn run(batch: &mut Batch) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..100_000 {
        match batch.next_event_at() {
            Some(at) => events.extend(batch.advance(at)),
            None => return events,
        }
    }
    panic!("the batch never comes to rest");
}

fn at_of(events: &[Event], wanted: impl Fn(&Event) -> bool) -> u64 {
    match events.iter().find(|event| wanted(event)) {
        Some(
            Event::Admitted { at, .. }
            | Event::Token { at, .. }
            | Event::Finished { at, .. }
            | Event::Preempted { at, .. }
            | Event::Refused { at, .. },
        ) => *at,
        None => panic!("no such event"),
    }
}

fn cached(events: &[Event], wanted: JobId) -> u32 {
    events
        .iter()
        .find_map(|event| match event {
            Event::Admitted { id, cached_tokens, .. } if *id == wanted => Some(*cached_tokens),
            _ => None,
        })
        .unwrap()
}

#[test]
fn a_lone_request_pays_its_prefill_then_one_step_a_token() {
    let mut batch = Batch::new(config());
    let id = batch.submit(5 * MS, job(0, 20, 3));
    let events = run(&mut batch);
    assert_eq!(
        events,
        [
            Event::Admitted { id, at: 5 * MS, cached_tokens: 0 },
            Event::Token { id, at: 25 * MS, produced: 1 },
            Event::Token { id, at: 35 * MS, produced: 2 },
            Event::Token { id, at: 45 * MS, produced: 3 },
            Event::Finished { id, at: 45 * MS },
        ]
    );
    assert_eq!(batch.kv_usage_ratio(), 0.0);
}

#[test]
fn a_long_prompt_is_prefilled_in_chunks_between_others_tokens() {
    let mut batch = Batch::new(config());
    let short = batch.submit(0, job(0, 4, 20));
    batch.advance(0);
    let long = batch.submit(1, job(1000, 150, 1));
    let events = run(&mut batch);
    let first_of_long = at_of(&events, |e| matches!(e, Event::Token { id, .. } if *id == long));
    let between = events
        .iter()
        .filter(|e| matches!(e, Event::Token { id, at, .. } if *id == short && *at <= first_of_long))
        .count();
    assert!(between >= 3, "150 tokens at 63 a step are three steps, each with a token of the other: {between}");
}

#[test]
fn no_more_than_the_capacity_runs_and_the_rest_waits_in_order() {
    let mut batch = Batch::new(config());
    let ids: Vec<JobId> = (0..7).map(|n| batch.submit(0, job(n * 100, 4, 3))).collect();
    batch.advance(0);
    assert_eq!((batch.running_count(), batch.waiting_count()), (4, 3));
    let events = run(&mut batch);
    let admitted: Vec<JobId> = events
        .iter()
        .filter_map(|e| match e {
            Event::Admitted { id, .. } => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(admitted, ids[4..]);
    assert_eq!(batch.totals().finished, 7);
}

#[test]
fn the_lowest_priority_number_goes_first_only_when_asked_to() {
    for (policy, expected) in [(Policy::Fifo, [0, 1, 2]), (Policy::Priority, [2, 0, 1])] {
        let mut batch = Batch::new(BatchConfig { max_num_seqs: 1, policy, ..config() });
        let first = batch.submit(0, job(0, 4, 2));
        batch.advance(0);
        let rest: Vec<JobId> =
            [5, 5, -1].iter().map(|&priority| batch.submit(0, Job { priority, ..job(50, 4, 2) })).collect();
        let order: Vec<usize> = run(&mut batch)
            .iter()
            .filter_map(|e| match e {
                Event::Finished { id, .. } if *id != first => rest.iter().position(|other| other == id),
                _ => None,
            })
            .collect();
        assert_eq!(order, expected, "{policy:?}");
    }
}

#[test]
fn a_prompt_is_found_by_those_that_come_while_it_is_computed() {
    let mut batch = Batch::new(config());
    let first = batch.submit(0, job(0, 100, 1));
    let twin = batch.submit(0, job(0, 100, 1));
    let later = batch.submit(1, job(0, 100, 1));
    let events = run(&mut batch);
    // 64 of 100 tokens in the first step; the second has room for the others.
    assert_eq!([first, twin, later].map(|id| cached(&events, id)), [0, 96, 96]);
    assert_eq!(batch.totals().cache_hits, 192);
}

#[test]
fn a_second_turn_finds_the_first_turn_and_its_answer() {
    let mut batch = Batch::new(config());
    batch.submit(0, job(0, 40, 24));
    run(&mut batch);
    let mut prompt: Vec<u32> = (0..40).collect();
    prompt.extend((0..24).map(|idx| crate::token::word_id(0, idx)));
    prompt.extend(500..520);
    let next = batch.submit(10_000 * MS, Job { prompt, ..job(0, 0, 1) });
    let events = run(&mut batch);
    // 63 of the 64 tokens were computed; that is three full blocks of 16.
    assert_eq!(cached(&events, next), 48);
    assert_eq!(batch.totals().cache_hits, 48);
}

#[test]
fn a_whole_prompt_in_the_cache_still_computes_its_last_token() {
    let mut batch = Batch::new(config());
    batch.submit(0, job(0, 32, 1));
    run(&mut batch);
    let again = batch.submit(0, job(0, 32, 1));
    assert_eq!(cached(&run(&mut batch), again), 16);
}

#[test]
fn a_salt_keeps_prefixes_apart() {
    let mut batch = Batch::new(config());
    batch.submit(0, job(0, 48, 1));
    run(&mut batch);
    let other = batch.submit(0, Job { salt: 7, ..job(0, 48, 1) });
    assert_eq!(cached(&run(&mut batch), other), 0);
}

#[test]
fn requests_wait_while_there_is_no_memory() {
    let memory = Memory::Blocks { block_count: 4, block_tokens: 16, prefix_caching: false };
    let mut batch = Batch::new(BatchConfig { memory, ..config() });
    batch.submit(0, job(0, 48, 2));
    let second = batch.submit(0, job(100, 48, 2));
    batch.advance(0);
    assert_eq!((batch.running_count(), batch.waiting_count()), (1, 1));
    assert_eq!(batch.kv_usage_ratio(), 0.75);
    let events = run(&mut batch);
    assert!(events.iter().any(|e| matches!(e, Event::Finished { id, .. } if *id == second)));
}

#[test]
fn who_came_last_is_put_back_when_memory_runs_out_and_still_finishes() {
    let memory = Memory::Blocks { block_count: 5, block_tokens: 4, prefix_caching: false };
    let mut batch = Batch::new(BatchConfig { memory, ..config() });
    let first = batch.submit(0, job(0, 8, 10));
    let second = batch.submit(0, job(100, 8, 10));
    let events = run(&mut batch);
    assert!(events.iter().any(|e| matches!(e, Event::Preempted { id, .. } if *id == second)));
    assert!(!events.iter().any(|e| matches!(e, Event::Preempted { id, .. } if *id == first)));
    for wanted in [first, second] {
        let counts: Vec<u32> = events
            .iter()
            .filter_map(|e| match e {
                Event::Token { id, produced, .. } if *id == wanted => Some(*produced),
                _ => None,
            })
            .collect();
        assert_eq!(counts, (1..=10).collect::<Vec<_>>(), "no token is lost or repeated");
    }
    assert_eq!(batch.kv_usage_ratio(), 0.0);
}

#[test]
fn a_request_larger_than_all_memory_is_refused_and_others_go_on() {
    let memory = Memory::Blocks { block_count: 2, block_tokens: 16, prefix_caching: true };
    let mut batch = Batch::new(BatchConfig { memory, ..config() });
    let large = batch.submit(0, job(0, 100, 2));
    let small = batch.submit(0, job(200, 10, 2));
    let events = run(&mut batch);
    assert!(events.contains(&Event::Refused { id: large, at: 0 }));
    assert!(events.iter().any(|e| matches!(e, Event::Finished { id, .. } if *id == small)));
}

#[test]
fn an_aborted_request_gives_its_place_to_the_next() {
    let mut batch = Batch::new(BatchConfig { max_num_seqs: 1, ..config() });
    let first = batch.submit(0, job(0, 16, 1000));
    let second = batch.submit(0, job(100, 16, 1));
    let third = batch.submit(0, job(200, 16, 1));
    batch.advance(50 * MS);
    assert!(batch.abort(50 * MS, third), "waiting");
    assert!(batch.abort(55 * MS, first), "running");
    assert!(!batch.abort(55 * MS, first), "gone");
    let events = run(&mut batch);
    assert!(events.iter().any(|e| matches!(e, Event::Finished { id, .. } if *id == second)));
    assert!(!events.iter().any(|e| matches!(e, Event::Token { id, .. } if *id == first || *id == third)));
    assert_eq!((batch.totals().aborted, batch.totals().finished), (2, 1));
    assert_eq!(batch.kv_usage_ratio(), 0.0);
}

#[test]
fn slots_remember_their_last_sequence() {
    let memory = Memory::Slots { slot_count: 2, slot_tokens: 200 };
    let mut batch = Batch::new(BatchConfig { memory, ..config() });
    batch.submit(0, job(0, 40, 2));
    run(&mut batch);
    batch.submit(0, job(1000, 40, 2));
    run(&mut batch);
    let again = batch.submit(0, job(0, 60, 2));
    let other = batch.submit(0, job(1000, 30, 2));
    let third = batch.submit(0, job(3000, 30, 2));
    batch.advance(batch.next_event_at().unwrap());
    assert_eq!((batch.running_count(), batch.waiting_count()), (2, 1), "slots bound the batch");
    let mut batch_events = run(&mut batch);
    let large = batch.submit(0, job(0, 201, 1));
    batch_events.extend(run(&mut batch));
    assert!(batch_events.iter().any(|e| matches!(e, Event::Finished { id, .. } if *id == third)));
    assert!(batch_events.iter().any(|e| matches!(e, Event::Refused { id, .. } if *id == large)));
    let _ = (again, other);
    // 40 of the first come back (its answer differs), 29 of the second: the last token is always computed.
    assert_eq!(batch.totals().cache_hits, 40 + 29);
}

#[test]
fn without_pace_everything_ends_at_the_time_it_came() {
    let mut batch = Batch::new(BatchConfig { pace: Pace::immediate(), ..config() });
    for n in 0..10 {
        batch.submit(7, job(n * 100, 30, 50));
    }
    let events = run(&mut batch);
    assert!(events.iter().all(|e| at_of(std::slice::from_ref(e), |_| true) == 7));
    assert_eq!(batch.totals().generation_tokens, 500);
}

#[test]
fn any_mix_of_arrivals_and_aborts_ends_with_everything_accounted_for() {
    for seed in 0..40 {
        let mut dice = Chance::seeded(seed);
        let memory = Memory::Blocks { block_count: 24, block_tokens: 4, prefix_caching: seed % 2 == 0 };
        let policy = if seed % 3 == 0 { Policy::Priority } else { Policy::Fifo };
        let mut batch = Batch::new(BatchConfig { memory, policy, ..config() });
        let (mut now, mut open, mut ended) = (0, Vec::new(), 0u64);
        let mut last_at = 0;
        for _ in 0..300 {
            now += dice.next_u64() % (8 * MS);
            match dice.next_u64() % 3 {
                0 => {
                    let (start, len) = ((dice.next_u64() % 4) as u32 * 8, (dice.next_u64() % 60) as usize);
                    let priority = (dice.next_u64() % 3) as i64;
                    let output = (dice.next_u64() % 20) as u32;
                    open.push(batch.submit(now, Job { priority, ..job(start, len, output) }));
                }
                1 if !open.is_empty() => {
                    let at = (dice.next_u64() % open.len() as u64) as usize;
                    batch.abort(now, open.swap_remove(at));
                }
                _ => {}
            }
            for event in batch.advance(now) {
                let at = at_of(&[event], |_| true);
                assert!(at >= last_at && at <= now);
                last_at = at;
                if matches!(event, Event::Finished { .. } | Event::Refused { .. }) {
                    ended += 1;
                }
            }
            assert!(batch.running_count() <= 4);
        }
        ended += run(&mut batch).iter().filter(|e| matches!(e, Event::Finished { .. } | Event::Refused { .. })).count()
            as u64;
        let totals = batch.totals();
        assert_eq!(totals.finished + totals.refused, ended, "seed {seed}");
        assert_eq!(totals.submitted, totals.finished + totals.refused + totals.aborted, "seed {seed}");
        assert_eq!((batch.running_count(), batch.waiting_count()), (0, 0));
        assert_eq!(batch.kv_usage_ratio(), 0.0, "seed {seed}");
    }
}
