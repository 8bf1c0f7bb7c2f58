//! One world: whose turn it is, what goes wrong, what is said to whom.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use llmgw_kit::chance::Chance;
use llmgw_router::limiter::message::{Want, Word};
use llmgw_router::limiter::{Answer, Fault, Home, Now, Owner, Reservation, Reserved, ToHome, ToOwner, Truth};
use llmgw_router::quota::window::TICK_NS;
use llmgw_router::quota::{Amounts, Chain, LimitTable, Measures};
use llmgw_types::CoreId;

use super::Planted;
use super::check;
use super::ledger::Ledger;
use super::plan::{Plan, Shape};
use super::requests::{Request, State};
use crate::drive::Outcome;
use crate::fired::{Fired, Trouble};

/// Steps in which a world comes to rest once nothing new happens, or it never does.
const REST_STEPS_MAX: usize = 100_000;
/// Steps between two rests.
const REST_EVERY: u64 = 1_500;
/// Events kept of a world that is shown.
const LOG_MAX: usize = 400;

pub(super) struct World {
    pub(super) plan: Plan,
    chance: Chance,
    pub(super) now_ns: u64,
    /// Unix seconds at the monotonic clock's zero.
    wall_offset: i64,
    pub(super) homes: Vec<Home<Planted>>,
    pub(super) owners: Vec<Owner<Planted>>,
    /// By core.
    pub(super) tables: Vec<Rc<LimitTable>>,
    pub(super) newest: Rc<LimitTable>,
    pub(super) shape: Shape,
    /// By home, then owner; and by owner, then home.
    pub(super) up: Vec<Vec<VecDeque<ToOwner>>>,
    pub(super) down: Vec<Vec<VecDeque<ToHome>>>,
    stands: Vec<u32>,
    ticked: Vec<u32>,
    pub(super) requests: Vec<Request>,
    /// By home and number of the question.
    asked: BTreeMap<(usize, u64), usize>,
    /// What is limited of those that ask.
    masks: BTreeMap<usize, Measures>,
    waiting: Vec<usize>,
    running: Vec<usize>,
    pub(super) ledger: Ledger,
    /// By level: since when its refunds may be off, and until when; `u32::MAX`: until all cores know.
    pub(super) young: BTreeMap<u32, (u32, u32)>,
    /// Levels whose counting began or ended: their budgets are not compared.
    pub(super) reshaped: Vec<u32>,
    pub(super) known: BTreeMap<u32, [i64; 4]>,
    /// More was used than reserved in this step, or a core took a table.
    pub(super) may_grow: bool,
    pub(super) broken: Option<String>,
    fired: Fired,
    log: VecDeque<String>,
    is_logged: bool,
    steps: u64,
}

/// Runs the world of a seed for so many steps, then to its end.
pub(crate) fn run(seed: u64, steps: u64, mutant: Option<Fault>, is_logged: bool) -> Outcome {
    let mut chance = Chance::seeded(seed);
    let plan = Plan::draw(&mut chance);
    let shape = Shape::draw(&plan, &mut chance);
    let table = Rc::new(shape.table());
    let cores = plan.cores;
    let start_ns = 100 * TICK_NS;
    let mut world = World {
        chance,
        now_ns: start_ns,
        wall_offset: plan.wall - 100,
        homes: (0..cores as u32).map(|core| Home::with(CoreId(core), Planted(mutant))).collect(),
        owners: (0..cores).map(|_| Owner::with(cores as u32, Planted(mutant))).collect(),
        tables: vec![table.clone(); cores],
        newest: table,
        up: vec![vec![VecDeque::new(); cores]; cores],
        down: vec![vec![VecDeque::new(); cores]; cores],
        stands: vec![0; cores],
        ticked: vec![0; cores],
        requests: Vec::new(),
        asked: BTreeMap::new(),
        masks: BTreeMap::new(),
        waiting: Vec::new(),
        running: Vec::new(),
        ledger: Ledger::default(),
        young: BTreeMap::new(),
        reshaped: Vec::new(),
        known: BTreeMap::new(),
        may_grow: false,
        broken: None,
        fired: Fired::default(),
        log: VecDeque::new(),
        is_logged,
        steps: 0,
        plan,
        shape,
    };
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
    pub(super) fn now(&self) -> Now {
        let tick = u32::try_from(self.now_ns / TICK_NS).unwrap_or(u32::MAX);
        let second = self.wall_offset + (self.now_ns / TICK_NS) as i64;
        Now { tick, second: u32::try_from(second).unwrap_or(0) }
    }

    pub(super) fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn log(&mut self, line: impl FnOnce() -> String) {
        if self.is_logged {
            if self.log.len() == LOG_MAX {
                self.log.pop_front();
            }
            let line = format!("{:>6} {:?}: {}", self.steps, self.now(), line());
            self.log.push_back(line);
        }
    }

    fn chance_of(&mut self, in_thousand: u32) -> bool {
        in_thousand > 0 && self.chance.below(1000) < in_thousand
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
        if self.chance_of(plan.wall_steps) {
            let by = i64::from(self.chance.below(7200)) - 3600;
            self.fired.count(Trouble::ClockStepped);
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
        if self.tables[core].generation() < self.newest.generation() && self.chance.below(4) == 0 {
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

    fn any_core(&mut self) -> usize {
        self.chance.below(self.plan.cores as u32) as usize
    }

    fn pass_time(&mut self) {
        let ns = match self.chance.below(40) {
            0..=25 => u64::from(self.chance.below(300)) * 1_000_000,
            26..=37 => u64::from(200 + self.chance.below(2_500)) * 1_000_000,
            38 => u64::from(10 + self.chance.below(70)) * TICK_NS,
            _ if self.chance_of(self.plan.jumps * 100) => {
                // To a moment before, or after, the next edge.
                let second = self.now().second;
                let edges = self
                    .plan
                    .calendars
                    .iter()
                    .filter_map(|calendar| Some(calendar.at(second).end).filter(|end| *end < u32::MAX));
                let Some(edge) = edges.min() else { return };
                self.fired.count(Trouble::PeriodEdge);
                u64::from((edge - second).saturating_sub(2) + self.chance.below(4)) * TICK_NS
            }
            _ => 0,
        };
        self.now_ns += ns;
        let tick = self.now().tick;
        self.ledger.prune(tick);
    }

    fn publish(&mut self) {
        let rows = self.shape.change(&mut self.chance);
        let old = self.newest.clone();
        self.newest = Rc::new(self.shape.table());
        self.fired.count(Trouble::LimitsChanged);
        let tick = self.now().tick;
        for row in rows {
            self.young.insert(row, (tick, u32::MAX));
            let limits = |table: &LimitTable| table.level(row).map(|level| level.limits.map(|limit| limit.is_some()));
            if limits(&old) != limits(&self.newest) {
                self.reshaped.push(row);
            }
        }
        let generation = self.newest.generation();
        self.log(|| format!("limits {generation} are published"));
    }

    fn adopt(&mut self, core: usize) {
        self.may_grow = true;
        let (table, now) = (self.newest.clone(), self.now());
        self.tables[core] = table.clone();
        let mut out = Vec::new();
        self.homes[core].keep_to(&table, |org, message| keep(&mut out, org, message));
        for chain in 0..table.chain_count() as u32 {
            let (left, _) = self.homes[core].in_hand(chain);
            let version = table.chain(chain).map(|chain| chain.version);
            if version.is_none() && !left.is_zero() {
                self.breaks(format!("core {core} holds {left:?} of chain {chain}, which is revoked"));
            }
        }
        self.send_up(core, out);
        let mut down = Vec::new();
        self.owners[core].keep_to(&table, now, |home, message| down.push((home, message)));
        self.send_down(core, down);
        self.log(|| format!("core {core} takes limits {}", table.generation()));
        if self.tables.iter().all(|table| table.generation() == self.newest.generation()) {
            let tick = now.tick;
            for (from, until) in self.young.values_mut().filter(|(_, until)| *until == u32::MAX) {
                (*from, *until) = (tick, tick + 62);
            }
        }
    }

    fn tick(&mut self, core: usize) {
        let now = self.now();
        self.ticked[core] = now.tick;
        let table = self.tables[core].clone();
        let mut out = Vec::new();
        self.homes[core].tick(&table, now, |org, message| keep(&mut out, org, message));
        self.send_up(core, out);
        self.owners[core].tick(now);
    }

    fn owner_of(&self, org: u64) -> usize {
        org as usize % self.plan.cores
    }

    fn send_up(&mut self, home: usize, out: Vec<(u64, ToOwner)>) {
        for (org, message) in out {
            let owner = self.owner_of(org);
            self.up[home][owner].push_back(message);
        }
    }

    fn send_down(&mut self, owner: usize, out: Vec<(CoreId, ToHome)>) {
        for (home, message) in out {
            if let ToHome::Verdict(verdict) = &message {
                self.decided(owner, home.idx(), verdict.number, &verdict.word);
            }
            if let ToHome::Recall { .. } = &message {
                self.fired.count(Trouble::Recalled);
            }
            self.log(|| format!("core {owner} to {}: {message:?}", home.0));
            self.down[owner][home.idx()].push_back(message);
        }
    }

    /// The owner has decided: what it granted counts from here on.
    fn decided(&mut self, owner: usize, home: usize, number: u64, word: &Word) {
        let Some(at) = self.asked.get(&(home, number)).copied() else {
            if let Word::Yes { slice, .. } = word
                && !slice.is_zero()
            {
                self.fired.count(Trouble::SliceGiven);
            }
            return;
        };
        let (chain, full) = (self.requests[at].chain, self.requests[at].ask);
        match *word {
            Word::Yes { slice, version, tick, second, .. } => {
                if !slice.is_zero() {
                    self.fired.count(Trouble::SliceGiven);
                }
                // What it asked for is limited as its home core knew.
                let it = Reservation {
                    chain,
                    org: self.shape.org_of(chain / 2).into(),
                    version,
                    measures: self.measures_asked(at),
                    ask: full.only(self.measures_asked(at)),
                    tick,
                    second,
                };
                let levels = self.shape.rows(chain);
                self.ledger.admits(at, it, levels);
            }
            Word::No(refused) => {
                self.fired.count(Trouble::RefusedByOwner);
                check::refused(self, owner, at, refused);
            }
            Word::Free => {}
        }
    }

    fn measures_asked(&self, at: usize) -> Measures {
        self.masks.get(&at).copied().unwrap_or_default()
    }

    /// Hears one message, as home or as owner. Answer: whether there was one.
    fn deliver(&mut self, core: usize) -> bool {
        let cores = self.plan.cores;
        let from = self.any_core();
        for step in 0..cores {
            let peer = (from + step) % cores;
            let is_up_first = self.chance.below(2) == 0;
            for is_up in [is_up_first, !is_up_first] {
                if is_up {
                    if let Some(message) = self.up[peer][core].pop_front() {
                        self.hear_as_owner(core, message);
                        return true;
                    }
                } else if let Some(message) = self.down[peer][core].pop_front() {
                    self.hear_as_home(core, message);
                    return true;
                }
            }
        }
        false
    }

    fn hear_as_owner(&mut self, core: usize, message: ToOwner) {
        let (table, now) = (self.tables[core].clone(), self.now());
        match &message {
            ToOwner::Settle(settle) if settle.tokens < 0 => {
                self.may_grow = true;
                let levels = self.shape.rows(settle.chain);
                if table.chain(settle.chain).is_none() {
                    // Of a key that is gone: where it counts is known only while something of it is held.
                    for row in levels.iter() {
                        self.young.insert(row, (now.tick, now.tick + 62));
                    }
                }
                self.ledger.excess.push((levels, now.tick, -settle.tokens));
            }
            ToOwner::Report(report) if report.back.units < 0 || report.back.tokens < 0 => self.may_grow = true,
            _ => {}
        }
        self.log(|| format!("core {core} hears {message:?}"));
        let mut down = Vec::new();
        self.owners[core].hear(&table, &message, now, |home, message| down.push((home, message)));
        self.send_down(core, down);
    }

    fn hear_as_home(&mut self, core: usize, message: ToHome) {
        let (table, now) = (self.tables[core].clone(), self.now());
        let mut out = Vec::new();
        match message {
            ToHome::Recall { chain, org, slices } => {
                self.homes[core].recall(chain, org, slices, now, |org, message| keep(&mut out, org, message));
            }
            ToHome::Verdict(verdict) => {
                let at = self.asked.remove(&(core, verdict.number));
                let answer =
                    self.homes[core].verdict(&table, &verdict, now, |org, message| keep(&mut out, org, message));
                if let Some(at) = at {
                    self.waiting.retain(|waiting| *waiting != at);
                    self.answered(at, answer);
                }
            }
            ToHome::Stands(_) => {}
        }
        self.log(|| format!("core {core} says {out:?}"));
        self.send_up(core, out);
    }

    fn answered(&mut self, at: usize, answer: Option<(u64, Answer)>) {
        let is_gone = self.requests[at].is_gone;
        let table = self.newest.clone();
        self.requests[at].state = match answer {
            Some((_, Answer::Go(it, _))) if !is_gone => {
                self.running.push(at);
                State::Running(it)
            }
            None if is_gone => {
                self.fired.count(Trouble::LateVerdict);
                self.ledger.ends(&table, at, false, 0, 0);
                State::Over
            }
            Some((_, Answer::Refused(..) | Answer::Free)) if !is_gone => State::Over,
            other => {
                self.breaks(format!("request {at}, gone: {is_gone}, is answered {other:?}"));
                State::Over
            }
        };
    }

    fn arrive(&mut self, core: usize) {
        let chain = self.chance.below(2 * self.plan.keys);
        if self.shape.is_revoked[chain as usize / 2] && self.chance.below(8) > 0 {
            return;
        }
        let tokens = 1 + self.chance.below(self.plan.tokens_max);
        let units = if self.chance.below(5) == 0 { 0 } else { i64::from(tokens) * i64::from(1 + self.chance.below(3)) };
        let ask = Amounts::of_request(tokens.into(), units);
        let (table, now, at) = (self.tables[core].clone(), self.now(), self.requests.len());
        let capacity = self.plan.lane_capacity;
        let mut out = Vec::new();
        let lanes: Vec<usize> = self.up[core].iter().map(VecDeque::len).collect();
        let cores = self.plan.cores;
        let reserved = self.homes[core].reserve(&table, chain, ask, now, |org, message| {
            let is_full = lanes[org as usize % cores] >= capacity;
            if is_full && matches!(message, ToOwner::Reserve(_)) {
                return false;
            }
            out.push((org, message));
            true
        });
        self.log(|| format!("request {at} of chain {chain} at core {core}: {ask:?}: {reserved:?}, says {out:?}"));
        let state = match reserved {
            Reserved::Go(it, _) => {
                self.fired.count(Trouble::FromLease);
                if table.chain(chain).is_none_or(|chain| chain.version != it.version) {
                    self.breaks(format!("request {at} is admitted by limits that are not its core's any more"));
                }
                self.ledger.admits(at, it, self.shape.rows(chain));
                self.running.push(at);
                State::Running(it)
            }
            Reserved::Wait(number) => {
                self.asked.insert((core, number), at);
                let measures = table.chain(chain).map(Chain::measures).unwrap_or_default();
                self.masks.insert(at, measures);
                self.waiting.push(at);
                self.requests.push(Request { home: core, chain, ask, state: State::Waiting, number, is_gone: false });
                return self.send_up(core, out);
            }
            Reserved::Overloaded => {
                self.fired.count(Trouble::LaneFull);
                State::Over
            }
            Reserved::Free | Reserved::Refused(_) => State::Over,
        };
        self.requests.push(Request { home: core, chain, ask, state, number: 0, is_gone: false });
        self.send_up(core, out);
    }

    /// A running request of that core ends in one of several ways.
    fn finish(&mut self, core: usize) {
        let here: Vec<usize> = self.running.iter().copied().filter(|at| self.requests[*at].home == core).collect();
        if here.is_empty() {
            return;
        }
        let at = here[self.chance.below(here.len() as u32) as usize];
        self.finish_one(at);
    }

    fn finish_one(&mut self, at: usize) {
        let State::Running(it) = self.requests[at].state else { return };
        let (core, ask, now) = (self.requests[at].home, self.requests[at].ask, self.now());
        let is_free = ask.units == 0;
        let part = |chance: &mut Chance, most: i64| i64::from(chance.below(most as u32 + 1));
        let truth = match self.chance.below(10) {
            // An engine that never answered: nothing is counted.
            0 => {
                self.fired.count(Trouble::NeverRan);
                Truth::default()
            }
            1..=3 => {
                self.fired.count(Trouble::LeftRunning);
                Truth {
                    ran: true,
                    tokens: part(&mut self.chance, ask.tokens),
                    units: part(&mut self.chance, ask.units),
                }
            }
            _ if self.chance_of(self.plan.excess) => {
                self.fired.count(Trouble::MoreThanReserved);
                let more = 1 + i64::from(self.chance.below(10));
                Truth { ran: true, tokens: ask.tokens + more, units: if is_free { 0 } else { ask.units + more } }
            }
            _ => Truth { ran: true, tokens: part(&mut self.chance, ask.tokens), units: ask.units },
        };
        let mut out = Vec::new();
        self.homes[core].end(it, truth, now, |org, message| keep(&mut out, org, message));
        self.log(|| format!("request {at} ends: {truth:?}, says {out:?}"));
        let excess = truth.tokens - it.ask.tokens;
        let is_told = out.iter().any(|(_, message)| matches!(message, ToOwner::Settle(settle) if settle.tokens < 0));
        if truth.ran && it.ask.tokens > 0 && excess > 0 && !is_told {
            // From the lease, in this tick.
            self.ledger.excess.push((self.shape.rows(it.chain), now.tick, excess));
        }
        let newest = self.newest.clone();
        self.ledger.ends(&newest, at, truth.ran, truth.tokens, truth.units);
        self.requests[at].state = State::Over;
        self.running.retain(|running| *running != at);
        self.send_up(core, out);
    }

    fn leave(&mut self, core: usize) {
        let here: Vec<usize> = self
            .waiting
            .iter()
            .copied()
            .filter(|at| self.requests[*at].home == core && !self.requests[*at].is_gone)
            .collect();
        if here.is_empty() {
            return;
        }
        let at = here[self.chance.below(here.len() as u32) as usize];
        self.requests[at].is_gone = true;
        self.homes[core].leave(self.requests[at].number);
        self.fired.count(Trouble::LeftQueue);
    }

    /// Everything that runs ends, every message is heard, every lease goes back: then counters are what is true.
    fn rest(&mut self) {
        self.stands.fill(0);
        self.known.clear();
        for core in 0..self.plan.cores {
            if self.tables[core].generation() < self.newest.generation() {
                self.adopt(core);
            }
        }
        for at in self.running.clone() {
            self.finish_one(at);
        }
        for round in 0..REST_STEPS_MAX {
            let core = round % self.plan.cores;
            let is_empty = |lanes: &[VecDeque<ToOwner>]| lanes.iter().all(VecDeque::is_empty);
            let is_quiet =
                self.up.iter().all(|lanes| is_empty(lanes)) && self.down.iter().flatten().all(VecDeque::is_empty);
            if is_quiet && self.running.is_empty() {
                if self.homes.iter().all(Home::is_idle) && self.waiting.is_empty() {
                    return check::at_rest(self);
                }
                // Idle leases go back with time.
                self.now_ns += TICK_NS;
                (0..self.plan.cores).for_each(|core| self.tick(core));
                continue;
            }
            self.deliver(core);
            for at in self.running.clone() {
                self.finish_one(at);
            }
            if self.broken.is_some() {
                return;
            }
        }
        let waiting = self.waiting.len();
        self.breaks(format!("it does not come to rest: {waiting} wait"));
    }

    /// A window later nothing counts but budgets.
    fn end(&mut self) {
        if self.broken.is_some() {
            return;
        }
        self.now_ns += 70 * TICK_NS;
        check::empty(self);
    }
}

fn keep(out: &mut Vec<(u64, ToOwner)>, org: u64, message: ToOwner) -> bool {
    // Questions that find no room are tried where requests arrive; refills always find some here.
    debug_assert!(!matches!(message, ToOwner::Reserve(asked) if asked.what == Want::Use));
    out.push((org, message));
    true
}
