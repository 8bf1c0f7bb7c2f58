//! Where a request's prompt is cached, as one decision sees it: what scorers read of it, and whether it is followed.
//!
//! Made by the dispatcher from what the prefix table found, used by the pipeline. Counts nothing itself.

use llmgw_types::CoreId;

use crate::prefix::cost::Work;
use crate::prefix::guard::{Course, Decision, Facts, Thresholds, followed, judge};
use crate::prefix::{Matches, StampTable};

use super::{Candidate, Context};

/// What is known of where a request's prompt is cached.
#[derive(Clone, Copy)]
pub struct Cached<'a> {
    /// The table, for what engines have to prefill.
    pub table: &'a StampTable,
    /// What was found.
    pub matches: &'a Matches,
    /// The prompt's length as estimated, tokens.
    pub prompt_tokens: u32,
    /// When it is followed.
    pub thresholds: Thresholds,
    /// Whether it is: what a scorer of prefixes goes by.
    pub is_followed: bool,
}

/// What became of a request's prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// The word for it.
    pub decision: Decision,
    /// Blocks of the prompt.
    pub blocks: u32,
    /// Those that its engine is taken to have cached.
    pub cached: u32,
    /// Those that its engine had once, and what it got since it got the last of them, tokens: for learning what it
    /// holds.
    pub known: Option<(u32, u64)>,
    /// Tokens that its engine was given to prefill, as estimated, where they were counted against its share.
    pub given: Option<u32>,
}

impl Reuse {
    /// The part of the prompt that is taken to be cached.
    pub fn part(&self) -> f32 {
        self.cached as f32 / self.blocks.max(1) as f32
    }
}

impl Cached<'_> {
    /// The part of the prompt that an engine has.
    pub fn part(&self, candidate: &Candidate) -> f32 {
        self.cached(candidate) as f32 / self.matches.blocks().max(1) as f32
    }

    /// Blocks of the prompt that an engine has.
    pub fn cached(&self, candidate: &Candidate) -> u32 {
        self.matches.cached(self.table.ledger(), candidate.slot)
    }

    /// Tokens that a core gave an engine to prefill beyond its share.
    pub fn beyond(&self, core: CoreId, candidate: &Candidate) -> f32 {
        self.table.ledger().shares(core).beyond(candidate.slot)
    }

    /// Tokens of the prompt that an engine would have to prefill.
    pub fn tokens_left(&self, candidate: &Candidate) -> u32 {
        self.matches.tokens_left(self.table.ledger(), candidate.slot, self.prompt_tokens)
    }

    /// How an engine is to be chosen. Cost: one pass over the candidates; their loads are read only when some of the
    /// prompt is cached.
    pub(super) fn course(&self, ctx: &Context<'_>, candidates: &[Candidate]) -> Course {
        let most = candidates.iter().map(|candidate| self.cached(candidate)).max().unwrap_or(0);
        let mut facts =
            Facts { blocks: self.matches.blocks(), cached: most, known: self.matches.known(), ..Facts::default() };
        if most > 0 {
            (facts.load_there, facts.load_least) = (f32::MAX, f32::MAX);
            let mut weight = f32::MIN_POSITIVE;
            for candidate in candidates {
                let load = work(ctx, candidate).load();
                facts.load_least = facts.load_least.min(load);
                if self.cached(candidate) == most && load < facts.load_there {
                    (facts.load_there, weight) = (load, candidate.weight);
                }
            }
            let one = Work { queued_tokens: self.prompt_tokens.into(), requests: 1, waiting: 0, weight };
            facts.load_of_one = one.load();
        }
        judge(&facts, &self.thresholds)
    }

    /// The candidate that has most of the prompt; of equals the first.
    pub(super) fn best(&self, candidates: &[Candidate]) -> Option<Candidate> {
        let most = candidates.iter().rev().max_by_key(|candidate| self.cached(candidate)).copied();
        most.filter(|candidate| self.cached(candidate) > 0)
    }

    /// What became of the prompt of a request that went to an engine.
    pub(super) fn outcome(&self, course: Course, chosen: &Candidate) -> Reuse {
        let (blocks, cached) = (self.matches.blocks(), self.cached(chosen));
        let decision = match course {
            Course::Follow => followed(cached, blocks, &self.thresholds),
            Course::Ignore(decision) | Course::LeastLoaded(decision) => decision,
        };
        let known = self.matches.age(chosen.slot).map(|age| (self.matches.known_at(chosen.slot), age));
        Reuse { decision, blocks, cached, known, given: None }
    }
}

/// What an engine has to do, as far as is known: our own requests, which are counted as they come and go, and those of
/// its newest sample that are not ours. What others sent there has no tokens. One that comes when the batch is known to
/// be full waits.
pub fn work(ctx: &Context<'_>, candidate: &Candidate) -> Work {
    let cells = ctx.board.endpoint(candidate.slot);
    let sample = ctx.sample(candidate.slot);
    let foreign = sample.map_or(0, |_| i64::from(cells.foreign()));
    let requests = ctx.board.in_flight(candidate.slot).max(0) + foreign;
    let queued_tokens = match ctx.cached {
        Some(cached) => cached.table.ledger().queued(candidate.slot),
        None => ctx.board.tokens_in_flight(candidate.slot),
    };
    let batch = cells.batch_capacity().filter(|_| cells.is_capacity_limit());
    let waiting = match batch {
        Some(batch) => (requests + 1 - i64::from(batch)).max(0),
        None => sample.map_or(0, |sample| i64::from(sample.waiting)).min(requests),
    };
    Work { queued_tokens, requests, waiting, weight: candidate.weight }
}
