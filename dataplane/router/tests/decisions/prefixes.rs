//! Prompts go where they are cached, and each decision has its word.

use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::endpoint::Sample;
use llmgw_router::prefix::fingerprint::BLOCK_BYTES;
use llmgw_router::prefix::{Decision, Fingerprint, Ledger, Salt, Seed, StampTable};
use llmgw_router::{Grant, Wanted};
use llmgw_types::{BoardSlot, RouteTable};

use crate::world::{NOW, World, table, wanted};

const COST: &[(&str, f32)] = &[("cost", 4.0)];
const WEIGHTED: &[(&str, f32)] = &[("prefix", 3.0), ("queue", 1.0), ("kv", 1.0), ("inflight", 1.0)];

struct Prompts {
    world: World,
    table: Arc<StampTable>,
    fingerprint: Fingerprint,
}

impl Prompts {
    fn of(routes: &RouteTable, cores: u32) -> Self {
        let mut world = World::of(routes, cores);
        let slots = routes.endpoints.len();
        let table = Arc::new(StampTable::new(1 << 16, Ledger::new(cores as usize, slots)));
        world.cores = std::mem::take(&mut world.cores).into_iter().map(|core| core.with_table(table.clone())).collect();
        Self { world, table, fingerprint: Fingerprint::new(&Seed::drawn(&mut Chance::seeded(1))) }
    }

    fn pool(count: u32, scorers: &[(&str, f32)], picker: &str) -> Self {
        Self::of(&table(&[&[count]], scorers, picker, 0.0), 1)
    }

    /// Sends a prompt, four bytes a token.
    fn send_as(&mut self, core: usize, salt: &Salt<'_>, text: &[u8], wanted: Wanted<'_>) -> Grant {
        self.fingerprint.begin(salt);
        self.fingerprint.text(text);
        self.fingerprint.finish();
        let prompt = Some(&self.fingerprint);
        let tokens = (text.len() / 4) as u32;
        self.world.dispatch(core, &Wanted { prompt, tokens, ..wanted }).expect("somebody takes it")
    }

    fn send(&mut self, text: &[u8]) -> Grant {
        self.send_as(0, &Salt { model: "m0", ..Salt::default() }, text, wanted())
    }
}

fn word(grant: &Grant) -> &'static str {
    grant.reuse.expect("it was looked for").decision.word()
}

/// A prompt of so many blocks that shares nothing with others.
fn text(number: u32, blocks: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(blocks * BLOCK_BYTES / 4)
}

#[test]
fn the_turns_of_a_conversation_go_where_the_ones_before_went() {
    for (scorers, picker) in [(COST, "p2c"), (COST, "max-score"), (WEIGHTED, "p2c"), (WEIGHTED, "max-score")] {
        let mut prompts = Prompts::pool(8, scorers, picker);
        let mut busy = [0u32; 8];
        for number in 0..64 {
            let mut history = text(number, 4);
            let first = prompts.send(&history).slot;
            busy[first.idx()] += 1;
            for turn in 1..6 {
                history.extend(text(1000 * turn + number, 2));
                let grant = prompts.send(&history);
                assert_eq!((grant.slot, word(&grant)), (first, "cache_hit"), "{picker} {scorers:?}");
            }
        }
        assert!(busy.iter().all(|&count| count > 1), "{picker}: {busy:?}");
    }
}

#[test]
fn a_burst_of_one_unseen_prefix_is_prefilled_at_two_engines_at_most() {
    for cores in [1, 4] {
        let mut prompts = Prompts::of(&table(&[&[8]], COST, "p2c", 0.0), cores);
        let head = text(7, 64);
        let mut held = Vec::new();
        for number in 0..200 {
            let body = [head.clone(), text(1000 + number, 1)[..400].to_vec()].concat();
            let salt = Salt { model: "m0", ..Salt::default() };
            held.push(prompts.send_as(number as usize % cores as usize, &salt, &body, wanted()));
        }
        let unseen = held.iter().filter(|grant| grant.reuse.is_some_and(|reuse| reuse.cached == 0)).count();
        assert!(unseen <= 2, "{unseen} of 200 on {cores} cores");
        let slots: std::collections::HashSet<u32> = held.iter().map(|grant| grant.slot.0).collect();
        assert!(slots.len() <= 2, "{slots:?}");
        drop(held);
        assert!((0..8).all(|slot| prompts.table.ledger().queued(BoardSlot(slot)) == 0));
    }
}

#[test]
fn what_an_engine_has_to_prefill_counts_until_its_first_token_and_no_longer() {
    let mut prompts = Prompts::pool(2, COST, "max-score");
    let mut first = prompts.send(&text(1, 100));
    let second = prompts.send(&text(2, 1));
    assert_ne!(first.slot, second.slot);
    drop(second);
    first.prefilling = None;
    assert_eq!(prompts.table.ledger().queued(first.slot), 0);
    let other = prompts.send(&text(3, 1));
    assert_ne!(other.slot, first.slot, "its answer still costs something");
}

#[test]
fn an_overloaded_engine_is_left_though_it_has_the_prompt() {
    for scorers in [COST, WEIGHTED] {
        let mut prompts = Prompts::pool(4, scorers, "p2c");
        let slot = prompts.send(&text(1, 8)).slot;
        // Work of others, of which the engine tells.
        for (foreign, expected) in [(20, "cache_hit"), (2000, "load_balance_override")] {
            let cells = prompts.world.board.endpoint(slot);
            cells.set_foreign(foreign);
            let at = Mono(NOW.0 - 1);
            cells.set_sample(&Sample { running: foreign, waiting: 0, kv_usage_ratio: None, drain_rate: None, at });
            let grant = prompts.send(&text(1, 8));
            assert_eq!((grant.slot == slot, word(&grant)), (foreign == 20, expected), "{scorers:?}");
        }
    }
}

#[test]
fn each_decision_has_its_word() {
    let mut prompts = Prompts::pool(4, COST, "p2c");
    assert_eq!(word(&prompts.send(&text(1, 8))), "cache_miss_min_load");
    let grant = prompts.send(&text(1, 8));
    assert_eq!(word(&grant), "cache_hit");
    assert_eq!(word(&prompts.send(&[text(1, 1), text(2, 7)].concat())), "cache_miss_min_load");
    assert_eq!(word(&prompts.send(b"")), "no_tree");
    // Everything of the engine is forgotten at once.
    (0..4).for_each(|slot| prompts.table.ledger().forget(BoardSlot(slot)));
    let after = prompts.send(&text(1, 8));
    assert_eq!((word(&after), after.reuse.unwrap().cached), ("stale", 0));
    assert_eq!(Decision::ALL.map(Decision::word)[5], "no_healthy_worker");
}

#[test]
fn equal_prompts_of_two_salts_adapters_or_models_never_match() {
    let mut prompts = Prompts::of(&table(&[&[4], &[4]], COST, "p2c", 0.0), 1);
    let plain = Salt { model: "m0", ..Salt::default() };
    drop(prompts.send_as(0, &plain, &text(1, 20), wanted()));
    for salt in [
        Salt { cache_salt: Some(b"a"), ..plain },
        Salt { cache_salt: Some(b"b"), ..plain },
        Salt { lora: "a", ..plain },
        Salt { lora: "b", ..plain },
        Salt { model: "m1", ..plain },
    ] {
        let grant = prompts.send_as(0, &salt, &text(1, 20), wanted());
        assert_eq!(grant.reuse.unwrap().cached, 0, "{salt:?}");
    }
    assert_eq!(prompts.send_as(0, &plain, &text(1, 20), wanted()).reuse.unwrap().cached, 20);
}

#[test]
fn prompts_of_equal_length_spread() {
    let mut prompts = Prompts::pool(4, COST, "p2c");
    let mut seen = [0u32; 4];
    for number in 0..1000 {
        // Ids of tokens, the same count in each.
        let ids: String = (0..4096).map(|at| format!("{},", 10_000 + (at * 7 + number) % 50_000)).collect();
        seen[prompts.send(ids.as_bytes()).slot.idx()] += 1;
    }
    assert!(seen.iter().all(|&count| count > 150), "{seen:?}");
}
