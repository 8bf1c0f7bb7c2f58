//! What a core does: the request path around the gate, and the owner's half, over the router's own code.
//!
//! Runs in a coroutine, job by job, each one turn. Tells the truth what it was told; never asks it anything.

mod home;
mod owner;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use corosensei::Yielder;
use llmgw_kit::chance::Chance;
use llmgw_router::Dispatcher;
use llmgw_router::admission::{Controller, Gate, PoolPlace, Progress};
use llmgw_router::breaker::{Breakers, Change};
use llmgw_router::dispatcher::Place;
use llmgw_router::message::{CoreMessage, Refusal, Ticket};
use llmgw_router::scheduler::run::Scheduler;
use llmgw_types::CoreId;

use self::owner::answered;
use crate::cells::SimCells;
use crate::fired::Trouble;
use crate::plan::MS;
use crate::requests::{State, Verdict};
use crate::tables::Publication;
use crate::world::{Job, Said, Stop, World};

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
