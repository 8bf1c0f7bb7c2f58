//! Continuous batching as a state machine: who runs, who waits, and when the next token comes.
//!
//! Called by the front with real time and by simulations with virtual time; the caller hands in `now` in nanoseconds
//! and asks when to call again. Never does I/O and never reads a clock, so the same calls give the same events.
//!
//! Work goes in steps, as in the engines: a step decodes one token of every running request and prefills as many
//! prompt tokens as its budget allows; it takes effect when it ends. When memory runs out, the request that is served
//! last is put back to wait and is computed again later.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::pace::Pace;
use crate::store::{Memory, Sequence, Store};

/// Who goes first among the waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// In order of arrival.
    #[default]
    Fifo,
    /// The lowest `priority` first, then in order of arrival.
    Priority,
}

/// Shape of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Requests that run at once, at most.
    pub max_num_seqs: usize,
    /// Prompt tokens and decoded tokens of one step, at most (chunked prefill).
    pub max_num_batched_tokens: usize,
    pub policy: Policy,
    pub memory: Memory,
    pub pace: Pace,
}

impl Default for BatchConfig {
    fn default() -> BatchConfig {
        BatchConfig {
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            policy: Policy::Fifo,
            memory: Memory::default(),
            pace: Pace::default(),
        }
    }
}

/// One request to the model.
#[derive(Debug, Clone)]
pub struct Job {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Tokens to answer with; 0 ends after the prefill (embeddings).
    pub output_tokens: u32,
    /// Lower goes first under [`Policy::Priority`].
    pub priority: i64,
    /// Prefixes are shared only between jobs with the same salt.
    pub salt: u64,
    /// Seed of the answer's words; they become part of the cached prefix.
    pub answer_seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What happened; `at` in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The job runs; `cached_tokens` of its prompt were found in the cache. Again after a preemption.
    Admitted {
        id: JobId,
        at: u64,
        cached_tokens: u32,
    },
    /// One more token; `produced` so far.
    Token {
        id: JobId,
        at: u64,
        produced: u32,
    },
    Finished {
        id: JobId,
        at: u64,
    },
    /// Memory ran out: the job waits again.
    Preempted {
        id: JobId,
        at: u64,
    },
    /// The job could never run: it is larger than the whole memory.
    Refused {
        id: JobId,
        at: u64,
    },
}

/// Sums since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub submitted: u64,
    pub finished: u64,
    pub aborted: u64,
    pub refused: u64,
    pub preemptions: u64,
    pub prompt_tokens: u64,
    pub generation_tokens: u64,
    /// Prompt tokens looked up in the prefix cache, and found there.
    pub cache_queries: u64,
    pub cache_hits: u64,
    pub steps: u64,
}

/// Place in the waiting line.
type Turn = (i64, u64);

#[derive(Debug)]
struct Running {
    seq: Sequence,
    turn: Turn,
    output_tokens: u32,
    produced: u32,
    /// Tokens (prompt and, after a preemption, earlier answer) that are still to be computed before the next one.
    prefill_left: usize,
    is_counted: bool,
}

impl Running {
    fn len(&self) -> usize {
        self.seq.prompt_len() + self.produced as usize
    }
}

#[derive(Debug, Default)]
struct Step {
    end: u64,
    decode: Vec<JobId>,
    prefill: Vec<(JobId, usize)>,
}

/// The model of one engine.
///
/// Invariant: every open job is either in `waiting` or in `running`, never in both.
#[derive(Debug)]
pub struct Batch {
    cfg: BatchConfig,
    store: Store,
    jobs: HashMap<JobId, Running>,
    waiting: BTreeMap<Turn, JobId>,
    running: Vec<JobId>,
    step: Option<Step>,
    /// Something arrived or left while no step was under way.
    wake_at: Option<u64>,
    next_id: u64,
    totals: Totals,
}

impl Batch {
    pub fn new(cfg: BatchConfig) -> Batch {
        Batch {
            store: Store::new(cfg.memory),
            cfg,
            jobs: HashMap::new(),
            waiting: BTreeMap::new(),
            running: Vec::new(),
            step: None,
            wake_at: None,
            next_id: 0,
            totals: Totals::default(),
        }
    }

    /// Puts a job in the waiting line.
    pub fn submit(&mut self, now: u64, job: Job) -> JobId {
        let id = JobId(self.next_id);
        self.next_id += 1;
        self.totals.submitted += 1;
        let priority = if self.cfg.policy == Policy::Priority { job.priority } else { 0 };
        let turn = (priority, id.0);
        // An empty prompt still has a place to begin at.
        let prompt = if job.prompt.is_empty() { vec![0] } else { job.prompt };
        let entry = Running {
            seq: Sequence::new(prompt, job.answer_seed, job.salt),
            turn,
            output_tokens: job.output_tokens,
            produced: 0,
            prefill_left: 0,
            is_counted: false,
        };
        self.jobs.insert(id, entry);
        self.waiting.insert(turn, id);
        self.wake(now);
        id
    }

    /// Takes a job out, wherever it is. `false` if it had ended already.
    pub fn abort(&mut self, now: u64, id: JobId) -> bool {
        let Some(mut job) = self.jobs.remove(&id) else { return false };
        self.waiting.remove(&job.turn);
        self.running.retain(|&other| other != id);
        let computed = job.len().saturating_sub(job.prefill_left);
        self.store.release(&mut job.seq, computed);
        self.totals.aborted += 1;
        self.wake(now);
        true
    }

    /// When [`Batch::advance`] has something to do, in nanoseconds; `None` while idle.
    pub fn next_event_at(&self) -> Option<u64> {
        match (&self.step, self.wake_at) {
            (Some(step), _) => Some(step.end),
            (None, wake) => wake,
        }
    }

    /// Brings the model to `now` and says what happened on the way, in order.
    ///
    /// Steps that take no time are run one a call, so that a caller stays in charge.
    pub fn advance(&mut self, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(at) = self.next_event_at().filter(|&at| at <= now) {
            let ended = self.step.take();
            let took_no_time = ended.is_some() && self.cfg.pace.step_ns(1, 1) == 0;
            if let Some(step) = ended {
                self.finish_step(step, &mut events);
            }
            self.begin_step(at, &mut events);
            if took_no_time {
                break;
            }
        }
        events
    }

    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Share of the memory in use, 0..=1.
    pub fn kv_usage_ratio(&self) -> f64 {
        self.store.usage_ratio()
    }

    pub fn config(&self) -> &BatchConfig {
        &self.cfg
    }

    /// Changes the speed from the next step on.
    pub fn repace(&mut self, pace: Pace) {
        self.cfg.pace = pace;
    }

    /// Empties the prefix cache, but for what is in use.
    pub fn forget_prefixes(&mut self) {
        self.store.forget();
    }

    fn wake(&mut self, now: u64) {
        if self.step.is_none() {
            self.wake_at = Some(self.wake_at.map_or(now, |at| at.min(now)));
        }
    }

    fn begin_step(&mut self, at: u64, events: &mut Vec<Event>) {
        self.wake_at = None;
        let mut step = Step::default();
        let mut budget = self.cfg.max_num_batched_tokens.max(1);
        let preempted = self.plan_decode(at, &mut step, &mut budget, events);
        self.plan_prefill(&mut step, &mut budget);
        if !preempted {
            self.plan_admissions(at, &mut step, &mut budget, events);
        }
        if step.decode.is_empty() && step.prefill.is_empty() {
            return;
        }
        let prefill_tokens: usize = step.prefill.iter().map(|&(_, tokens)| tokens).sum();
        step.end = at.saturating_add(self.cfg.pace.step_ns(step.decode.len(), prefill_tokens as u64));
        self.totals.steps += 1;
        self.step = Some(step);
    }

    /// Every running job whose prompt is done decodes one token; true if one had to go for lack of memory.
    fn plan_decode(&mut self, at: u64, step: &mut Step, budget: &mut usize, events: &mut Vec<Event>) -> bool {
        let mut preempted = false;
        let mut idx = 0;
        while let Some(&id) = self.running.get(idx) {
            let Some(job) = self.jobs.get_mut(&id) else { break };
            if job.prefill_left > 0 || *budget == 0 {
                idx += 1;
                continue;
            }
            // The token decoded now is stored with the next one; room is needed for those that exist.
            let len = job.len();
            if self.store.grow(&mut job.seq, len) {
                step.decode.push(id);
                *budget -= 1;
                idx += 1;
                continue;
            }
            if self.running.len() == 1 {
                // Alone and still too large: nothing will ever free the room it needs.
                self.close(id, at, events);
                return true;
            }
            preempted = true;
            if let Some(victim) = self.last_in_turn() {
                self.preempt(victim, at, step, budget, events);
                if victim == id {
                    continue;
                }
                idx = self.running.iter().position(|&other| other == id).unwrap_or(self.running.len());
            }
        }
        preempted
    }

    /// What is planned for a step is found by those who are planned behind it, as in vLLM: a layer writes the keys and
    /// values of the whole step before it reads any.
    fn plan_prefill(&mut self, step: &mut Step, budget: &mut usize) {
        for &id in &self.running {
            if *budget == 0 {
                return;
            }
            if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.prefill_left > 0) {
                let tokens = job.prefill_left.min(*budget);
                *budget -= tokens;
                step.prefill.push((id, tokens));
                let len = job.len() - job.prefill_left + tokens;
                self.store.computed(&mut job.seq, len);
            }
        }
    }

    fn plan_admissions(&mut self, at: u64, step: &mut Step, budget: &mut usize, events: &mut Vec<Event>) {
        while self.running.len() < self.cfg.max_num_seqs && *budget > 0 {
            let Some((&turn, &id)) = self.waiting.first_key_value() else { return };
            let Some(job) = self.jobs.get_mut(&id) else {
                self.waiting.remove(&turn);
                continue;
            };
            let len = job.len();
            if !self.store.can_ever_hold(len) {
                self.waiting.remove(&turn);
                self.jobs.remove(&id);
                self.totals.refused += 1;
                events.push(Event::Refused { id, at });
                continue;
            }
            let Some(cached) = self.store.admit(&mut job.seq, len) else { return };
            if !job.is_counted {
                job.is_counted = true;
                self.totals.prompt_tokens += len as u64;
                self.totals.cache_queries += len as u64;
                self.totals.cache_hits += cached as u64;
            }
            job.prefill_left = len - cached;
            let tokens = job.prefill_left.min(*budget);
            *budget -= tokens;
            step.prefill.push((id, tokens));
            self.store.computed(&mut job.seq, cached + tokens);
            self.waiting.remove(&turn);
            self.running.push(id);
            events.push(Event::Admitted { id, at, cached_tokens: cached.min(u32::MAX as usize) as u32 });
        }
    }

    fn last_in_turn(&self) -> Option<JobId> {
        self.running.iter().copied().max_by_key(|id| self.jobs.get(id).map(|job| job.turn))
    }

    fn preempt(&mut self, id: JobId, at: u64, step: &mut Step, budget: &mut usize, events: &mut Vec<Event>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let computed = job.len().saturating_sub(job.prefill_left);
        self.store.release(&mut job.seq, computed);
        job.prefill_left = 0;
        self.waiting.insert(job.turn, id);
        self.running.retain(|&other| other != id);
        let planned = step.decode.len();
        step.decode.retain(|&other| other != id);
        *budget += planned - step.decode.len();
        self.totals.preemptions += 1;
        events.push(Event::Preempted { id, at });
    }

    fn finish_step(&mut self, step: Step, events: &mut Vec<Event>) {
        for (id, tokens) in step.prefill {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.prefill_left = job.prefill_left.saturating_sub(tokens);
            if job.prefill_left == 0 {
                let len = job.len();
                self.store.computed(&mut job.seq, len);
                self.produce(id, step.end, events);
            }
        }
        for id in step.decode {
            if let Some(job) = self.jobs.get_mut(&id) {
                let len = job.len();
                self.store.computed(&mut job.seq, len);
                self.produce(id, step.end, events);
            }
        }
    }

    fn produce(&mut self, id: JobId, at: u64, events: &mut Vec<Event>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.produced < job.output_tokens {
            job.produced += 1;
            self.totals.generation_tokens += 1;
            events.push(Event::Token { id, at, produced: job.produced });
        }
        if job.produced >= job.output_tokens {
            self.close(id, at, events);
        }
    }

    fn close(&mut self, id: JobId, at: u64, events: &mut Vec<Event>) {
        if let Some(mut job) = self.jobs.remove(&id) {
            // The newest token was never fed back, so it is not part of what is remembered.
            let computed = job.len().saturating_sub(usize::from(job.produced > 0));
            self.store.release(&mut job.seq, computed);
            self.running.retain(|&other| other != id);
            self.totals.finished += 1;
            events.push(Event::Finished { id, at });
        }
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
