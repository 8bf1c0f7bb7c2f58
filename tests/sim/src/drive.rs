//! Runs one world from its seed: who moves, what goes wrong, when it is looked at. The same seed and mutant give the
//! same steps.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use llmgw_kit::chance::Chance;
use llmgw_router::board::Board;

use crate::arrivals::Arriving;
use crate::fired::{Fired, Trouble};
use crate::mutants::Mutant;
use crate::plan::{MS, POOLS, Plan};
use crate::requests::State;
use crate::side::Books;
use crate::world::{Due, Job, Stop, World};
use crate::{check, core, side, tables};

/// What an actor's own code may use; it is shallow.
const STACK_BYTES: usize = 256 << 10;
/// Steps within which a world comes to rest once nothing new happens to it, or it never does.
const REST_STEPS_MAX: u64 = 1_000_000;

/// How a world ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) broken: Option<String>,
    pub(crate) steps: u64,
    pub(crate) requests: usize,
    pub(crate) fired: Fired,
    pub(crate) log: VecDeque<String>,
}

type Actor = Coroutine<Job, Stop, (), DefaultStack>;

struct Drive {
    world: Rc<World>,
    actors: Vec<Actor>,
    is_busy: Vec<bool>,
    /// Steps for which an actor stands still.
    stands: Vec<u32>,
    last: usize,
    steps: u64,
    chance: Chance,
    arriving: Arriving,
}

/// Runs the world of a seed for so many steps, then to its end.
pub(crate) fn run(seed: u64, steps: u64, mutant: Option<Mutant>, is_logged: bool) -> Outcome {
    let mut chance = Chance::seeded(seed);
    let plan = Plan::draw(&mut chance);
    let board = Arc::new(Board::new(plan.cores, 32));
    let counts = [(); POOLS].map(|()| 1 + chance.below(plan.endpoints_max));
    let books = Books::first(&board, counts);
    let publication = tables::publication(1, &books.shapes, &plan);
    let instances = books.instances(&plan);
    for slot in instances.iter().map(|instance| instance.slot) {
        board.set_ready(slot, true);
    }
    (0..plan.cores).for_each(|core| board.set_generation(World::core_id(core), 1));
    let world = World::new((plan, board), publication, Chance::seeded(chance.next_u64()), mutant, is_logged);
    let scrapes = (0..instances.len()).map(|at| (at, MS + u64::from(chance.below(50)) * MS));
    scrapes.for_each(|(at, time)| world.at(time, Due::Scrape(at)));
    *world.instances.borrow_mut() = instances;
    world.adopted.borrow_mut().fill(1);
    let world = Rc::new(world);
    let mut drive = Drive::new(world.clone(), books, chance);
    drive.play(steps);
    let broken = world.truth.borrow().broken.clone();
    let outcome = Outcome {
        broken,
        steps: drive.steps,
        requests: world.requests.borrow().len(),
        fired: world.fired.borrow().clone(),
        log: world.log.as_ref().map(|log| log.borrow().clone()).unwrap_or_default(),
    };
    drive.take_down();
    outcome
}

impl Drive {
    fn new(world: Rc<World>, books: Books, chance: Chance) -> Self {
        let stack = || DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let cores = world.plan.cores;
        let mut actors: Vec<Actor> = (0..cores)
            .map(|id| {
                let world = world.clone();
                Coroutine::with_stack(stack(), move |yielder, first| core::live(&world, id, yielder, first))
            })
            .collect();
        let shared = world.clone();
        actors.push(Coroutine::with_stack(stack(), move |yielder, first| side::live(&shared, books, yielder, first)));
        let arriving = Arriving::new(&world.plan);
        let count = actors.len();
        Self { world, actors, is_busy: vec![false; count], stands: vec![0; count], last: 0, steps: 0, chance, arriving }
    }

    fn play(&mut self, steps: u64) {
        // Everybody is there, and the first rooms are said, before the first request.
        self.world.give(self.world.side(), Job::Rooms);
        (0..self.world.plan.cores).for_each(|core| self.world.give(core, Job::Work));
        self.rest();
        let mut next_quiet = self.world.plan.quiet_every;
        while self.steps < steps && !self.is_broken() {
            self.arriving.keep_up(&self.world, &mut self.chance);
            self.trouble();
            self.crossing();
            self.step(true);
            if self.steps >= next_quiet {
                next_quiet = self.steps + self.world.plan.quiet_every;
                self.quiet();
            }
        }
        self.world.full_caches.set(0);
        self.world.give(self.world.side(), Job::Rooms);
        if self.world.plan.drains && !self.is_broken() {
            self.world.is_draining.set(true);
            (0..self.world.plan.cores).for_each(|core| self.world.give(core, Job::Drain));
        }
        // To the end: time passes until nothing is due.
        let until = self.steps + REST_STEPS_MAX;
        while !self.is_broken() {
            self.rest();
            if self.all_over() {
                break;
            }
            if self.steps > until || !self.world.pass_time() {
                self.world.breaks(|| "requests are left over for ever".to_owned());
            }
        }
        if !self.is_broken() {
            self.quiet();
            check::empty(&self.world);
        }
    }

    fn all_over(&self) -> bool {
        self.world.requests.borrow().iter().all(|request| request.is_over())
    }

    fn is_broken(&self) -> bool {
        self.world.truth.borrow().broken.is_some()
    }

    /// One step. Time passes where `may_wait` allows it, now and then and when there is nothing else to do.
    fn step(&mut self, may_wait: bool) {
        self.stands.iter_mut().for_each(|left| *left = left.saturating_sub(1));
        if self.is_busy[self.last] && self.stands[self.last] == 0 && self.chance.below(1000) < self.world.plan.sticks {
            return self.go_on(self.last);
        }
        if may_wait && self.chance.below(self.world.plan.hurry) == 0 {
            return self.pass_time();
        }
        let count = self.actors.len();
        let first = self.chance.below(count as u32) as usize;
        for actor in (0..count).map(|step| (first + step) % count) {
            if self.stands[actor] > 0 {
                continue;
            }
            if self.is_busy[actor] {
                return self.go_on(actor);
            }
            if let Some(job) = self.next_job(actor) {
                return self.resume(actor, job);
            }
        }
        // Those that could go on stand: they stand no longer, or time passes.
        let least = self.stands.iter().copied().filter(|left| *left > 0).min();
        match least {
            Some(least) if !may_wait || self.chance.below(4) > 0 => {
                self.stands.iter_mut().for_each(|left| *left = left.saturating_sub(least));
            }
            _ if may_wait => self.pass_time(),
            _ => {}
        }
    }

    fn pass_time(&mut self) {
        self.steps += 1;
        self.world.pass_time();
    }

    fn go_on(&mut self, actor: usize) {
        self.resume(actor, Job::GoOn);
    }

    fn resume(&mut self, actor: usize, job: Job) {
        self.steps += 1;
        self.last = actor;
        let stopped = self.actors[actor].resume(job);
        self.is_busy[actor] = matches!(stopped, CoroutineResult::Yield(Stop::Access));
        if self.is_busy[actor] && self.chance.below(1000) < self.world.plan.pauses {
            // Between two accesses others may do a great deal.
            self.stands[actor] = 3 + self.chance.below(self.world.plan.pause_max);
        } else if self.chance.below(1000) < self.world.plan.sum_pauses
            && self.stands.iter().all(|left| *left == 0)
            && self.world.truth.borrow().is_within_sum(actor)
        {
            // A sum is read cell by cell: long enough for a request to come and go between two of them.
            self.stands[actor] = 50 + self.chance.below(400);
        }
        if self.is_busy.iter().all(|is_busy| !is_busy) {
            check::idle(&self.world);
        }
    }

    /// What an idle actor may do next, each as likely.
    fn next_job(&mut self, actor: usize) -> Option<Job> {
        let world = self.world.clone();
        let is_side = actor == world.side();
        let mut lanes = world.lanes.borrow_mut();
        let senders: Vec<usize> = if is_side { Vec::new() } else { lanes.senders(actor).collect() };
        let has_job = !world.jobs.borrow()[actor].is_empty();
        let can_pay = |owners: &[usize]| owners.iter().any(|owner| lanes.has_room(actor, *owner));
        let has_more = |core: usize| world.has_more.borrow()[core] || can_pay(&world.owed.borrow()[core]);
        let has_work = lanes.can_flush(actor) || (!is_side && has_more(actor));
        let has_table = !is_side && world.adopted.borrow()[actor] < world.feed.borrow().generation;
        let options = senders.len() + usize::from(has_job) + usize::from(has_work) + usize::from(has_table);
        if options == 0 {
            return None;
        }
        let mut at = self.chance.below(options as u32) as usize;
        if let Some(&from) = senders.get(at) {
            return lanes.take(actor, from).map(|message| Job::Hear(message, from));
        }
        at -= senders.len();
        if has_job {
            if at == 0 {
                return world.jobs.borrow_mut()[actor].pop_front();
            }
            at -= 1;
        }
        Some(if has_work && at == 0 { Job::Work } else { Job::Adopt })
    }

    /// Everybody goes on until nobody has anything to do; time stands.
    fn rest(&mut self) {
        let until = self.steps + REST_STEPS_MAX;
        loop {
            let before = self.steps;
            let is_idle = self.is_busy.iter().all(|is_busy| !is_busy) && !self.has_any();
            if is_idle || self.is_broken() {
                return;
            }
            self.step(false);
            if before > until {
                return self.world.breaks(|| "cores never come to rest".to_owned());
            }
        }
    }

    fn has_any(&mut self) -> bool {
        let world = &self.world;
        let has_job = world.jobs.borrow().iter().any(|jobs| !jobs.is_empty());
        let behind = world.adopted.borrow().iter().any(|at| *at < world.feed.borrow().generation);
        let has_more = world.has_more.borrow().iter().any(|has_more| *has_more);
        let owes = world.owed.borrow().iter().any(|owners| !owners.is_empty());
        has_job || behind || has_more || owes || !world.lanes.borrow().is_empty()
    }

    /// Lets all come to rest, with every deadline that has passed, and looks at it.
    fn quiet(&mut self) {
        self.rest();
        for job in [Job::Expire, Job::Net] {
            (0..self.world.plan.cores).for_each(|core| self.world.give(core, job));
            self.rest();
        }
        if !self.is_broken() {
            check::quiet(&self.world);
        }
    }

    /// Now and then something goes wrong.
    fn trouble(&mut self) {
        if self.chance.below(1000) >= self.world.plan.troubles {
            return;
        }
        let world = self.world.clone();
        let instances = world.instances.borrow().len() as u32;
        let instance = self.chance.below(instances) as usize;
        match self.chance.below(9) {
            0 => {
                let is_alive = !world.instances.borrow()[instance].engine.is_dead;
                if is_alive {
                    world.count(Trouble::EngineDied);
                    world.kill(instance);
                }
            }
            1 => {
                world.count(Trouble::EngineSlow);
                let slowness = f64::from(1 + self.chance.below(20));
                world.instances.borrow_mut()[instance].engine.slow_down(slowness);
            }
            2 => {
                world.count(Trouble::CoreStood);
                let actor = self.chance.below(world.plan.cores as u32) as usize;
                self.stands[actor] = 20 + self.chance.below(400);
            }
            3 => {
                world.count(Trouble::Foreign);
                let engine = &mut world.instances.borrow_mut()[instance].engine;
                for _ in 0..=self.chance.below(4) {
                    engine.submit_foreign(world.now.get(), 1 + self.chance.below(60), 1 + self.chance.below(20));
                }
            }
            4..=6 => {
                world.count(Trouble::CacheFull);
                world.full_caches.set(world.full_caches.get() ^ (1 << self.chance.below(POOLS as u32)));
                world.give(world.side(), Job::Rooms);
            }
            _ => world.give(world.side(), Job::Change),
        }
    }

    /// Now and then a client leaves while its grant is under way.
    fn crossing(&mut self) {
        if self.chance.below(1000) >= self.world.plan.crossings {
            return;
        }
        let requests = self.world.requests.borrow();
        let is_granted = |at: &usize| requests[*at].state == State::Queued && requests[*at].holds.is_some();
        if let Some(at) = (0..requests.len()).rev().find(is_granted) {
            self.world.jobs.borrow_mut()[requests[at].home].push_front(Job::Leave(at));
        }
    }

    /// Runs every actor to its end without stops, so that what they hold is given back in order.
    fn take_down(mut self) {
        self.world.is_closing.set(true);
        for actor in &mut self.actors {
            while !actor.done() {
                actor.resume(Job::GoOn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::Mutant;

    #[test]
    fn sound_worlds_stay_sound_and_the_same_seed_gives_the_same_world() {
        for seed in 1..=20 {
            let [one, other] = [(); 2].map(|()| run(seed, 1_500, None, true));
            assert_eq!(one.broken, None, "seed {seed}: {:#?}", one.log);
            assert_eq!((one.steps, one.requests, &one.fired), (other.steps, other.requests, &other.fired));
            assert_eq!(one.log, other.log);
        }
    }

    #[test]
    fn a_mistake_breaks_a_world_and_the_log_says_what_went_before() {
        let broken = (1..=50).map(|seed| run(seed, 1_500, Some(Mutant::NoReleaseOnAbort), true));
        let outcome = broken.into_iter().find(|outcome| outcome.broken.is_some()).expect("one breaks");
        assert!(outcome.broken.is_some_and(|text| text.contains("hold a place")));
        assert!(outcome.log.iter().any(|line| line.contains("Left")), "{:#?}", outcome.log);
    }
}
