//! Choose and count nothing: the pools of a model in their order, and in one of them an endpoint.
//!
//! Called by the [`Dispatcher`](super::Dispatcher) of a core, and by whoever counts in a way of its own. Changes when
//! there is more to choose by. Never raises a cell.

use std::sync::Arc;

use llmgw_kit::clock::Mono;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::{BoardSlot, CoreId, EndpointIdx, PoolIdx};

use crate::board::Board;
use crate::prefix::approx::Placed;
use crate::prefix::{Fingerprint, Matches, Prefilling, StampTable, Thresholds};
use crate::scheduler::cached::{Cached, Reuse};
use crate::scheduler::explain::Explanation;
use crate::scheduler::profile::RoutingProfile;
use crate::scheduler::run::{InPool, Picked, Scheduler, Seat, Session, Tally, has_candidate};
use crate::scheduler::{Candidate, Context};
use crate::session::Ring;

/// No endpoint of any pool of the model may get the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEndpoint;

/// What a core decides on: a publication as that core works with it.
#[derive(Clone, Copy)]
pub struct Map<'a> {
    /// The table.
    pub table: &'a ArchivedRouteTable,
    /// Its pools' rings, by row.
    pub rings: &'a [Ring],
    /// Its routing profiles, by row.
    pub profiles: &'a [RoutingProfile],
}

/// What a request wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Row of its model.
    pub model: u32,
    /// Row of the routing profile it asked for; else its model's.
    pub profile: Option<u32>,
    /// Endpoints it was tried at; it goes to none of them again.
    pub excluded: &'a [BoardSlot],
    /// The only endpoint that can serve it.
    pub pinned: Option<BoardSlot>,
    /// Where its session went when its own engine was full.
    pub away: Option<BoardSlot>,
    /// Hash of its session's key, see [`crate::session::key_hash`].
    pub session: Option<u64>,
    /// Its prompt, salted with the model's name; it is looked for where the pool says so.
    pub prompt: Option<&'a Fingerprint>,
    /// What its prompt is estimated to cost.
    pub tokens: u32,
    /// When this is.
    pub now: Mono,
}

/// What a decision looks at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The load board.
    pub board: &'a Board,
    /// Whose decision it is.
    pub core: CoreId,
    /// The tables.
    pub map: Map<'a>,
}

/// An endpoint that was chosen; nothing is counted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The pool.
    pub pool: PoolIdx,
    /// The endpoint, a row of the same table.
    pub endpoint: EndpointIdx,
    /// Its position among the pool's members.
    pub member: u32,
    /// Its column on the board.
    pub slot: BoardSlot,
    /// How the request's session came there.
    pub seat: Seat,
    /// What became of its prompt; absent where nobody looked for it.
    pub reuse: Option<Reuse>,
}

/// Decides, and counts no load: for whoever counts in a way of its own. What an engine is given to prefill beyond its
/// share is counted, sent or not: an estimate that work forgets. Cores use a [`Dispatcher`].
pub struct Decider {
    scheduler: Scheduler,
    prefixes: Option<Prefixes>,
}

/// The prefix table, and what one request found in it.
struct Prefixes {
    table: Arc<StampTable>,
    matches: Matches,
}

impl Decider {
    /// A decider that chooses with `scheduler`.
    pub fn new(scheduler: Scheduler) -> Self {
        Self { scheduler, prefixes: None }
    }

    /// The same with a table of where prompts are cached.
    pub fn with_table(self, table: Arc<StampTable>) -> Self {
        let matches = Matches::new(table.ledger().slot_count());
        Self { prefixes: Some(Prefixes { table, matches }), ..self }
    }

    /// The endpoint for a request, in the first of its model's pools (by priority) with an eligible one. Fills in
    /// `explanation` where one is wanted.
    ///
    /// Errors: no pool has an eligible endpoint.
    pub fn choose(
        &mut self,
        view: View<'_>,
        wanted: &Wanted<'_>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Choice, NoEndpoint> {
        let route = view.map.table.models.get(wanted.model as usize).ok_or(NoEndpoint)?;
        self.try_pools(view, route, wanted, explanation)
    }

    /// What decisions went through since this was asked last.
    pub fn take_tally(&mut self) -> Tally {
        self.scheduler.take_tally()
    }

    fn try_pools(
        &mut self,
        view: View<'_>,
        route: &ArchivedModelRoute,
        wanted: &Wanted<'_>,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<Choice, NoEndpoint> {
        let mut rows = route.pools.iter().map(|row| PoolIdx(row.to_native()));
        rows.find_map(|row| self.choose_in(view, row, wanted, explanation.as_deref_mut())).ok_or(NoEndpoint)
    }

    /// The endpoint for a request in one pool of its model; `None` when no member of it may get the request.
    pub fn choose_in(
        &mut self,
        View { board, core, map }: View<'_>,
        row: PoolIdx,
        wanted: &Wanted<'_>,
        explanation: Option<&mut Explanation>,
    ) -> Option<Choice> {
        let route = map.table.models.get(wanted.model as usize)?;
        let pool = map.table.pools.get(row.idx())?;
        let profile = map.profiles.get(wanted.profile.unwrap_or_else(|| route.profile.to_native()) as usize)?;
        let ctx = Context::of(board, core, wanted.now, map.table, route, pool);
        let prompt = wanted.prompt.zip(pool.prefix.as_ref());
        let cached = prompt.zip(self.prefixes.as_mut()).map(|((prompt, spec), Prefixes { table, matches })| {
            table.find(prompt, wanted.now, matches);
            let (prompt_tokens, thresholds) = (wanted.tokens, Thresholds::of(spec));
            Cached { table, matches, prompt_tokens, thresholds, is_followed: false }
        });
        let ctx = Context { excluded: wanted.excluded, pinned: wanted.pinned, cached, ..ctx };
        let session = match (wanted.session, route.placement.session.as_ref(), map.rings.get(row.idx())) {
            (Some(key), Some(spec), Some(ring)) => {
                Some(Session { key, ring, away: wanted.away, load_factor: spec.load_factor.to_native() })
            }
            _ => None,
        };
        let look = explanation.and_then(|explanation| explanation.next(wanted.model, row.0));
        let within = InPool { table: map.table, pool, profile, session };
        let Picked { candidate, seat, reuse } = self.scheduler.pick(within, &ctx, look)?;
        let Candidate { endpoint, member, slot, .. } = candidate;
        Some(Choice { pool: row, endpoint, member, slot, seat, reuse })
    }

    /// Remembers where a request's prompt went, and counts what its engine has to prefill of it. `choice` is what was
    /// chosen last.
    pub fn placed(
        &mut self,
        View { core, map, .. }: View<'_>,
        choice: &Choice,
        wanted: &Wanted<'_>,
    ) -> Option<Prefilling> {
        let (prompt, Prefixes { table, matches }) = wanted.prompt.zip(self.prefixes.as_mut())?;
        map.table.pools.get(choice.pool.idx())?.prefix.as_ref()?;
        if choice.reuse.is_none() {
            // Whoever chose did not look.
            table.find(prompt, wanted.now, matches);
        }
        let placed = Placed { core, slot: choice.slot, prompt_tokens: wanted.tokens, now: wanted.now };
        Some(Prefilling::new(table.clone(), table.record(prompt, matches, &placed)))
    }

    /// Whether anybody in the pool may get the request. Cost: one pass over its members at most.
    pub(super) fn has_candidate(&self, View { board, core, map }: View<'_>, row: PoolIdx, wanted: &Wanted<'_>) -> bool {
        let Some(route) = map.table.models.get(wanted.model as usize) else { return false };
        let Some(pool) = map.table.pools.get(row.idx()) else { return false };
        let ctx = Context::of(board, core, wanted.now, map.table, route, pool);
        let ctx = Context { excluded: wanted.excluded, pinned: wanted.pinned, ..ctx };
        has_candidate(map.table, pool, &ctx)
    }
}

/// Of the endpoints that nothing but a cooldown or a breaker keeps from requests, the one that comes back first: for
/// requests that would find nobody at all.
///
/// Errors: none of the model's endpoints is ready.
pub fn first_back(board: &Board, table: &ArchivedRouteTable, wanted: &Wanted<'_>) -> Result<Choice, NoEndpoint> {
    let route = table.models.get(wanted.model as usize).ok_or(NoEndpoint)?;
    let mut first: Option<(Mono, Choice)> = None;
    for row in route.pools.iter().map(|row| row.to_native()) {
        let Some(pool) = table.pools.get(row as usize) else { continue };
        for (member, endpoint) in (0u32..).zip(pool.members.iter().map(|member| member.endpoint.to_native())) {
            let Some(found) = table.endpoints.get(endpoint as usize) else { continue };
            let slot = BoardSlot(found.slot.to_native());
            let cells = board.endpoint(slot);
            let is_usable = found.addr.is_some() && cells.is_ready() && !cells.is_draining();
            let back_at = cells.out_until();
            let is_sooner = first.is_none_or(|(earliest, _)| back_at < earliest);
            let is_asked_for = wanted.pinned.is_none_or(|pinned| pinned == slot);
            if is_usable && is_sooner && is_asked_for && !wanted.excluded.contains(&slot) {
                let (pool, endpoint) = (PoolIdx(row), EndpointIdx(endpoint));
                first = Some((back_at, Choice { pool, endpoint, member, slot, seat: Seat::Unasked, reuse: None }));
            }
        }
    }
    first.map(|(_, choice)| choice).ok_or(NoEndpoint)
}
