//! Replays a trace through the prefix table, the guard and the cost, in front of [`Engine`]s.

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_load::quality::{BLOCK_TOKENS as BLOCK, Workload};
use llmgw_router::prefix::approx::Placed;
use llmgw_router::prefix::cost::Work;
use llmgw_router::prefix::fingerprint::BLOCK_BYTES;
use llmgw_router::prefix::guard::{Course, Facts, judge};
use llmgw_router::prefix::ledger::Prefill;
use llmgw_router::prefix::{Fingerprint, Ledger, Matches, Salt, Seed, StampTable, Thresholds};
use llmgw_types::{BoardSlot, CoreId};

use crate::engines::Engine;

/// Tokens of a block.
pub(crate) const BLOCK_TOKENS: u32 = BLOCK as u32;

const CORE: CoreId = CoreId(0);

/// A request: when, how long, of which blocks, and how long its answer.
pub(crate) struct Row {
    pub(crate) at_ms: u64,
    pub(crate) tokens: u32,
    pub(crate) ids: Vec<u64>,
    pub(crate) output_tokens: u32,
}

/// The calls of a workload, each of whole blocks.
pub(crate) fn rows(workload: &Workload) -> Vec<Row> {
    let row = |call: &llmgw_load::quality::Call| Row {
        at_ms: call.at.as_millis() as u64,
        tokens: BLOCK_TOKENS * call.blocks.len() as u32,
        ids: call.blocks.clone(),
        output_tokens: call.output_tokens as u32,
    };
    workload.calls.iter().map(row).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Policy {
    RoundRobin,
    LeastLoad,
    /// The lowest cost of all engines.
    Cost {
        w_overlap: f32,
        thresholds: Thresholds,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) engines: usize,
    pub(crate) blocks: usize,
    /// Slots of the table over all engines' blocks.
    pub(crate) table: f32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Of all blocks, those that engines had cached.
    pub(crate) hit_percent: f64,
    /// Tokens prefilled by the busiest engine over the mean.
    pub(crate) imbalance: f64,
}

pub(crate) fn replay(rows: &[Row], fleet: Fleet, policy: Policy, seed: u64) -> Outcome {
    let mut router = Router::new(fleet, seed);
    let mut engines: Vec<Engine> = (0..fleet.engines).map(|_| Engine::new(fleet.blocks)).collect();
    let (mut hits, mut blocks, mut last_ms) = (0, 0, 0);
    for (turn, row) in rows.iter().enumerate() {
        let passed = (row.at_ms - last_ms) as f64 / 1000.0;
        last_ms = row.at_ms;
        router.pass(&mut engines, passed);
        let (chosen, placed) = match policy {
            Policy::RoundRobin => (turn % engines.len(), None),
            Policy::LeastLoad => (router.lowest(engines.iter().map(|engine| engine.waiting() as f32)), None),
            Policy::Cost { w_overlap, thresholds } => {
                let chosen = router.choose(row, &engines, w_overlap, &thresholds);
                (chosen, Some(router.place(row, chosen)))
            }
        };
        let hit = engines[chosen].cache.run(&row.ids);
        let left = f64::from(row.tokens.saturating_sub(BLOCK_TOKENS * hit as u32));
        engines[chosen].take(placed, left, row.output_tokens);
        hits += hit;
        blocks += row.ids.len();
    }
    let work: Vec<f64> = engines.iter().map(|engine| engine.work).collect();
    let mean = work.iter().sum::<f64>() / work.len() as f64;
    let most = work.iter().copied().fold(0.0, f64::max);
    Outcome { hit_percent: 100.0 * hits as f64 / blocks as f64, imbalance: most / mean }
}

/// The pure code, put together as a core does it.
pub(crate) struct Router {
    pub(crate) table: StampTable,
    fingerprint: Fingerprint,
    matches: Matches,
    chance: Chance,
    prompt: Vec<u8>,
}

impl Router {
    pub(crate) fn new(fleet: Fleet, seed: u64) -> Self {
        let ledger = Ledger::new(1, fleet.engines);
        let tokens = fleet.blocks as u64 * u64::from(BLOCK_TOKENS);
        (0..fleet.engines as u32).for_each(|slot| ledger.set_capacity(BoardSlot(slot), Some(tokens)));
        let slots = (fleet.engines * fleet.blocks) as f32 * fleet.table;
        let table = StampTable::new(slots as usize, ledger);
        table.want(usize::MAX);
        let mut chance = Chance::seeded(seed);
        let fingerprint = Fingerprint::new(&Seed::drawn(&mut chance));
        Self { table, fingerprint, matches: Matches::new(fleet.engines), chance, prompt: Vec::new() }
    }

    /// Time that passes for engines; what their answers tell is learned.
    pub(crate) fn pass(&self, engines: &mut [Engine], seconds: f64) {
        let ledger = self.table.ledger();
        for (engine, slot) in engines.iter_mut().zip((0..).map(BoardSlot)) {
            engine.pass(ledger, seconds, |given, found| ledger.shares(CORE).set_right(slot, given, found));
        }
    }

    pub(crate) fn choose(&mut self, row: &Row, engines: &[Engine], w_overlap: f32, thresholds: &Thresholds) -> usize {
        self.prompt.clear();
        for id in &row.ids {
            self.prompt.extend(std::iter::repeat_n(id.to_le_bytes(), BLOCK_BYTES / 8).flatten());
        }
        // A byte a token, the last block as long as it is.
        self.prompt.truncate(row.tokens as usize);
        self.fingerprint.begin(&Salt { model: "m", ..Salt::default() });
        self.fingerprint.text(&self.prompt);
        self.fingerprint.finish();
        self.table.find(&self.fingerprint, Mono(row.at_ms * 1_000_000), &mut self.matches);

        let ledger = self.table.ledger();
        let work: Vec<Work> = engines
            .iter()
            .enumerate()
            .map(|(slot, engine)| Work {
                queued_tokens: ledger.queued(BoardSlot(slot as u32)),
                requests: engine.requests() as i64,
                waiting: 0,
                weight: 1.0,
            })
            .collect();
        let cached: Vec<u32> =
            (0..engines.len()).map(|slot| self.matches.cached(ledger, BoardSlot(slot as u32))).collect();
        let most = cached.iter().copied().max().unwrap_or(0);
        let least = |only: &dyn Fn(usize) -> bool| {
            work.iter()
                .enumerate()
                .filter(|(slot, _)| only(*slot))
                .map(|(_, work)| work.load())
                .fold(f32::MAX, f32::min)
        };
        let facts = Facts {
            blocks: self.matches.blocks(),
            cached: most,
            known: self.matches.known(),
            load_there: least(&|slot| cached[slot] == most),
            load_least: least(&|_| true),
            load_of_one: Work { queued_tokens: row.tokens.into(), requests: 1, waiting: 0, weight: 1.0 }.load(),
        };
        let course = judge(&facts, thresholds);
        let costs: Vec<f32> = (0..engines.len())
            .map(|slot| match course {
                Course::LeastLoaded(_) => work[slot].load(),
                // The cost weighs what is cached, be it little.
                Course::Follow | Course::Ignore(_) => {
                    let left = self.matches.tokens_left(ledger, BoardSlot(slot as u32), row.tokens);
                    work[slot].cost(w_overlap, left, ledger.shares(CORE).beyond(BoardSlot(slot as u32)))
                }
            })
            .collect();
        self.lowest(costs.into_iter())
    }

    /// Answer: what its engine has to prefill, and how many tokens that is taken to be.
    pub(crate) fn place(&mut self, row: &Row, chosen: usize) -> (Prefill, u32) {
        let slot = BoardSlot(chosen as u32);
        let ledger = self.table.ledger();
        let left = self.matches.tokens_left(ledger, slot, row.tokens);
        ledger.shares(CORE).give((0..ledger.slot_count() as u32).map(|slot| (BoardSlot(slot), 1.0)), slot, left);
        let now = Mono(row.at_ms * 1_000_000);
        let placed = Placed { core: CORE, slot, prompt_tokens: row.tokens, now };
        (self.table.record(&self.fingerprint, &self.matches, &placed), left)
    }

    /// The position of the lowest; equals are drawn.
    fn lowest(&mut self, costs: impl Iterator<Item = f32>) -> usize {
        let (mut best, mut lowest, mut tied) = (0, f32::INFINITY, 0);
        for (at, cost) in costs.enumerate() {
            tied = if cost < lowest { 1 } else { tied + u32::from(cost == lowest) };
            if cost < lowest || (cost == lowest && self.chance.below(tied) == 0) {
                (best, lowest) = (at, cost);
            }
        }
        best
    }
}
