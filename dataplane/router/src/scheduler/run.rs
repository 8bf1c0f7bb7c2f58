//! The pipeline: filter, follow the session, shortlist, score, choose. One per core, with buffers that are used again.

use std::time::Duration;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_types::snapshot::{ArchivedPool, ArchivedRouteTable};
use llmgw_types::{BoardSlot, CoreId, EndpointIdx};

use super::cached::{Cached, Reuse, work};
use super::explain::{CandidateLook, PoolLook};
use super::pickers::MaxScore;
use super::profile::RoutingProfile;
use super::{Candidate, Context, Draw, Picker as _, registry};
use crate::board::Board;
use crate::metrics::POOL_ROWS_MAX;
use crate::prefix::guard::Course;
use crate::session::{Bound, Ring};

/// For how long an endpoint that became ready takes less than its share.
pub const SLOW_START: Duration = Duration::from_secs(30);
/// The part it begins with.
const SLOW_START_FROM: f32 = 0.1;

/// Candidates of which a profile by cost reads every one, whatever its picker: two drawn at random seldom have the
/// prompt. Of more, those that the picker draws and the one that has most of it.
const READ_ALL_MAX: usize = 64;

/// What a decision went through, added up until it is taken.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Members that were looked at.
    pub considered: u32,
    /// Those that a filter dropped, by its place in [`registry::FILTERS`].
    pub filtered: [u32; registry::FILTERS.len()],
}

/// The pool that a decision is about.
#[derive(Clone, Copy)]
pub struct InPool<'a> {
    /// The table.
    pub table: &'a ArchivedRouteTable,
    /// One of its pools.
    pub pool: &'a ArchivedPool,
    /// How to choose.
    pub profile: &'a RoutingProfile,
    /// The request's session, if it has one.
    pub session: Option<Session<'a>>,
}

/// A request's session, as one pool sees it.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    /// Hash of its key.
    pub key: u64,
    /// The pool's ring.
    pub ring: &'a Ring,
    /// Where it went when its own engine was full.
    pub away: Option<BoardSlot>,
    /// Load over the mean at which its engine is passed over.
    pub load_factor: f32,
}

/// How a request's session came to its endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seat {
    /// No session was followed.
    #[default]
    Unasked,
    /// The endpoint that every core finds by the ring.
    Own,
    /// Another one, for want of room there, at this time or before.
    Away,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug)]
pub struct Picked {
    /// Who gets the request.
    pub candidate: Candidate,
    /// How its session came there.
    pub seat: Seat,
    /// What became of its prompt; absent where nobody looked for it.
    pub reuse: Option<Reuse>,
}

/// Runs decisions. Owner: one core.
pub struct Scheduler {
    chance: Chance,
    /// By the pool's metric row, which is its own for life.
    turns: Vec<u32>,
    candidates: Vec<Candidate>,
    scores: Vec<f32>,
    total: Vec<f32>,
    tally: Tally,
}

impl Scheduler {
    /// A scheduler that draws from `chance`.
    pub fn new(chance: Chance) -> Self {
        let tally = Tally::default();
        Self { chance, turns: Vec::new(), candidates: Vec::new(), scores: Vec::new(), total: Vec::new(), tally }
    }

    /// What decisions went through since this was asked last.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// The endpoint of the pool that gets the request; `None` when no member passes the filters.
    ///
    /// Cost: one pass over the members for the filters, one more over those left for a session's bound; scores only for
    /// the picker's shortlist; no allocation once the buffers have grown to the pool's size, unless `look` is there to
    /// be filled.
    pub fn pick(&mut self, within: InPool<'_>, ctx: &Context<'_>, mut look: Option<&mut PoolLook>) -> Option<Picked> {
        let InPool { table, pool, profile, session } = within;
        self.filter(table, pool, ctx, look.as_deref_mut());
        if self.candidates.is_empty() {
            return None;
        }
        let owner = session.filter(|_| profile.picker.follows_sessions());
        let (owner, seat) = owner.and_then(|session| self.session_member(session, ctx.board)).unzip();
        let cached = ctx.cached.filter(|_| profile.picker.follows_sessions());
        let course = cached.map(|cached| cached.course(ctx, &self.candidates));
        let is_followed = course == Some(Course::Follow);
        let ctx = &Context {
            session: owner.map(|candidate| candidate.slot),
            cached: cached.map(|cached| Cached { is_followed, ..cached }),
            w_overlap: profile.w_overlap.unwrap_or(ctx.w_overlap),
            ..*ctx
        };

        let turn = turn(&mut self.turns, pool.metric_row.to_native(), &mut self.chance);
        if let Some(look) = look.as_deref_mut() {
            look.picker = profile.picker.name();
            look.scorers = profile.scorers.iter().map(|(scorer, weight)| (scorer.name(), *weight)).collect();
            look.temperature = profile.temperature;
            (look.seed, look.turn) = (self.chance.state(), *turn);
            look.session = owner.map(|candidate| candidate.member);
            look.w_overlap = profile.w_overlap;
            if let Some(cached) = ctx.cached {
                record_cached(look, &self.candidates, &cached, profile.w_overlap.map(|_| ctx.core));
            }
        }
        let goes_by_session = owner.is_some() && !profile.weighs_sessions;
        let reads_all = profile.w_overlap.is_some() && self.candidates.len() <= READ_ALL_MAX;
        let chosen = match owner {
            Some(owner) if goes_by_session => Some(owner),
            _ if matches!(course, Some(Course::LeastLoaded(_))) => {
                let mut draw = Draw { chance: &mut self.chance, turn, temperature: profile.temperature };
                self.total.clear();
                self.total.extend(self.candidates.iter().map(|candidate| -work(ctx, candidate).load()));
                let at = MaxScore.choose(&self.candidates, &self.total, &mut draw);
                self.candidates.get(at).copied()
            }
            _ => {
                let mut draw = Draw { chance: &mut self.chance, turn, temperature: profile.temperature };
                if !reads_all {
                    let best = ctx.cached.filter(|_| is_followed).and_then(|cached| cached.best(&self.candidates));
                    profile.picker.shortlist(&mut self.candidates, &mut draw);
                    if let Some(best) = best.filter(|best| !self.candidates.contains(best)) {
                        self.candidates.push(best);
                    }
                }
                // Whoever weighs sessions must see the session's endpoint.
                if let Some(owner) = owner.filter(|owner| !self.candidates.contains(owner)) {
                    self.candidates.push(owner);
                }
                self.total.clear();
                self.total.resize(self.candidates.len(), 0.0);
                self.scores.resize(self.candidates.len(), 0.0);
                for (scorer, weight) in &profile.scorers {
                    scorer.score(ctx, &self.candidates, &mut self.scores);
                    for (total, score) in self.total.iter_mut().zip(&self.scores) {
                        *total += weight * score;
                    }
                    if let Some(look) = look.as_deref_mut() {
                        record_scores(look, &self.candidates, &self.scores);
                    }
                }
                let at = profile.picker.choose(&self.candidates, &self.total, &mut draw);
                self.candidates.get(at).copied()
            }
        };
        let seat = seat.filter(|_| chosen == owner).unwrap_or_default();
        let candidate = chosen?;
        let mut reuse = ctx.cached.zip(course).map(|(cached, course)| match course {
            // Its session went before load.
            Course::LeastLoaded(_) if goes_by_session => cached.outcome(Course::Follow, &candidate),
            course => cached.outcome(course, &candidate),
        });
        // Where not all are read, who is ahead of whom is not known.
        if let (Some(cached), Some(reuse)) = (ctx.cached.filter(|_| reads_all), &mut reuse) {
            let given = cached.tokens_left(&candidate);
            let members = self.candidates.iter().map(|candidate| (candidate.slot, candidate.weight));
            cached.table.ledger().shares(ctx.core).give(members, candidate.slot, given);
            reuse.given = Some(given);
        }
        if let Some(look) = look {
            (look.chosen, look.reuse) = (Some(candidate.member), reuse);
        }
        Some(Picked { candidate, seat, reuse })
    }

    fn filter(
        &mut self,
        table: &ArchivedRouteTable,
        pool: &ArchivedPool,
        ctx: &Context<'_>,
        mut look: Option<&mut PoolLook>,
    ) {
        self.candidates.clear();
        for candidate in members(table, pool, ctx) {
            let dropped_by = registry::dropped_by(ctx, &candidate);
            self.tally.considered += 1;
            match dropped_by.and_then(|filter| self.tally.filtered.get_mut(filter)) {
                Some(count) => *count += 1,
                None => self.candidates.push(candidate),
            }
            if let Some(look) = look.as_deref_mut() {
                look.candidates.push(CandidateLook {
                    endpoint: candidate.endpoint,
                    slot: candidate.slot,
                    weight: candidate.weight,
                    dropped_by: dropped_by.and_then(|filter| registry::FILTER_NAMES.get(filter).copied()),
                    cached: None,
                    beyond: None,
                    scores: Vec::new(),
                });
            }
        }
    }

    /// The candidate that a session belongs to: where it is already, else the first on the ring, whichever is under the
    /// bound.
    fn session_member(&self, session: Session<'_>, board: &Board) -> Option<(Candidate, Seat)> {
        let mut bound = Bound { requests: 0, weight: 0.0, factor: session.load_factor };
        for candidate in &self.candidates {
            bound.requests += board.in_flight(candidate.slot).max(0);
            bound.weight += candidate.weight;
        }
        let admits = |candidate: &Candidate| bound.admits(board.in_flight(candidate.slot), candidate.weight);
        let away = session.away.and_then(|slot| self.candidates.iter().find(|candidate| candidate.slot == slot));
        let away = away.filter(|candidate| admits(candidate));
        let (mut own, mut found) = (None, None);
        session.ring.find(session.key, |member| {
            let at = self.candidates.binary_search_by_key(&member, |candidate| candidate.member);
            let Some(candidate) = at.ok().and_then(|at| self.candidates.get(at)) else { return false };
            own.get_or_insert(member);
            found = Some(*candidate);
            away.is_some() || admits(candidate)
        })?;
        let found = away.copied().or(found)?;
        Some((found, if own == Some(found.member) { Seat::Own } else { Seat::Away }))
    }
}

/// The members of a pool as candidates, in its order.
fn members<'a>(
    table: &'a ArchivedRouteTable,
    pool: &'a ArchivedPool,
    ctx: &'a Context<'_>,
) -> impl Iterator<Item = Candidate> + 'a {
    (0u32..).zip(pool.members.iter()).filter_map(move |(member, row)| {
        let endpoint = table.endpoints.get(row.endpoint.to_native() as usize)?;
        let slot = BoardSlot(endpoint.slot.to_native());
        let weight = endpoint.weight.to_native().max(1) as f32 * ramp(ctx.board.endpoint(slot).ready_since(), ctx.now);
        let endpoint_row = EndpointIdx(row.endpoint.to_native());
        Some(Candidate { endpoint: endpoint_row, member, slot, weight, has_addr: endpoint.addr.is_some() })
    })
}

/// Whether any member of a pool passes the filters.
pub fn has_candidate(table: &ArchivedRouteTable, pool: &ArchivedPool, ctx: &Context<'_>) -> bool {
    members(table, pool, ctx).any(|candidate| registry::FILTERS.iter().all(|filter| filter.keeps(ctx, &candidate)))
}

/// What each scorer says of each member of a pool now, whether it may get requests or not. For pages, never for a
/// decision: allocates, and reads every cell.
pub fn survey(
    table: &ArchivedRouteTable,
    pool: &ArchivedPool,
    ctx: &Context<'_>,
    mut tell: impl FnMut(&'static str, EndpointIdx, f32),
) {
    let candidates: Vec<Candidate> = members(table, pool, ctx).collect();
    let mut scores = vec![0.0; candidates.len()];
    for scorer in &registry::SCORERS {
        scorer.score(ctx, &candidates, &mut scores);
        candidates.iter().zip(&scores).for_each(|(candidate, score)| tell(scorer.name(), candidate.endpoint, *score));
    }
}

/// The part of its weight that an endpoint has so long after it became ready.
#[inline]
fn ramp(since: Option<Mono>, now: Mono) -> f32 {
    let Some(since) = since else { return 1.0 };
    // In whole nanoseconds: nearly all endpoints became ready long ago, and this is asked for each of them.
    let (passed, whole) = (now.0.saturating_sub(since.0), SLOW_START.as_nanos() as u64);
    if passed >= whole {
        return 1.0;
    }
    SLOW_START_FROM + (1.0 - SLOW_START_FROM) * (passed as f32 / whole as f32)
}

/// The pool's turn on this core. Cores begin at places of their own.
fn turn<'t>(turns: &'t mut Vec<u32>, row: u32, chance: &mut Chance) -> &'t mut u32 {
    // Pools beyond the rows are counted as one, here as in metrics.
    let row = if (row as usize) < POOL_ROWS_MAX { row as usize } else { 0 };
    if turns.len() <= row {
        turns.resize_with(row + 1, || (chance.next_u64() >> 32) as u32);
    }
    &mut turns[row]
}

fn record_cached(look: &mut PoolLook, candidates: &[Candidate], cached: &Cached<'_>, core: Option<CoreId>) {
    for candidate in candidates {
        if let Some(row) = look.candidates.get_mut(candidate.member as usize) {
            row.cached = Some(cached.cached(candidate));
            row.beyond = core.map(|core| cached.beyond(core, candidate));
        }
    }
}

fn record_scores(look: &mut PoolLook, candidates: &[Candidate], scores: &[f32]) {
    for (candidate, score) in candidates.iter().zip(scores) {
        if let Some(row) = look.candidates.get_mut(candidate.member as usize) {
            row.scores.push(*score);
        }
    }
}
