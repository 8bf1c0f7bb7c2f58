//! What the side runtime does: reads engines, says how much room there is, publishes tables. An actor like the cores,
//! over the router's own formula and the board's own slot books.

use std::collections::BTreeMap;
use std::rc::Rc;

use corosensei::Yielder;
use llmgw_kit::clock::Mono;
use llmgw_router::admission::band::PoolState;
use llmgw_router::admission::saturation::{EngineState, Reading, learned_capacity};
use llmgw_router::admission::{Cells, publish_room};
use llmgw_router::board::{Board, SlotBook};
use llmgw_router::endpoint::BreakerState;
use llmgw_router::message::CoreMessage;
use llmgw_types::{BandRank, BoardSlot, PoolSlot};

use crate::cells::SimCells;
use crate::engines::Engine;
use crate::fired::Trouble;
use crate::mutants::Mutant;
use crate::plan::{POOLS, Plan};
use crate::tables::{self, Joined, Shape};
use crate::world::{Due, Instance, Job, Stop, World};

/// Samples count for so many scrape intervals.
const STALE_INTERVALS: u64 = 3;

/// What outlives a table.
pub(crate) struct Books {
    endpoints: SlotBook<BoardSlot>,
    pools: SlotBook<PoolSlot>,
    pub(crate) shapes: [Option<Shape>; POOLS],
    pub(crate) generation: u64,
}

impl Books {
    /// The first table: all pools, with so many endpoints each.
    pub(crate) fn first(board: &Board, counts: [u32; POOLS]) -> Self {
        let mut books = Self {
            endpoints: SlotBook::new(board.slot_count()),
            pools: SlotBook::new(crate::truth::SLOTS),
            shapes: [const { None }; POOLS],
            generation: 1,
        };
        let mut instance = 0;
        for (at, count) in counts.into_iter().enumerate() {
            let slot = books.pools.take(board).expect("a fresh board has room");
            let members = (0..count)
                .map(|_| {
                    let slot = books.endpoints.take(board).expect("a fresh board has room");
                    instance += 1;
                    Joined { instance: instance - 1, slot, since: 1 }
                })
                .collect();
            books.shapes[at] = Some(Shape { slot, members });
        }
        books
    }

    /// The instances of the first table.
    pub(crate) fn instances(&self, plan: &Plan) -> Vec<Instance> {
        let members = self.shapes.iter().flatten().flat_map(|shape| &shape.members);
        members.map(|member| Instance { slot: member.slot, engine: Engine::new(plan), is_leaving: false }).collect()
    }
}

struct Side<'y> {
    world: Rc<World>,
    cells: Rc<SimCells<'y>>,
    books: Books,
    samples: BTreeMap<usize, (u64, Reading)>,
}

/// The side runtime's life.
pub(crate) fn live(world: &Rc<World>, books: Books, yielder: &Yielder<Job, Stop>, first: Job) {
    let cells = Rc::new(SimCells { world: world.clone(), yielder, actor: world.side() });
    let mut side = Side { world: world.clone(), cells, books, samples: BTreeMap::new() };
    let mut job = first;
    loop {
        world.log(|| format!("side {job:?}"));
        match job {
            Job::Scrape(instance) => side.scrape(instance),
            Job::Rooms => (0..POOLS).for_each(|pool| side.rooms(pool)),
            Job::Change => side.change(),
            Job::Ready(instance, ready) => side.ready(instance, ready),
            Job::Work => world.lanes.borrow_mut().flush(world.side()),
            _ => {}
        }
        if world.is_closing.get() {
            return;
        }
        job = yielder.suspend(Stop::Idle);
    }
}

impl Side<'_> {
    fn pool_of(&self, instance: usize) -> Option<usize> {
        let has = |shape: &Shape| shape.members.iter().any(|member| member.instance == instance);
        self.books.shapes.iter().position(|shape| shape.as_ref().is_some_and(has))
    }

    fn scrape(&mut self, instance: usize) {
        let world = self.world.clone();
        let Some(pool) = self.pool_of(instance) else { return };
        world.at(world.now.get() + world.plan.scrape_ns, Due::Scrape(instance));
        let slot = world.instances.borrow()[instance].slot;
        if world.draw(6) == 0 {
            world.count(Trouble::ScrapeLost);
        } else if !world.instances.borrow()[instance].engine.is_dead {
            let before = world.board.in_flight(slot);
            let (running, waiting, kv_usage_ratio) = world.instances.borrow()[instance].engine.page();
            // Others go on while the page is on its way.
            let _ = self.cells.waiting(PoolSlot(0));
            let own = before.max(world.board.in_flight(slot)) as u32;
            let reading = Reading { running, waiting, kv_usage_ratio, own };
            let known = world.board.endpoint(slot).batch_capacity().unwrap_or(0);
            world.board.endpoint(slot).set_batch_capacity(learned_capacity(known, &reading));
            self.samples.insert(instance, (world.now.get(), reading));
        }
        self.rooms(pool);
    }

    fn ready(&mut self, instance: usize, ready: bool) {
        if let Some(pool) = self.pool_of(instance) {
            let slot = self.world.instances.borrow()[instance].slot;
            self.world.board.set_ready(slot, ready);
            self.rooms(pool);
        }
    }

    /// Says how much room a pool has, then looks who waits for it.
    fn rooms(&mut self, pool: usize) {
        let world = self.world.clone();
        let Some(shape) = self.books.shapes[pool].clone() else { return };
        let oldest = world.board.oldest_generation();
        let now = world.now.get();
        let takes_work = |member: &&Joined| {
            let cells = world.board.endpoint(member.slot);
            let is_up = cells.is_ready() && !cells.is_draining() && cells.breaker() != BreakerState::Open;
            // An endpoint that some core does not know yet is no room.
            is_up && member.since <= oldest
        };
        let is_full = world.full_caches.get() >> pool & 1 == 1;
        let state = |member: &Joined| {
            let sample = self.samples.get(&member.instance);
            let fresh = sample.filter(|(at, _)| now - at <= STALE_INTERVALS * world.plan.scrape_ns);
            EngineState {
                capacity: world.board.endpoint(member.slot).batch_capacity().unwrap_or(0),
                own: world.board.in_flight(member.slot) as u32,
                reading: fresh.map(|(_, reading)| Reading {
                    kv_usage_ratio: if is_full { 1.5 } else { reading.kv_usage_ratio },
                    ..*reading
                }),
            }
        };
        let engines = PoolState::of(shape.members.iter().filter(takes_work).map(state));
        let room = |(rank, band)| (BandRank(rank), engines.room(band, &world.plan.thresholds));
        let rooms: Vec<(BandRank, i32)> = (1..).zip(&world.plan.bands).map(room).collect();
        self.say(pool, shape.slot, &rooms);
    }

    fn say(&self, pool: usize, slot: PoolSlot, rooms: &[(BandRank, i32)]) {
        let world = &self.world;
        world.log(|| format!("side: room of pool {} is {rooms:?}", slot.0));
        let somebody_waits = publish_room(&self.cells, slot, rooms.iter().copied());
        if somebody_waits && !world.is_planted(Mutant::RoomWithoutNudge) {
            let owner = tables::owner_of(tables::gate_of(pool), world.plan.cores as u32);
            world.lanes.borrow_mut().send_or_keep(world.side(), owner.idx(), CoreMessage::Nudge(slot));
        }
    }

    /// One change of the table: an endpoint or a pool comes or goes.
    fn change(&mut self) {
        let world = self.world.clone();
        let pool = world.draw(POOLS as u32) as usize;
        let generation = self.books.generation + 1;
        match self.books.shapes[pool].take() {
            None => {
                let Some(slot) = self.books.pools.take(&world.board) else { return };
                self.books.shapes[pool] = Some(Shape { slot, members: Vec::new() });
                world.count(Trouble::PoolJoined);
                self.join(pool, generation);
            }
            Some(shape) if world.draw(4) == 0 => {
                world.count(Trouble::PoolLeft);
                let none: Vec<_> = (1..=world.plan.bands.len() as u8).map(|rank| (BandRank(rank), 0)).collect();
                self.say(pool, shape.slot, &none);
                shape.members.iter().for_each(|member| self.leave(member, generation));
                self.books.pools.leave(shape.slot, generation);
            }
            Some(mut shape) if shape.members.len() > 1 && world.draw(2) == 0 => {
                let member = shape.members.swap_remove(world.draw(shape.members.len() as u32) as usize);
                self.books.shapes[pool] = Some(shape);
                world.count(Trouble::EndpointLeft);
                // Room falls before cores learn of it.
                self.rooms(pool);
                self.leave(&member, generation);
            }
            Some(shape) => {
                let is_full = shape.members.len() as u32 > world.plan.endpoints_max;
                self.books.shapes[pool] = Some(shape);
                if is_full {
                    return;
                }
                self.join(pool, generation);
            }
        }
        self.books.generation = generation;
        let publication = tables::publication(generation, &self.books.shapes, &world.plan);
        world.log(|| format!("side publishes table {generation}"));
        *world.feed.borrow_mut() = Rc::new(publication);
    }

    fn leave(&mut self, member: &Joined, generation: u64) {
        let world = &self.world;
        world.instances.borrow_mut()[member.instance].is_leaving = true;
        if !world.is_planted(Mutant::DrainingNotShown) {
            world.board.endpoint(member.slot).set_draining(true);
        }
        self.books.endpoints.leave(member.slot, generation);
    }

    fn join(&mut self, pool: usize, since: u64) {
        let world = self.world.clone();
        let Some(slot) = self.books.endpoints.take(&world.board) else { return };
        world.count(Trouble::EndpointJoined);
        let instance = {
            let mut instances = world.instances.borrow_mut();
            instances.push(Instance { slot, engine: Engine::new(&world.plan), is_leaving: false });
            instances.len() - 1
        };
        world.board.set_ready(slot, true);
        world.board.endpoint(slot).set_ready_since(Mono(1));
        world.at(world.now.get() + world.plan.scrape_ns, Due::Scrape(instance));
        if let Some(shape) = &mut self.books.shapes[pool] {
            shape.members.push(Joined { instance, slot, since });
        }
    }
}
