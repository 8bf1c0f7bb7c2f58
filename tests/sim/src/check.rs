//! What must hold whenever nobody is at work, and when nothing is left to do.

use std::collections::BTreeMap;

use llmgw_router::admission::Cells;
use llmgw_types::{BandRank, BoardSlot, PoolSlot};

use crate::requests::State;
use crate::truth::SLOTS;
use crate::world::World;

/// No core is within a turn: every place is counted once, at its endpoint and in its pool.
pub(crate) fn idle(world: &World) {
    let first = world.first_live();
    let requests = world.requests.borrow();
    let mut in_pools = [0i64; SLOTS];
    let mut at_endpoints: BTreeMap<BoardSlot, i64> = BTreeMap::new();
    let instances = world.instances.borrow();
    let mut at_instances = vec![0usize; instances.len()];
    for request in &requests[first..] {
        if let Some(pool) = request.holds.filter(|_| request.counts) {
            in_pools[pool.idx()] += 1;
        }
        if let (State::Running, Some(instance)) = (request.state, request.instance) {
            *at_endpoints.entry(instances[instance].slot).or_default() += 1;
            at_instances[instance] += usize::from(request.job.is_some());
        }
    }
    for (pool, expected) in (0..).map(PoolSlot).zip(in_pools) {
        let load = world.board.pool_load(pool);
        if load != expected {
            world.breaks(|| format!("pool {}: its cells add up to {load}, {expected} hold a place there", pool.0));
        }
    }
    for slot in (0..world.board.slot_count() as u32).map(BoardSlot) {
        let (load, expected) = (world.board.in_flight(slot), at_endpoints.get(&slot).copied().unwrap_or(0));
        if load != expected {
            world.breaks(|| format!("endpoint slot {}: {load} in flight, {expected} are there or on the way", slot.0));
        }
    }
    settled(world);
    for (at, instance) in instances.iter().enumerate() {
        // What has ended there is still on its way home.
        if instance.engine.held() > at_instances[at] {
            world.breaks(|| format!("engine {at} holds {} requests that nobody has there", instance.engine.held()));
        }
    }
}

/// No message is under way either: then no nudge can come any more, and nobody may wait for room that is there.
fn settled(world: &World) {
    let has_more = world.has_more.borrow().iter().any(|has_more| *has_more);
    let owes = world.owed.borrow().iter().any(|owners| !owners.is_empty());
    if has_more || owes || !world.lanes.borrow().is_empty() {
        return;
    }
    for pool in (0..SLOTS as u32).map(PoolSlot) {
        let top = world.board.waiting(pool);
        let (load, room) = (world.board.pool_load(pool), world.board.room(pool, top));
        if top != BandRank::NOBODY && load < i64::from(room) {
            world.breaks(|| format!("band {} waits for pool {}, which holds {load} of {room}", top.0, pool.0));
        }
    }
}

/// Nothing is under way: nobody waits for what is there, and who waits is known.
pub(crate) fn quiet(world: &World) {
    idle(world);
    if !world.lanes.borrow().is_empty() {
        world.breaks(|| "messages are left over".to_owned());
    }
    let requests = world.requests.borrow();
    let queued = world.truth.borrow().queued.clone();
    let open = requests.iter().filter(|request| request.state == State::Queued).count();
    let stray = queued.iter().find(|&&at| requests[at].state != State::Queued);
    if let Some(at) = stray {
        world.breaks(|| format!("request {at} is in a queue and does not wait: {:?}", requests[*at].state));
    }
    if open != queued.len() {
        world.breaks(|| format!("{open} requests wait, {} are in a queue", queued.len()));
    }
    if let Some(late) = queued.iter().find(|&&at| requests[at].deadline <= world.now.get()) {
        world.breaks(|| format!("request {late} waits past its deadline"));
    }
    let feed = world.feed.borrow().clone();
    for pool in feed.pools() {
        let waits = |at: &&usize| requests[**at].pools.iter().any(|of| of == pool);
        let top = queued.iter().filter(waits).map(|&at| requests[at].band).max().unwrap_or(BandRank::NOBODY);
        let shown = world.board.waiting(pool);
        if shown != top {
            world.breaks(|| format!("pool {}: band {} waits, its cell says {}", pool.0, top.0, shown.0));
        }
        let (load, room) = (world.board.pool_load(pool), world.board.room(pool, top));
        if top != BandRank::NOBODY && load < i64::from(room) {
            world.breaks(|| format!("band {} waits for pool {}, which holds {load} of {room}", top.0, pool.0));
        }
    }
    let said = world.said.borrow();
    let places = requests.iter().filter(|request| request.holds.is_some()).count();
    if said.iter().map(|core| core.places).sum::<usize>() != places {
        world.breaks(|| format!("{places} requests hold a place, cores say {said:?}"));
    }
    if said.iter().any(|core| core.owes) || said.iter().map(|core| core.waiting).sum::<usize>() != queued.len() {
        world.breaks(|| format!("{} wait, cores say {said:?}", queued.len()));
    }
    if said.iter().any(|core| core.found_by_net > 0) {
        world.breaks(|| "the net found what a nudge should have said".to_owned());
    }
}

/// The end: every request has ended once, and nothing is counted anywhere.
pub(crate) fn empty(world: &World) {
    quiet(world);
    let requests = world.requests.borrow();
    if let Some(at) = requests.iter().position(|request| !request.is_over() || request.verdicts != 1) {
        world.breaks(|| format!("request {at} at the end: {:?}", requests[at]));
    }
    let is_zero = (0..SLOTS as u32).map(PoolSlot).all(|pool| world.board.pool_load(pool) == 0);
    if !is_zero || !world.truth.borrow().queued.is_empty() {
        world.breaks(|| "something is counted when all has ended".to_owned());
    }
}
