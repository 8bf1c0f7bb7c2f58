//! What a core does: the request path around the gate, and the owner's half, over the router's own code.
//!
//! Runs in a coroutine, job by job, each one turn. Tells the truth what it was told; never asks it anything.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use corosensei::Yielder;
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::Dispatcher;
use llmgw_router::admission::{Answer, Attempt, Cells, Controller, Gate, PoolGate, PoolPlace, Progress, UNBOUNDED};
use llmgw_router::breaker::{Breakers, Change, Failure, FailureKind};
use llmgw_router::dispatcher::{AtGate, Grant, Held, Map, Place, Wanted};
use llmgw_router::endpoint::BreakerState;
use llmgw_router::message::{CoreMessage, Enqueue, Refusal, Ticket};
use llmgw_router::scheduler::run::Scheduler;
use llmgw_types::{BoardSlot, CoreId, PoolSlot};

use crate::cells::SimCells;
use crate::fired::Trouble;
use crate::mutants::Mutant;
use crate::plan::MS;
use crate::requests::{State, Verdict};
use crate::tables::{self, Publication};
use crate::world::{Due, Job, Said, Stop, World};

/// How long an endpoint that failed gets nothing.
const COOLDOWN: Duration = Duration::from_millis(2);
/// A home core's own deadline is so much after the owner's.
const GRACE_NS: u64 = 4 * MS;

struct Core<'y> {
    world: Rc<World>,
    id: usize,
    me: CoreId,
    tables: Rc<Publication>,
    dispatcher: Dispatcher,
    gate: Gate<Rc<SimCells<'y>>>,
    controller: Controller<Rc<SimCells<'y>>>,
    breakers: Breakers,
    /// What each running request holds: at its endpoint, and in its pool.
    places: BTreeMap<usize, (Place, PoolPlace<Rc<SimCells<'y>>>)>,
    is_draining: bool,
}

/// A core's life.
pub(crate) fn live(world: &Rc<World>, id: usize, yielder: &Yielder<Job, Stop>, first: Job) {
    let cells = Rc::new(SimCells { world: world.clone(), yielder, actor: id });
    let seeded = |salt: u64| Chance::seeded(world.chance.borrow().state() ^ (salt + id as u64));
    let me = CoreId(id as u32);
    let mut core = Core {
        id,
        me,
        tables: world.feed.borrow().clone(),
        dispatcher: Dispatcher::new(world.board.clone(), me, Scheduler::new(seeded(0x100))),
        gate: Gate::new(cells.clone(), me, || {}),
        controller: Controller::new(cells, me),
        breakers: Breakers::new(world.board.clone(), seeded(0x200)),
        places: BTreeMap::new(),
        is_draining: false,
        world: world.clone(),
    };
    core.controller.set_limits(world.limits(), []);
    let mut job = first;
    loop {
        core.take(job);
        core.say();
        if world.is_closing.get() {
            return;
        }
        job = yielder.suspend(Stop::Idle);
    }
}

impl<'y> Core<'y> {
    fn take(&mut self, job: Job) {
        self.world.log(|| format!("core {} {job:?}", self.id));
        match job {
            Job::Arrive(request) if self.is_draining => self.world.ends(request, Verdict::Drained),
            Job::Arrive(request) => self.admit(request, &[]),
            Job::Hear(message, from) => self.hear(message, from),
            Job::Finished(request) => self.finished(request),
            Job::Failed(request) => self.failed(request),
            Job::Leave(request) => self.leave(request),
            Job::GiveUp(request) if self.is_stuck(request) => {
                self.world.count(Trouble::OwnerStuck);
                self.close(request, Verdict::Refused(Refusal::Ttl));
            }
            Job::Expire => {
                let (world, id) = (self.world.clone(), self.id);
                self.controller.expire(world.now(), |ticket, answer| answered(&world, id, ticket, answer, None));
            }
            Job::Work => self.world.lanes.borrow_mut().flush(self.id),
            Job::Adopt => self.adopt(),
            Job::Drain => self.drain(),
            Job::Net => self.controller.net(),
            _ => {}
        }
        self.turn();
    }

    /// What the scheduler and the checks may know.
    fn say(&mut self) {
        let world = &self.world;
        let owes = !self.gate.pay(|_| false);
        world.said.borrow_mut()[self.id] = Said {
            waiting: self.controller.len(),
            places: self.gate.held_count(),
            owes,
            found_by_net: self.controller.found_by_net(),
        };
        world.next_deadline.borrow_mut()[self.id] = self.controller.next_deadline().map(|at| at.0);
    }

    /// Grants what there is room for, and sends what is owed.
    fn turn(&mut self) {
        let (world, id, me) = (self.world.clone(), self.id, self.me);
        loop {
            world.truth.borrow_mut().tries(id);
            let progress = self.controller.turn(|ticket, answer| answered(&world, id, ticket, answer, None));
            world.truth.borrow_mut().tried(id);
            let mut is_own = false;
            let controller = &mut self.controller;
            world.owed.borrow_mut()[id].clear();
            self.gate.pay(|pool| {
                if pool.owner == me {
                    controller.nudge(pool.slot);
                    is_own = true;
                    return true;
                }
                let is_sent = world.lanes.borrow_mut().try_send(id, pool.owner.idx(), CoreMessage::Nudge(pool.slot));
                if !is_sent {
                    world.owed.borrow_mut()[id].push(pool.owner.idx());
                }
                is_sent
            });
            world.has_more.borrow_mut()[id] = progress == Progress::More;
            if !is_own || progress == Progress::More {
                return;
            }
        }
    }

    fn state(&self, request: usize) -> State {
        self.world.requests.borrow()[request].state
    }

    /// Whether it waits past its own core's deadline.
    fn is_stuck(&self, request: usize) -> bool {
        let it = &self.world.requests.borrow()[request];
        it.state == State::Queued && self.world.now.get() >= it.deadline + GRACE_NS
    }

    fn admit(&mut self, request: usize, excluded: &[BoardSlot]) {
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

    fn ask(&mut self, request: usize, attempt: Attempt<Rc<SimCells<'y>>>) {
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
    fn runs(&mut self, request: usize, grant: Grant, place: PoolPlace<Rc<SimCells<'y>>>, bad: &[bool]) {
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

    fn hear(&mut self, message: CoreMessage, from: usize) {
        let world = self.world.clone();
        match message {
            CoreMessage::Enqueue(asked) => self.enqueue(&asked),
            CoreMessage::Withdraw(ticket) => self.withdraw(ticket),
            CoreMessage::Nudge(pool) => self.controller.nudge(pool),
            CoreMessage::Granted(ticket, pool) => self.granted(ticket, pool, from),
            CoreMessage::Refused(ticket, refusal) => {
                let request = request_of(ticket);
                if self.waits(ticket) {
                    world.ends(request, Verdict::Refused(refusal));
                }
            }
            CoreMessage::Failure(failure) => {
                let changes = self.breakers.failure(world.now(), &failure, COOLDOWN);
                if changes.contains(&Some(Change::Opened)) {
                    world.count(Trouble::BreakerOpened);
                    world.give(world.side(), Job::Rooms);
                }
            }
            CoreMessage::Success(slot) if self.breakers.success(world.now(), slot).is_some() => {
                world.give(world.side(), Job::Rooms);
            }
            _ => {}
        }
    }

    fn enqueue(&mut self, asked: &Enqueue) {
        let (world, id, tables) = (self.world.clone(), self.id, self.tables.clone());
        let request = request_of(asked.ticket);
        // What the owner's table lacks is gone, unless whoever asks has a newer one.
        if asked.generation <= tables.generation {
            let it = &mut world.requests.borrow_mut()[request];
            it.pools = it.pools.iter().filter(|pool| tables.knows(it.gate, *pool)).collect();
        }
        world.truth.borrow_mut().queues(&world.requests.borrow(), request);
        let answer = |ticket, answer| answered(&world, id, ticket, answer, Some(request));
        self.controller.enqueue(asked, |gate, pool| tables.knows(gate, pool), answer);
        world.truth.borrow_mut().within_bounds(&world.requests.borrow(), asked.gate, world.limits());
    }

    fn withdraw(&mut self, ticket: Ticket) {
        self.world.truth.borrow_mut().leaves_queue(request_of(ticket));
        self.controller.withdraw(ticket);
    }

    /// Whether the slot of that ticket is open.
    fn waits(&self, ticket: Ticket) -> bool {
        let it = &self.world.requests.borrow()[request_of(ticket)];
        it.state == State::Queued && u64::from(it.asks) == ticket.number >> 32
    }

    fn granted(&mut self, ticket: Ticket, pool: PoolSlot, from: usize) {
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

    fn dispatch_in(
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
    fn give_up(&self, request: usize, place: PoolPlace<Rc<SimCells<'y>>>) {
        let pool = place.pool().slot;
        self.world.requests.borrow_mut()[request].holds = None;
        self.world.truth.borrow_mut().counts(request, pool, false);
        drop(place);
    }

    fn release(&mut self, request: usize) {
        if let Some((at_endpoint, place)) = self.places.remove(&request) {
            drop(at_endpoint);
            self.give_up(request, place);
        }
    }

    fn slot(&self, request: usize) -> Option<BoardSlot> {
        let instance = self.world.requests.borrow()[request].instance?;
        Some(self.world.instances.borrow()[instance].slot)
    }

    fn tell_breaker(&self, slot: BoardSlot, message: CoreMessage) {
        let owner = slot.idx() % self.world.plan.cores;
        self.world.lanes.borrow_mut().try_send(self.id, owner, message);
    }

    fn finished(&mut self, request: usize) {
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

    fn failed(&mut self, request: usize) {
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

    fn leave(&mut self, request: usize) {
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
    fn close(&mut self, request: usize, verdict: Verdict) {
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

    fn drain(&mut self) {
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

    /// Takes the newest table: its requests are counted anew before anybody learns of it.
    fn adopt(&mut self) {
        let world = self.world.clone();
        self.tables = world.feed.borrow().clone();
        let tables = self.tables.clone();
        // Those that are counted out are so at the latest when it begins, others at the earliest when it has ended.
        self.count_anew(false);
        self.gate.recount(|pool, endpoint| tables.counts(pool, endpoint));
        self.count_anew(true);
        self.breakers.keep_to(tables.snapshot.table());
        let id = self.id;
        let knows = |gate, pool| tables.knows(gate, pool);
        let answer = |ticket, answer| answered(&world, id, ticket, answer, None);
        self.controller.keep_to(tables.generation, knows, answer);
        world.truth.borrow_mut().knows(&mut world.requests.borrow_mut(), id, &tables);
        world.board.set_generation(self.me, tables.generation);
        world.adopted.borrow_mut()[id] = tables.generation;
        if world.board.oldest_generation() == world.feed.borrow().generation {
            world.give(world.side(), Job::Rooms);
        }
    }
}

impl Core<'_> {
    /// Tells the truth which of this core's requests count by its table, of those that do or those that do not.
    fn count_anew(&self, does: bool) {
        let (world, tables) = (&self.world, &self.tables);
        let (mut requests, instances) = (world.requests.borrow_mut(), world.instances.borrow());
        for (at, it) in requests.iter_mut().enumerate().filter(|(_, it)| it.home == self.id) {
            if let (Some(pool), Some(instance), State::Running) = (it.holds, it.instance, it.state)
                && tables.counts(pool, instances[instance].slot) == does
            {
                it.counts = does;
                world.truth.borrow_mut().counts(at, pool, does);
            }
        }
    }
}

/// What a request asks with, for the how-manieth time.
fn ticket(core: CoreId, request: usize, asks: u32) -> Ticket {
    Ticket { core, number: u64::from(asks) << 32 | request as u64 }
}

fn request_of(ticket: Ticket) -> usize {
    ticket.number as u32 as usize
}

/// The owner answers a ticket; `by` is whose Enqueue it hears.
fn answered(world: &World, owner: usize, ticket: Ticket, answer: Answer, by: Option<usize>) {
    let request = request_of(ticket);
    {
        let mut requests = world.requests.borrow_mut();
        requests[request].answers += 1;
        if requests[request].answers > 1 {
            world.breaks(|| format!("request {request} was answered twice, at last {answer:?}"));
        }
    }
    world.log(|| format!("core {owner} answers request {request}: {answer:?}"));
    let mut truth = world.truth.borrow_mut();
    let message = match answer {
        Answer::Granted(pool) => {
            {
                let it = &mut world.requests.borrow_mut()[request];
                (it.holds, it.counts) = (Some(pool), true);
            }
            truth.grants(&world.requests.borrow(), owner, request, pool);
            truth.tries(owner);
            CoreMessage::Granted(ticket, pool)
        }
        Answer::Refused(refusal) => {
            match refusal {
                Refusal::Full => world.count(Trouble::BandFull),
                Refusal::Displaced => world.count(Trouble::Displaced),
                Refusal::Ttl => world.count(Trouble::Expired),
                Refusal::NoEndpoint => world.count(Trouble::PoolGoneInQueue),
                Refusal::ClientGone | Refusal::Overloaded => {}
            }
            truth.refuses(&world.requests.borrow(), request, refusal, (world.now.get(), world.limits()), by);
            CoreMessage::Refused(ticket, refusal)
        }
    };
    world.lanes.borrow_mut().send_or_keep(owner, ticket.core.idx(), message);
}
