//! One world: what all actors share, who moves next, and how time passes.
//!
//! An actor is a core or the side runtime, a coroutine that stops at every access to a cell. A step lets one actor go
//! on to its next stop, hands an idle one its next job, or lets time pass. All choices come from one seed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::admission::Limits;
use llmgw_router::board::Board;
use llmgw_router::endpoint::BreakerState;
use llmgw_router::message::CoreMessage;
use llmgw_types::{BoardSlot, CoreId};

use crate::engines::Engine;
use crate::fired::{Fired, Trouble};
use crate::lanes::Lanes;
use crate::mutants::Mutant;
use crate::plan::Plan;
use crate::requests::{Request, State, Verdict};
use crate::tables::Publication;
use crate::truth::Truth;

/// What an actor is told when it goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Job {
    /// On from the cell it stopped at.
    GoOn,
    /// Cores: a client's request.
    Arrive(usize),
    /// Cores: from a lane.
    Hear(CoreMessage, usize),
    /// Cores: its engine answered, or broke.
    Finished(usize),
    Failed(usize),
    /// Cores: the client leaves.
    Leave(usize),
    /// Cores: the home core's own deadline.
    GiveUp(usize),
    /// Cores: deadlines of those that wait here.
    Expire,
    /// Cores: grants that were left, and outboxes with room.
    Work,
    /// Cores: the newest table.
    Adopt,
    /// Cores: slots are closed, nobody is taken in.
    Drain,
    /// Cores: the net below the nudges; nothing may be left for it.
    Net,
    /// Side: reads an engine.
    Scrape(usize),
    /// Side: says how much room every pool has.
    Rooms,
    /// Side: a change to the table.
    Change,
    /// Side: an endpoint is there again, or not.
    Ready(usize, bool),
}

/// Why an actor stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Access,
    Idle,
}

/// What a core's own code says of itself when it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Tickets in its queues.
    pub(crate) waiting: usize,
    /// Places of its requests.
    pub(crate) places: usize,
    /// Nudges not sent.
    pub(crate) owes: bool,
    pub(crate) found_by_net: u64,
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Arrive(usize),
    Submit(usize),
    Leave(usize),
    GiveUp(usize),
    Scrape(usize),
    Revive(usize),
}

/// An endpoint instance, for its life.
pub(crate) struct Instance {
    pub(crate) slot: BoardSlot,
    pub(crate) engine: Engine,
    /// It left its pool: nothing may be sent to it once its slot says so.
    pub(crate) is_leaving: bool,
}

/// What all actors share.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) board: Arc<Board>,
    pub(crate) now: Cell<u64>,
    pub(crate) is_closing: Cell<bool>,
    pub(crate) is_draining: Cell<bool>,
    /// Pools whose engines say that their caches are full, as bits.
    pub(crate) full_caches: Cell<u32>,
    pub(crate) lanes: RefCell<Lanes>,
    pub(crate) requests: RefCell<Vec<Request>>,
    /// All requests before this one are over, with all that is counted of them.
    first_live: Cell<usize>,
    pub(crate) truth: RefCell<Truth>,
    pub(crate) instances: RefCell<Vec<Instance>>,
    pub(crate) feed: RefCell<Rc<Publication>>,
    pub(crate) due: RefCell<BinaryHeap<Reverse<(u64, u64, Due)>>>,
    due_count: Cell<u64>,
    /// Jobs for idle actors, by actor; the side runtime is the last.
    pub(crate) jobs: RefCell<Vec<VecDeque<Job>>>,
    /// What the scheduler may know of cores: the table they work with, whether grants are left, when a deadline passes.
    pub(crate) adopted: RefCell<Vec<u64>>,
    pub(crate) has_more: RefCell<Vec<bool>>,
    /// Owners that a core owes nudges to, whose lanes were full.
    pub(crate) owed: RefCell<Vec<Vec<usize>>>,
    pub(crate) next_deadline: RefCell<Vec<Option<u64>>>,
    /// By core, what its own code says of itself.
    pub(crate) said: RefCell<Vec<Said>>,
    pub(crate) chance: RefCell<Chance>,
    pub(crate) fired: RefCell<Fired>,
    /// The last events, where they are wanted.
    pub(crate) log: Option<RefCell<VecDeque<String>>>,
}

/// Events that a failing world shows.
const LOG_LENGTH: usize = 120;

impl World {
    /// A world with that board and first table; nothing is under way.
    pub(crate) fn new(
        (plan, board): (Plan, Arc<Board>),
        first: Publication,
        chance: Chance,
        mutant: Option<Mutant>,
        is_logged: bool,
    ) -> Self {
        let cores = plan.cores;
        Self {
            board,
            now: Cell::new(crate::plan::MS),
            is_closing: Cell::new(false),
            is_draining: Cell::new(false),
            full_caches: Cell::new(0),
            lanes: RefCell::new(Lanes::new(cores, plan.lane_capacity)),
            requests: RefCell::default(),
            first_live: Cell::new(0),
            truth: RefCell::new(Truth::new(cores + 1)),
            instances: RefCell::default(),
            feed: RefCell::new(Rc::new(first)),
            due: RefCell::default(),
            due_count: Cell::new(0),
            jobs: RefCell::new(vec![VecDeque::new(); cores + 1]),
            adopted: RefCell::new(vec![0; cores]),
            has_more: RefCell::new(vec![false; cores]),
            owed: RefCell::new(vec![Vec::new(); cores]),
            next_deadline: RefCell::new(vec![None; cores]),
            said: RefCell::new(vec![Said::default(); cores]),
            chance: RefCell::new(chance),
            fired: RefCell::default(),
            log: is_logged.then(RefCell::default),
            plan,
            mutant,
        }
    }

    pub(crate) fn side(&self) -> usize {
        self.plan.cores
    }

    pub(crate) fn now(&self) -> Mono {
        Mono(self.now.get())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.plan.limits
    }

    pub(crate) fn draw(&self, bound: u32) -> u32 {
        self.chance.borrow_mut().below(bound)
    }

    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn count(&self, trouble: Trouble) {
        self.fired.borrow_mut().count(trouble);
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            let mut log = log.borrow_mut();
            if log.len() == LOG_LENGTH {
                log.pop_front();
            }
            log.push_back(format!("{:>10.3} ms  {}", self.now.get() as f64 / 1e6, line()));
        }
    }

    pub(crate) fn breaks(&self, what: impl FnOnce() -> String) {
        self.truth.borrow_mut().breaks(what);
    }

    pub(crate) fn at(&self, time: u64, due: Due) {
        self.due_count.set(self.due_count.get() + 1);
        self.due.borrow_mut().push(Reverse((time, self.due_count.get(), due)));
    }

    pub(crate) fn give(&self, actor: usize, job: Job) {
        self.jobs.borrow_mut()[actor].push_back(job);
    }

    /// Whether an endpoint must get nothing, by instance: it leaves, or its breaker is open.
    pub(crate) fn bad_endpoints(&self) -> Vec<bool> {
        let is_bad = |instance: &Instance| {
            let cells = self.board.endpoint(instance.slot);
            instance.is_leaving || (cells.breaker() == BreakerState::Open && cells.out_until() > self.now())
        };
        self.instances.borrow().iter().map(is_bad).collect()
    }

    /// Where those that may still count for something begin.
    pub(crate) fn first_live(&self) -> usize {
        let requests = self.requests.borrow();
        let is_past = |at: &usize| requests.get(*at).is_some_and(|it| it.is_over() && it.holds.is_none());
        // One that is over may still be granted a place while its ticket is under way or queued.
        if self.lanes.borrow().is_empty() {
            let first = (self.first_live.get()..).find(|at| !is_past(at)).unwrap_or(0);
            let queued = self.truth.borrow().queued.iter().copied().min();
            self.first_live.set(queued.map_or(first, |queued| queued.min(first)));
        }
        self.first_live.get()
    }

    /// A request ends, in one way.
    pub(crate) fn ends(&self, request: usize, verdict: Verdict) {
        let mut requests = self.requests.borrow_mut();
        let ended = &mut requests[request];
        ended.verdicts += 1;
        if ended.verdicts > 1 {
            let before = ended.state;
            self.breaks(|| format!("request {request} ends twice: {before:?}, then {verdict:?}"));
        }
        ended.state = State::Ended(verdict);
        self.log(|| format!("request {request} ends: {verdict:?}"));
    }

    /// Lets time pass to the next thing that is due; `false` when nothing ever is.
    pub(crate) fn pass_time(&self) -> bool {
        let first = self.due.borrow().peek().map(|Reverse((at, ..))| *at);
        let engines = self.instances.borrow().iter().filter_map(|it| it.engine.next_event_at()).min();
        let deadlines = self.next_deadline.borrow().iter().flatten().min().copied();
        let Some(next) = [first, engines, deadlines].into_iter().flatten().min() else { return false };
        self.now.set(self.now.get().max(next));
        self.happen();
        true
    }

    /// What is due at this moment.
    fn happen(&self) {
        let now = self.now.get();
        let count = self.instances.borrow().len();
        for at in 0..count {
            let ended = self.instances.borrow_mut()[at].engine.advance(now);
            for (request, served) in ended {
                let home = self.requests.borrow()[request].home;
                self.give(home, if served { Job::Finished(request) } else { Job::Failed(request) });
            }
        }
        loop {
            let due = self.due.borrow().peek().map(|Reverse((at, _, due))| (*at, *due));
            let Some((_, due)) = due.filter(|(at, _)| *at <= now) else { break };
            self.due.borrow_mut().pop();
            let home = |request: usize| self.requests.borrow()[request].home;
            match due {
                Due::Arrive(request) => self.give(home(request), Job::Arrive(request)),
                Due::Leave(request) => self.give(home(request), Job::Leave(request)),
                Due::GiveUp(request) => self.give(home(request), Job::GiveUp(request)),
                Due::Submit(request) => self.submit(request),
                Due::Scrape(instance) => self.give(self.side(), Job::Scrape(instance)),
                Due::Revive(instance) => {
                    self.instances.borrow_mut()[instance].engine.is_dead = false;
                    self.give(self.side(), Job::Ready(instance, true));
                }
            }
        }
        for (core, at) in self.next_deadline.borrow_mut().iter_mut().enumerate() {
            if at.is_some_and(|at| at <= now) {
                *at = None;
                self.give(core, Job::Expire);
            }
        }
    }

    /// A request reaches its engine.
    fn submit(&self, request: usize) {
        let mut requests = self.requests.borrow_mut();
        let asked = &mut requests[request];
        let (State::Running, Some(instance)) = (asked.state, asked.instance) else { return };
        let engine = &mut self.instances.borrow_mut()[instance].engine;
        if engine.is_dead {
            self.give(asked.home, Job::Failed(request));
        } else {
            asked.job = Some(engine.submit(self.now.get(), request, asked.prompt, asked.output));
        }
    }

    /// Kills an engine: what it holds breaks, and the side runtime hears of it a little later.
    pub(crate) fn kill(&self, instance: usize) {
        let broken = self.instances.borrow_mut()[instance].engine.die(self.now.get());
        for request in broken {
            let home = self.requests.borrow()[request].home;
            self.give(home, Job::Failed(request));
        }
        // Some engines break every request and look well all the while.
        if self.draw(3) == 0 {
            self.give(self.side(), Job::Ready(instance, false));
        }
        let back = self.now.get() + u64::from(20 + self.draw(400)) * crate::plan::MS;
        self.at(back, Due::Revive(instance));
    }

    pub(crate) fn core_id(core: usize) -> CoreId {
        CoreId(core as u32)
    }
}
