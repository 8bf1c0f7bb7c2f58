//! Pass the gate, pick and count in one step: the only place where "when" and "where" meet.
//!
//! A [`Grant`] comes with a [`Place`] that counts the request on the load board and gives it back when it is dropped,
//! however the request ends.

use std::rc::Rc;
use std::sync::Arc;

use llmgw_kit::clock::Mono;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::{BandRank, BoardSlot, CoreId, EndpointIdx, PoolIdx, PoolSlot};

use crate::admission::{Attempt, Cells, Gate, PoolGate, PoolPlace};
use crate::board::Board;
use crate::prefix::approx::Placed;
use crate::prefix::{Fingerprint, Matches, Prefilling, StampTable, Thresholds};
use crate::scheduler::cached::{Cached, Reuse};
use crate::scheduler::explain::Explanation;
use crate::scheduler::profile::RoutingProfile;
use crate::scheduler::run::{InPool, Picked, Scheduler, Seat, Session, Tally, has_candidate};
use crate::scheduler::{Candidate, Context};
use crate::session::Ring;

/// A core's share of the load board.
pub struct CoreBoard {
    board: Arc<Board>,
    core: CoreId,
}

/// A request's count on the board: one up while it lives, one down when it is dropped.
pub struct Place {
    share: Rc<CoreBoard>,
    slot: BoardSlot,
    tokens: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.share.board.lower(self.share.core, self.slot, self.tokens);
    }
}

/// Where a request goes.
pub struct Grant {
    /// The pool.
    pub pool: PoolIdx,
    /// The endpoint, a row of the same table.
    pub endpoint: EndpointIdx,
    /// Its position among the pool's members.
    pub member: u32,
    /// Its column on the board.
    pub slot: BoardSlot,
    /// How its session came there.
    pub seat: Seat,
    /// What became of its prompt; absent where nobody looked for it.
    pub reuse: Option<Reuse>,
    /// The count that goes with it.
    pub place: Place,
    /// What its engine has to prefill of it: to be dropped at the first token.
    pub prefilling: Option<Prefilling>,
}

/// No endpoint of any pool of the model may get the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEndpoint;

/// Why a request is not on its way yet.
pub enum Held<C: Cells> {
    /// Pools that could serve it have no room: it may wait for them.
    Shut(Attempt<C>),
    /// No endpoint of any pool of the model may get it.
    NoEndpoint,
}

/// Whose request is to be admitted, and how owners are found.
#[derive(Clone, Copy)]
pub struct AtGate<'a, C: Cells> {
    /// This core's gates.
    pub gate: &'a Gate<C>,
    /// The request's band.
    pub band: BandRank,
    /// The core that owns what hashes to that.
    pub owner_of: fn(u64, u32) -> CoreId,
}

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

/// Decides, and counts nothing: for whoever counts in a way of its own. Cores use a [`Dispatcher`].
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
    fn has_candidate(&self, View { board, core, map }: View<'_>, row: PoolIdx, wanted: &Wanted<'_>) -> bool {
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

/// Decides for one core.
pub struct Dispatcher {
    share: Rc<CoreBoard>,
    decider: Decider,
}

impl Dispatcher {
    /// A dispatcher for `core`.
    pub fn new(board: Arc<Board>, core: CoreId, scheduler: Scheduler) -> Self {
        Self { share: Rc::new(CoreBoard { board, core }), decider: Decider::new(scheduler) }
    }

    /// The same with a table of where prompts are cached.
    pub fn with_table(self, table: Arc<StampTable>) -> Self {
        Self { decider: self.decider.with_table(table), ..self }
    }

    /// Finds a place for a request, see [`Decider::choose`], and counts it there before it returns.
    ///
    /// Errors: no pool has an eligible endpoint.
    pub fn dispatch(
        &mut self,
        map: Map<'_>,
        wanted: &Wanted<'_>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Grant, NoEndpoint> {
        let view = View { board: &self.share.board, core: self.share.core, map };
        let choice = self.decider.choose(view, wanted, explanation)?;
        Ok(self.grant(map, choice, wanted))
    }

    /// Passes the gate of the first pool that has room and somebody to serve the request, and finds and counts its
    /// place there before it returns: nothing lies between the gate and the engine.
    ///
    /// Errors: what may be waited for, or that there is nobody.
    pub fn admit<C: Cells>(
        &mut self,
        map: Map<'_>,
        wanted: &Wanted<'_>,
        at: AtGate<'_, C>,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<(Grant, PoolPlace<C>), Held<C>> {
        let share = self.share.clone();
        let view = View { board: &share.board, core: share.core, map };
        let Some(route) = map.table.models.get(wanted.model as usize) else { return Err(Held::NoEndpoint) };
        let mut attempt = at.gate.attempt(at.band);
        for row in route.pools.iter().map(|row| PoolIdx(row.to_native())) {
            let Some(pool) = map.table.pools.get(row.idx()) else { continue };
            let owner = (at.owner_of)(pool.gate.to_native(), share.board.core_count());
            let Some(place) = attempt.try_pool(PoolGate { slot: PoolSlot(pool.slot.to_native()), owner }) else {
                if !self.decider.has_candidate(view, row, wanted) {
                    attempt.leave_out_last();
                }
                continue;
            };
            if let Some(choice) = self.decider.choose_in(view, row, wanted, explanation.as_deref_mut()) {
                place.runs_at(choice.slot);
                return Ok((self.grant(map, choice, wanted), place));
            }
        }
        Err(if attempt.shut().is_empty() { Held::NoEndpoint } else { Held::Shut(attempt) })
    }

    /// Finds and counts a place in the pool in which a request holds one already: after a grant, or for a retry.
    ///
    /// Errors: no endpoint of that pool may get it; the place in the pool is still held.
    pub fn dispatch_in<C: Cells>(
        &mut self,
        map: Map<'_>,
        wanted: &Wanted<'_>,
        place: &PoolPlace<C>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Grant, NoEndpoint> {
        let route = map.table.models.get(wanted.model as usize).ok_or(NoEndpoint)?;
        let has_slot = |row: &PoolIdx| {
            map.table.pools.get(row.idx()).is_some_and(|pool| pool.slot.to_native() == place.pool().slot.0)
        };
        let row = route.pools.iter().map(|row| PoolIdx(row.to_native())).find(has_slot).ok_or(NoEndpoint)?;
        let view = View { board: &self.share.board, core: self.share.core, map };
        let choice = self.decider.choose_in(view, row, wanted, explanation).ok_or(NoEndpoint)?;
        place.runs_at(choice.slot);
        Ok(self.grant(map, choice, wanted))
    }

    /// A place at the endpoint that [`first_back`] finds.
    ///
    /// Errors: none of the model's endpoints is ready.
    pub fn last_resort(&mut self, map: Map<'_>, wanted: &Wanted<'_>) -> Result<Grant, NoEndpoint> {
        let choice = first_back(&self.share.board, map.table, wanted)?;
        Ok(self.grant(map, choice, wanted))
    }

    /// Whether anybody in the pool may get the request. Cost: one pass over its members at most.
    pub fn has_candidate(&self, map: Map<'_>, row: PoolIdx, wanted: &Wanted<'_>) -> bool {
        let view = View { board: &self.share.board, core: self.share.core, map };
        self.decider.has_candidate(view, row, wanted)
    }

    /// What decisions went through since this was asked last.
    pub fn take_tally(&mut self) -> Tally {
        self.decider.take_tally()
    }

    fn grant(&mut self, map: Map<'_>, choice: Choice, wanted: &Wanted<'_>) -> Grant {
        let Choice { pool, endpoint, member, slot, seat, reuse } = choice;
        let (share, tokens) = (&self.share, wanted.tokens);
        share.board.raise(share.core, slot, tokens);
        let view = View { board: &share.board, core: share.core, map };
        let prefilling = self.decider.placed(view, &choice, wanted);
        let place = Place { share: share.clone(), slot, tokens };
        Grant { pool, endpoint, member, slot, seat, reuse, place, prefilling }
    }
}

#[cfg(test)]
mod tests {
    use llmgw_kit::chance::Chance;
    use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
    use llmgw_types::snapshot::{Endpoint, Member, ModelName, ModelRoute, Placement, Pool, ProfileSpec, Units};
    use llmgw_types::{EngineKind, RouteTable, Snapshot};

    use super::*;

    struct World {
        board: Arc<Board>,
        snapshot: Snapshot,
        profiles: Vec<RoutingProfile>,
        dispatcher: Dispatcher,
    }

    /// One model; a pool for each entry of `pools` with so many endpoints, by falling priority; all ready.
    fn world(pools: &[u32], picker: &str) -> World {
        let count: u32 = pools.iter().sum();
        let mut next = 0;
        let table = RouteTable {
            generation: 1,
            endpoints: (0..count)
                .map(|slot| Endpoint {
                    name: format!("e{slot}"),
                    slot,
                    addr: Some(([127, 0, 0, 1], 9000).into()),
                    host: String::new(),
                    authorization: None,
                    engine: EngineKind::Sim,
                    weight: 100,
                    idle_limit_ms: 4000,
                    queue_order: QueueOrder::default(),
                })
                .collect(),
            pools: (100..)
                .zip(pools)
                .map(|(step, &members)| {
                    let first = next;
                    next += members;
                    Pool {
                        model: 0,
                        label: format!("none/{step}"),
                        priority: 1000 - step,
                        metric_row: 1,
                        slot: step - 100,
                        gate: 1,
                        thresholds: Thresholds::default(),
                        prefix: None,
                        members: (first..next).map(|endpoint| Member { endpoint, served_as: "m".into() }).collect(),
                    }
                })
                .collect(),
            models: vec![ModelRoute {
                name: "m".into(),
                created: 0,
                pools: (0..u32::try_from(pools.len()).unwrap()).collect(),
                profile: 0,
                placement: Placement::default(),
                admission: Admission::default(),
                fallbacks: vec![],
                units: Units::default(),
            }],
            names: vec![ModelName { name: "m".into(), model: 0 }],
            profiles: vec![ProfileSpec { name: "p".into(), scorers: vec![], picker: picker.into(), temperature: 0.0 }],
            ..RouteTable::default()
        };
        let snapshot = Snapshot::of(&table).unwrap();
        let board = Arc::new(Board::new(1, count as usize));
        (0..count).for_each(|slot| board.set_ready(BoardSlot(slot), true));
        let profiles = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
        let dispatcher = Dispatcher::new(board.clone(), CoreId(0), Scheduler::new(Chance::seeded(5)));
        World { board, snapshot, profiles, dispatcher }
    }

    impl World {
        fn dispatch(&mut self, excluded: &[u32]) -> Result<Grant, NoEndpoint> {
            let excluded: Vec<BoardSlot> = excluded.iter().copied().map(BoardSlot).collect();
            self.dispatch_as(&Wanted { excluded: &excluded, tokens: 100, ..Wanted::default() })
        }

        fn dispatch_as(&mut self, wanted: &Wanted<'_>) -> Result<Grant, NoEndpoint> {
            let map = Map { table: self.snapshot.table(), rings: &[], profiles: &self.profiles };
            self.dispatcher.dispatch(map, wanted, None)
        }

        fn loads(&self) -> Vec<i64> {
            (0..self.board.slot_count()).map(|slot| self.board.in_flight(BoardSlot(slot as u32))).collect()
        }
    }

    #[test]
    fn a_request_passes_the_first_gate_with_room_and_somebody_to_serve_it() {
        let mut world = world(&[1, 1, 1], "p2c");
        let gate = Gate::new(world.board.clone(), CoreId(0), || {});
        let band = BandRank(1);
        (0..3).for_each(|pool| world.board.set_room(PoolSlot(pool), band, 1));
        world.board.set_ready(BoardSlot(1), false);
        let admit = |world: &mut World| {
            let map = Map { table: world.snapshot.table(), rings: &[], profiles: &world.profiles };
            let at = AtGate { gate: &gate, band, owner_of: |_, _| CoreId(0) };
            world.dispatcher.admit(map, &Wanted::default(), at, None)
        };
        let held: Vec<_> = (0..2).map(|_| admit(&mut world).ok().unwrap()).collect();
        assert_eq!(held.iter().map(|(grant, _)| grant.pool.0).collect::<Vec<_>>(), [0, 2]);
        let Err(Held::Shut(attempt)) = admit(&mut world) else { panic!("no room is left") };
        assert_eq!(attempt.shut().iter().map(|pool| pool.slot.0).collect::<Vec<_>>(), [0, 2], "1 could not serve it");
        drop(attempt);
        assert_eq!((0..3).map(|pool| world.board.pool_load(PoolSlot(pool))).collect::<Vec<_>>(), [1, 0, 1]);
        // Another try in the same pool keeps the place in it.
        let map = Map { table: world.snapshot.table(), rings: &[], profiles: &world.profiles };
        let again = world.dispatcher.dispatch_in(map, &Wanted::default(), &held[1].1, None).unwrap();
        assert_eq!((again.pool, world.board.pool_load(PoolSlot(2))), (PoolIdx(2), 1));
        drop((held, again));
        (0..3).for_each(|slot| world.board.set_ready(BoardSlot(slot), false));
        assert!(matches!(admit(&mut world), Err(Held::NoEndpoint)));
        assert_eq!((0..3).map(|pool| world.board.pool_load(PoolSlot(pool))).sum::<i64>(), 0);
    }

    #[test]
    fn requests_spread_evenly_under_both_pickers() {
        for (picker, widest) in [("max-score", 1), ("p2c", 4)] {
            let mut world = world(&[5], picker);
            let grants: Vec<Grant> = (0..100).map(|_| world.dispatch(&[]).unwrap()).collect();
            let loads = world.loads();
            let gap = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            assert!(gap <= widest, "{picker}: {loads:?}");
            drop(grants);
            assert_eq!(world.loads(), vec![0; 5]);
        }
    }

    #[test]
    fn an_endpoint_that_is_not_ready_or_was_tried_gets_nothing() {
        let mut world = world(&[3], "max-score");
        world.board.set_ready(BoardSlot(1), false);
        for _ in 0..50 {
            let grant = world.dispatch(&[2]).unwrap();
            assert_eq!(grant.slot, BoardSlot(0));
        }
        world.board.set_ready(BoardSlot(0), false);
        assert!(matches!(world.dispatch(&[2]), Err(NoEndpoint)));
    }

    #[test]
    fn the_last_resort_is_the_one_that_comes_back_first_of_those_that_are_ready() {
        let mut world = world(&[2, 2], "p2c");
        let out = |world: &World, slot, until| {
            world.board.endpoint(BoardSlot(slot)).set_breaker(crate::endpoint::BreakerState::Open, Mono(until));
        };
        for (slot, until) in [(0, 900), (1, 700), (2, 800), (3, 600)] {
            out(&world, slot, until);
        }
        world.board.set_ready(BoardSlot(3), false);
        assert!(matches!(world.dispatch(&[]), Err(NoEndpoint)));
        let mut resort = |excluded: &[u32]| {
            let excluded: Vec<BoardSlot> = excluded.iter().copied().map(BoardSlot).collect();
            let map = Map { table: world.snapshot.table(), rings: &[], profiles: &world.profiles };
            let wanted = Wanted { excluded: &excluded, ..Wanted::default() };
            world.dispatcher.last_resort(map, &wanted).map(|grant| (grant.slot.0, grant.pool.0)).ok()
        };
        assert_eq!(resort(&[]), Some((1, 0)));
        assert_eq!(resort(&[1]), Some((2, 1)));
        assert_eq!(resort(&[0, 1, 2]), None);
        assert_eq!(world.loads(), vec![0; 4]);
    }

    #[test]
    fn the_next_pool_serves_only_when_the_first_has_nobody() {
        let mut world = world(&[1, 2], "p2c");
        assert_eq!(world.dispatch(&[]).unwrap().pool, PoolIdx(0));
        world.board.set_ready(BoardSlot(0), false);
        assert_eq!(world.dispatch(&[]).unwrap().pool, PoolIdx(1));
    }

    #[test]
    fn ties_among_idle_endpoints_are_shared_evenly() {
        for picker in ["max-score", "p2c"] {
            let mut world = world(&[8], picker);
            let mut seen = [0u32; 8];
            for _ in 0..10_000 {
                // The place is given back at once, so every pick is among equals.
                seen[world.dispatch(&[]).unwrap().slot.idx()] += 1;
            }
            assert!(seen.iter().all(|&n| (1_100..=1_400).contains(&n)), "{picker}: {seen:?}");
        }
    }

    #[test]
    fn a_heavier_endpoint_takes_its_share_and_long_prompts_count_for_more() {
        let mut world = world(&[2], "max-score");
        let heavy = world.dispatch_as(&Wanted { tokens: 100_000, ..Wanted::default() }).unwrap();
        let small: Vec<Grant> = (0..50).map(|_| world.dispatch(&[]).unwrap()).collect();
        assert!(small.iter().all(|grant| grant.slot != heavy.slot));
    }
}
