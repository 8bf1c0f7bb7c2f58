//! Engines of a world: the pure model of continuous batching in virtual time, which may die, stand or slow down.

use std::collections::BTreeMap;

use llmgw_engine_sim::batch::{Batch, BatchConfig, Event, Job, JobId};
use llmgw_engine_sim::pace::Pace;
use llmgw_engine_sim::store::Memory;

use crate::plan::Plan;

pub(crate) struct Engine {
    batch: Batch,
    jobs: BTreeMap<JobId, usize>,
    pub(crate) is_dead: bool,
}

/// Tokens a second of an engine that is well.
const SPEED: f64 = 200.0;

fn pace(slowness: f64) -> Pace {
    let prefill_tokens_per_second = 20_000.0 / slowness;
    Pace { tokens_per_second: SPEED / slowness, step_us_per_seq: 50.0, prefill_tokens_per_second }
}

fn job(answer_seed: u64, prompt: u32, output_tokens: u32) -> Job {
    Job { prompt: vec![1; prompt as usize], output_tokens, priority: 0, salt: 0, answer_seed }
}

impl Engine {
    pub(crate) fn new(plan: &Plan) -> Self {
        let memory = Memory::Blocks { block_count: plan.kv_blocks, block_tokens: 16, prefix_caching: false };
        let cfg = BatchConfig { max_num_seqs: plan.batch, memory, pace: pace(1.0), ..BatchConfig::default() };
        Self { batch: Batch::new(cfg), jobs: BTreeMap::new(), is_dead: false }
    }

    pub(crate) fn submit(&mut self, now: u64, request: usize, prompt: u32, output: u32) -> JobId {
        let id = self.batch.submit(now, job(request as u64, prompt, output));
        self.jobs.insert(id, request);
        id
    }

    /// Somebody asks the engine past the gateway.
    pub(crate) fn submit_foreign(&mut self, now: u64, prompt: u32, output: u32) {
        self.batch.submit(now, job(u64::MAX, prompt, output));
    }

    pub(crate) fn abort(&mut self, now: u64, id: JobId) {
        self.jobs.remove(&id);
        self.batch.abort(now, id);
    }

    /// Everybody it held is told that it broke.
    pub(crate) fn die(&mut self, now: u64) -> Vec<usize> {
        self.is_dead = true;
        let jobs = std::mem::take(&mut self.jobs);
        for id in jobs.keys() {
            self.batch.abort(now, *id);
        }
        jobs.into_values().collect()
    }

    pub(crate) fn slow_down(&mut self, slowness: f64) {
        self.batch.repace(pace(slowness));
    }

    pub(crate) fn next_event_at(&self) -> Option<u64> {
        self.batch.next_event_at()
    }

    /// Brings it to `now`. Requests that ended, and whether they were served.
    pub(crate) fn advance(&mut self, now: u64) -> Vec<(usize, bool)> {
        let mut ended = Vec::new();
        for event in self.batch.advance(now) {
            let (id, served) = match event {
                Event::Finished { id, .. } => (id, true),
                Event::Refused { id, .. } => (id, false),
                _ => continue,
            };
            ended.extend(self.jobs.remove(&id).map(|request| (request, served)));
        }
        ended
    }

    pub(crate) fn held(&self) -> usize {
        self.jobs.len()
    }

    /// Running, waiting, cache.
    pub(crate) fn page(&self) -> (u32, u32, f32) {
        let Self { batch, .. } = self;
        (batch.running_count() as u32, batch.waiting_count() as u32, batch.kv_usage_ratio() as f32)
    }
}
