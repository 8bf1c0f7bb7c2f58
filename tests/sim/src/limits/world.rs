//! One world of tenants: what there is, whose turn it is, how time passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use llmgw_kit::chance::Chance;
use llmgw_router::limiter::{Fault, Home, Now, Owner, ToHome, ToOwner};
use llmgw_router::quota::Measures;
use llmgw_router::quota::window::TICK_NS;
use llmgw_types::CoreId;

use super::Planted;
use super::check;
use super::ledger::Ledger;
use super::plan::Plan;
use super::requests::Request;
use super::shape::{Limits, Shape};
use crate::drive::Outcome;
use crate::fired::{Fired, Trouble};

/// Steps between two rests.
const REST_EVERY: u64 = 1_500;
/// Events kept of a world that is shown.
const LOG_MAX: usize = 400;

/// What is on its way, numbered in the order in which it was said.
pub(super) struct Message<T> {
    pub(super) number: u64,
    pub(super) what: T,
}

pub(super) type Lane<T> = VecDeque<Message<T>>;

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) chance: Chance,
    pub(super) now_ns: u64,
    /// Unix seconds at the monotonic clock's zero.
    wall_offset: i64,
    pub(super) homes: Vec<Home<Planted>>,
    pub(super) owners: Vec<Owner<Planted>>,
    /// By core.
    pub(super) tables: Vec<Rc<Limits>>,
    pub(super) newest: Rc<Limits>,
    pub(super) shape: Shape,
    /// By home, then owner; and by owner, then home.
    pub(super) up: Vec<Vec<Lane<ToOwner>>>,
    pub(super) down: Vec<Vec<Lane<ToHome>>>,
    pub(super) said: u64,
    pub(super) stands: Vec<u32>,
    pub(super) ticked: Vec<u32>,
    pub(super) requests: Vec<Request>,
    /// By home and number of the question.
    pub(super) asked: BTreeMap<(usize, u64), usize>,
    /// Numbers that questions had, by core.
    pub(super) numbers: BTreeSet<(usize, u64)>,
    /// What is limited of those that ask.
    pub(super) masks: BTreeMap<usize, Measures>,
    pub(super) waiting: Vec<usize>,
    pub(super) running: Vec<usize>,
    pub(super) ledger: Ledger,
    /// Levels that came to their owner since the last rest: what is held of chains that were there before counts at
    /// them from the next word of each chain on.
    pub(super) fresh: BTreeSet<u32>,
    pub(super) known: BTreeMap<u32, [i64; 4]>,
    /// By level: when its budget's period ends.
    pub(super) periods: BTreeMap<u32, u32>,
    /// More was used than reserved in this step.
    pub(super) may_grow: bool,
    pub(super) broken: Option<String>,
    pub(super) fired: Fired,
    log: VecDeque<String>,
    is_logged: bool,
    steps: u64,
}

/// Runs the world of a seed for so many steps, then to its end.
pub(crate) fn run(seed: u64, steps: u64, mutant: Option<Fault>, is_logged: bool) -> Outcome {
    let mut world = World::new(seed, mutant, is_logged);
    while world.steps < steps && world.broken.is_none() {
        world.step();
        check::each_step(&mut world);
        if world.steps.is_multiple_of(REST_EVERY) {
            world.rest();
        }
    }
    if world.broken.is_none() {
        world.rest();
        world.end();
    }
    Outcome {
        broken: world.broken,
        steps: world.steps,
        requests: world.requests.len(),
        fired: world.fired,
        log: world.log,
    }
}

impl World {
    fn new(seed: u64, mutant: Option<Fault>, is_logged: bool) -> Self {
        let mut chance = Chance::seeded(seed);
        let plan = Plan::draw(&mut chance);
        let shape = Shape::draw(&plan, &mut chance);
        let limits = Rc::new(shape.limits());
        let cores = plan.cores;
        fn lanes<T>(cores: usize) -> Vec<Vec<Lane<T>>> {
            (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect()
        }
        Self {
            chance,
            now_ns: 100 * TICK_NS,
            wall_offset: plan.wall - 100,
            homes: (0..cores as u32).map(|core| Home::with(CoreId(core), Planted(mutant))).collect(),
            owners: (0..cores).map(|_| Owner::with(cores as u32, Planted(mutant)).lending(plan.doublings)).collect(),
            tables: vec![limits.clone(); cores],
            newest: limits,
            up: lanes(cores),
            down: lanes(cores),
            said: 0,
            stands: vec![0; cores],
            ticked: vec![0; cores],
            requests: Vec::new(),
            asked: BTreeMap::new(),
            numbers: BTreeSet::new(),
            masks: BTreeMap::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            ledger: Ledger::default(),
            fresh: BTreeSet::new(),
            known: BTreeMap::new(),
            periods: BTreeMap::new(),
            may_grow: false,
            broken: None,
            fired: Fired::default(),
            log: VecDeque::new(),
            is_logged,
            steps: 0,
            plan,
            shape,
        }
    }

    pub(super) fn now(&self) -> Now {
        let tick = u32::try_from(self.now_ns / TICK_NS).unwrap_or(u32::MAX);
        let second = self.wall_offset + (self.now_ns / TICK_NS) as i64;
        Now { tick, second: u32::try_from(second).unwrap_or(0) }
    }

    pub(super) fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub(super) fn log(&mut self, line: impl FnOnce() -> String) {
        if self.is_logged {
            if self.log.len() == LOG_MAX {
                self.log.pop_front();
            }
            let line = format!("{:>6} {:?}: {}", self.steps, self.now(), line());
            self.log.push_back(line);
        }
    }

    pub(super) fn chance_of(&mut self, in_thousand: u32) -> bool {
        in_thousand > 0 && self.chance.below(1000) < in_thousand
    }

    pub(super) fn any_core(&mut self) -> usize {
        self.chance.below(self.plan.cores as u32) as usize
    }

    pub(super) fn owner_of(&self, org: u64) -> usize {
        org as usize % self.plan.cores
    }

    fn step(&mut self) {
        self.steps += 1;
        self.may_grow = false;
        let plan = self.plan.clone();
        self.stands.iter_mut().for_each(|left| *left = left.saturating_sub(1));
        if self.chance.below(plan.hurry) == 0 {
            return self.pass_time();
        }
        if self.chance_of(plan.publications) {
            return self.publish();
        }
        // Also, and more often, while an ask waits for slices to come back.
        if let Some(owner) = self.owners.iter().position(|owner| owner.parked_count() > 0)
            && self.chance_of(plan.publications * 10)
            && self.tighten(owner)
        {
            return;
        }
        if self.chance_of(plan.wall_steps) {
            let by = i64::from(self.chance.below(7200)) - 3600;
            self.fired.count(if by < 0 { Trouble::ClockBack } else { Trouble::ClockForward });
            self.wall_offset += by;
            return self.log(|| format!("the wall clock steps by {by} s"));
        }
        if self.chance_of(plan.stands) {
            let core = self.any_core();
            self.fired.count(Trouble::CoreStood);
            self.stands[core] = 5 + self.chance.below(100);
            return;
        }
        let core = self.any_core();
        if self.stands[core] > 0 {
            return;
        }
        if self.tables[core].table.generation() < self.newest.table.generation() && self.chance.below(4) == 0 {
            return self.adopt(core);
        }
        if self.ticked[core] != self.now().tick && self.chance.below(3) == 0 {
            return self.tick(core);
        }
        if self.chance_of(plan.delivers) && self.deliver(core) {
            return;
        }
        match self.chance.below(10) {
            0..=4 => self.arrive(core),
            5..=8 => self.finish(core),
            _ => self.leave(core),
        }
    }

    fn pass_time(&mut self) {
        let ns = match self.chance.below(40) {
            0..=25 => u64::from(self.chance.below(300)) * 1_000_000,
            26..=37 => u64::from(200 + self.chance.below(2_500)) * 1_000_000,
            38 => u64::from(10 + self.chance.below(70)) * TICK_NS,
            _ if self.chance_of(self.plan.jumps * 100) => {
                // To a moment before, or after, the next edge.
                let second = self.now().second;
                let ends = self.plan.calendars.iter().map(|calendar| calendar.at(second).end);
                let Some(edge) = ends.filter(|end| *end < u32::MAX).min() else { return };
                u64::from((edge - second).saturating_sub(2) + self.chance.below(4)) * TICK_NS
            }
            _ => 0,
        };
        self.now_ns += ns;
        let tick = self.now().tick;
        self.ledger.prune(tick);
    }

    /// The owner of a level's budget is in the period that ends then.
    pub(super) fn sees_period(&mut self, row: u32, end: u32) {
        let Some(before) = self.periods.insert(row, end).filter(|before| *before < end && end < u32::MAX) else {
            return;
        };
        let period = self.shape.period(row, before - 1);
        self.fired.count(Trouble::PeriodEdge);
        match (period.end - period.start) / 3600 {
            23 => self.fired.count(Trouble::ShortDay),
            25 => self.fired.count(Trouble::LongDay),
            hours if hours >= 28 * 24 - 1 => self.fired.count(Trouble::MonthEnd),
            _ => {}
        }
        if self.plan.zones[self.shape.calendar_of(row)] == "Asia/Tokyo" {
            self.fired.count(Trouble::EdgeInTokyo);
        }
        let is_over = |(at, it): (usize, u32)| self.shape.rows(self.requests[at].chain).has(row) && it < before;
        let open = self.ledger.entries.iter().filter(|entry| entry.is_open);
        if open.map(|entry| (entry.request, entry.it.second)).any(is_over) {
            self.fired.count(Trouble::RunsOverEdge);
        }
        let chains = (0..self.newest.table.chain_count() as u32).filter(|chain| self.shape.rows(*chain).has(row));
        let is_lent = |chain: u32| self.homes.iter().any(|home| home.in_hand(chain).0.units != 0);
        if chains.into_iter().any(is_lent) {
            self.fired.count(Trouble::LeaseOverEdge);
        }
    }
}
