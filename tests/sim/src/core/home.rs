//! A core as the home of its requests: through the gate or into a queue, at an engine, and to their end.

use std::rc::Rc;

use llmgw_kit::clock::Mono;
use llmgw_router::admission::{Attempt, Cells, PoolGate, PoolPlace, UNBOUNDED};
use llmgw_router::breaker::{Failure, FailureKind};
use llmgw_router::dispatcher::{AtGate, Grant, Held, Map, Wanted};
use llmgw_router::endpoint::BreakerState;
use llmgw_router::message::{CoreMessage, Enqueue, Refusal, Ticket};
use llmgw_types::{BoardSlot, PoolSlot};

use super::{Core, GRACE_NS, request_of, ticket};
use crate::cells::SimCells;
use crate::fired::Trouble;
use crate::mutants::Mutant;
use crate::plan::MS;
use crate::requests::{State, Verdict};
use crate::tables;
use crate::world::{Due, World};

impl<'y> Core<'y> {
    /// Whether it waits past its own core's deadline.
    pub(super) fn is_stuck(&self, request: usize) -> bool {
        let it = &self.world.requests.borrow()[request];
        it.state == State::Queued && self.world.now.get() >= it.deadline + GRACE_NS
    }

    pub(super) fn admit(&mut self, request: usize, excluded: &[BoardSlot]) {
        let world = self.world.clone();
        let asked = world.requests.borrow()[request].clone();
        let tables = self.tables.clone();
        let map = Map { table: tables.snapshot.table(), rings: &[], profiles: &tables.profiles };
        let now = world.now();
        let wanted = Wanted { model: asked.model, tokens: asked.cost, excluded, now, ..Wanted::default() };
        let at = AtGate { gate: &self.gate, band: asked.band, owner_of: tables::owner_of };
        let bad = world.bad_endpoints();
        world.truth.borrow_mut().tries(self.id);
        match self.dispatcher.admit(map, &wanted, at, None) {
            Ok((grant, place)) => {
                let pool = place.pool().slot;
                // Where pools before it were shut they were looked at since, and this is later than its moment.
                let is_first =
                    tables.snapshot.table().models[asked.model as usize].pools[0].to_native() == grant.pool.0;
                let (waiting, room) = (world.board.waiting(pool), world.board.room(pool, asked.band));
                if is_first && waiting >= asked.band && room != UNBOUNDED {
                    world.breaks(|| format!("request {request} overtook one of band {} that waits", waiting.0));
                }
                world.truth.borrow_mut().holds(self.id, request, pool, asked.band);
                self.runs(request, grant, place, &bad);
            }
            Err(Held::NoEndpoint) => world.ends(request, Verdict::Refused(Refusal::NoEndpoint)),
            Err(Held::Shut(attempt)) => self.ask(request, attempt),
        }
        world.truth.borrow_mut().tried(self.id);
    }

    pub(super) fn ask(&mut self, request: usize, attempt: Attempt<Rc<SimCells<'y>>>) {
        let world = self.world.clone();
        let owner = attempt.shut()[0].owner;
        let (pools, band) = (attempt.pools(), attempt.band());
        let deadline = world.now.get() + world.plan.ttl_ns;
        let message = {
            let mut requests = world.requests.borrow_mut();
            let asked = &mut requests[request];
            (asked.asks, asked.answers) = (asked.asks + 1, 0);
            let ticket = ticket(self.me, request, asked.asks);
            let gate = tables::gate_of_model(asked.model);
            (asked.state, asked.pools, asked.owner, asked.gate) = (State::Queued, pools, owner.idx(), gate);
            (asked.deadline, asked.generation) = (deadline, self.tables.generation);
            let (tenant, cost, bytes) = (asked.tenant, asked.cost, asked.bytes);
            Enqueue {
                ticket,
                gate,
                generation: asked.generation,
                tenant,
                deadline: Mono(deadline),
                cost,
                bytes,
                pools,
                band,
            }
        };
        if owner == self.me && world.plan.is_direct {
            attempt.sent();
            self.enqueue(&message);
        } else if world.lanes.borrow_mut().try_send(self.id, owner.idx(), CoreMessage::Enqueue(message)) {
            attempt.sent();
        } else {
            world.count(Trouble::LaneFull);
            world.ends(request, Verdict::Refused(Refusal::Overloaded));
            drop(attempt);
            return;
        }
        world.at(deadline + GRACE_NS, Due::GiveUp(request));
    }

    /// A request has a place in its pool and an endpoint there.
    ///
    /// `bad` is who could not take any when the decision began.
    pub(super) fn runs(&mut self, request: usize, grant: Grant, place: PoolPlace<Rc<SimCells<'y>>>, bad: &[bool]) {
        let world = &self.world;
        let instance = self.tables.instances[grant.endpoint.idx()];
        if bad.get(instance).is_some_and(|bad| *bad) && world.bad_endpoints()[instance] {
            world.breaks(|| format!("request {request} was sent to endpoint {instance}, which drains or is open"));
        }
        let pool = place.pool().slot;
        {
            let mut requests = world.requests.borrow_mut();
            let it = &mut requests[request];
            (it.state, it.instance, it.job) = (State::Running, Some(instance), None);
            (it.holds, it.counts) = (Some(pool), true);
        }
        world.truth.borrow_mut().counts(request, pool, true);
        world.log(|| format!("request {request} runs at endpoint {instance} in pool {}", pool.0));
        world.at(world.now.get() + u64::from(world.draw(2 * MS as u32)), Due::Submit(request));
        self.places.insert(request, (grant.place, place));
    }

    pub(super) fn granted(&mut self, ticket: Ticket, pool: PoolSlot, from: usize) {
        let (world, request) = (self.world.clone(), request_of(ticket));
        let place = self.gate.granted(PoolGate { slot: pool, owner: World::core_id(from) });
        if !self.waits(ticket) {
            world.count(Trouble::LateGrant);
            if world.is_planted(Mutant::LateGrantIgnored) {
                return std::mem::forget(place);
            }
            return self.give_up(request, place);
        }
        let bad = world.bad_endpoints();
        match self.dispatch_in(request, &place, &[]) {
            Some(grant) => self.runs(request, grant, place, &bad),
            None => {
                world.ends(request, Verdict::Refused(Refusal::NoEndpoint));
                self.give_up(request, place);
            }
        }
    }

    pub(super) fn dispatch_in(
        &mut self,
        request: usize,
        place: &PoolPlace<Rc<SimCells<'y>>>,
        excluded: &[BoardSlot],
    ) -> Option<Grant> {
        let tables = self.tables.clone();
        let (model, tokens) = {
            let asked = &self.world.requests.borrow()[request];
            (asked.model, asked.cost)
        };
        let map = Map { table: tables.snapshot.table(), rings: &[], profiles: &tables.profiles };
        let wanted = Wanted { model, tokens, excluded, now: self.world.now(), ..Wanted::default() };
        self.dispatcher.dispatch_in(map, &wanted, place, None).ok()
    }

    /// The place in the pool goes back.
    pub(super) fn give_up(&self, request: usize, place: PoolPlace<Rc<SimCells<'y>>>) {
        let pool = place.pool().slot;
        self.world.requests.borrow_mut()[request].holds = None;
        self.world.truth.borrow_mut().counts(request, pool, false);
        drop(place);
    }

    pub(super) fn release(&mut self, request: usize) {
        if let Some((at_endpoint, place)) = self.places.remove(&request) {
            drop(at_endpoint);
            self.give_up(request, place);
        }
    }

    pub(super) fn slot(&self, request: usize) -> Option<BoardSlot> {
        let instance = self.world.requests.borrow()[request].instance?;
        Some(self.world.instances.borrow()[instance].slot)
    }

    pub(super) fn tell_breaker(&self, slot: BoardSlot, message: CoreMessage) {
        let owner = slot.idx() % self.world.plan.cores;
        self.world.lanes.borrow_mut().try_send(self.id, owner, message);
    }

    pub(super) fn finished(&mut self, request: usize) {
        if self.state(request) != State::Running {
            return;
        }
        if let Some(slot) = self.slot(request) {
            self.world.board.count_answer(self.me, slot);
            if self.world.board.endpoint(slot).breaker() != BreakerState::Closed {
                self.tell_breaker(slot, CoreMessage::Success(slot));
            }
        }
        self.world.ends(request, Verdict::Served);
        self.release(request);
    }

    pub(super) fn failed(&mut self, request: usize) {
        if self.state(request) != State::Running {
            return;
        }
        let world = self.world.clone();
        let Some(slot) = self.slot(request) else { return };
        world.board.count_failure(self.me, slot);
        let failure = Failure { slot, kind: FailureKind::Failed, retry_after_seconds: None };
        self.tell_breaker(slot, CoreMessage::Failure(failure));
        let may_retry = {
            let it = &mut world.requests.borrow_mut()[request];
            let may = it.retries > 0 && !self.is_draining;
            it.retries = it.retries.saturating_sub(1);
            may
        };
        if may_retry && let Some((at_endpoint, place)) = self.places.remove(&request) {
            drop(at_endpoint);
            let bad = world.bad_endpoints();
            if let Some(grant) = self.dispatch_in(request, &place, &[slot]) {
                world.count(Trouble::RetriedInPool);
                return self.runs(request, grant, place, &bad);
            }
            // Nobody else in its pool: the gates are passed anew.
            world.count(Trouble::RetriedAnew);
            {
                let it = &mut world.requests.borrow_mut()[request];
                (it.state, it.instance, it.job) = (State::New, None, None);
            }
            self.give_up(request, place);
            return self.admit(request, &[slot]);
        }
        world.ends(request, Verdict::Broken);
        self.release(request);
    }

    pub(super) fn leave(&mut self, request: usize) {
        let world = self.world.clone();
        match self.state(request) {
            State::Queued => {
                world.count(Trouble::LeftQueue);
                self.close(request, Verdict::Left);
                if world.is_planted(Mutant::WithdrawnAndAnswered) {
                    world.requests.borrow_mut()[request].state = State::Queued;
                }
            }
            State::Running => {
                world.count(Trouble::LeftRunning);
                let (instance, job) = {
                    let it = &mut world.requests.borrow_mut()[request];
                    (it.instance, it.job.take())
                };
                if let (Some(instance), Some(job)) = (instance, job) {
                    world.instances.borrow_mut()[instance].engine.abort(world.now.get(), job);
                }
                world.ends(request, Verdict::Left);
                if world.is_planted(Mutant::NoReleaseOnAbort) {
                    world.requests.borrow_mut()[request].holds = None;
                    if let Some((_, place)) = self.places.remove(&request) {
                        std::mem::forget(place);
                    }
                }
                self.release(request);
            }
            State::New | State::Ended(_) => {}
        }
    }

    /// Closes the slot of a request that waits, and takes its ticket back.
    pub(super) fn close(&mut self, request: usize, verdict: Verdict) {
        let world = self.world.clone();
        let owner = world.requests.borrow()[request].owner;
        let ticket = ticket(self.me, request, world.requests.borrow()[request].asks);
        world.ends(request, verdict);
        if owner == self.id && world.plan.is_direct {
            self.withdraw(ticket);
        } else {
            world.lanes.borrow_mut().send_or_keep(self.id, owner, CoreMessage::Withdraw(ticket));
        }
    }

    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        let waiting: Vec<usize> = {
            let requests = self.world.requests.borrow();
            (0..requests.len())
                .filter(|&at| requests[at].home == self.id && requests[at].state == State::Queued)
                .collect()
        };
        for request in waiting {
            self.world.count(Trouble::Drained);
            self.close(request, Verdict::Drained);
        }
    }
}
