//! One case in virtual time: clients, two cores with their lanes, the side runtime's samples, one engine.
//!
//! Cores, gates, queues, the board and the dispatcher are the product's; what is made up is the order of events: a hop
//! between cores takes 50 µs, the network to the engine 200 µs each way, the engine's numbers are read every two
//! seconds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use llmgw_engine_sim::batch::{Batch, Event as EngineEvent, JobId};
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::admission::band::PoolState;
use llmgw_router::admission::saturation::{EngineState, Reading};
use llmgw_router::admission::{
    Answer, BandSpec, Controller, Gate, Limits, PoolGate, PoolPlace, Progress, publish_room,
};
use llmgw_router::dispatcher::{AtGate, Held};
use llmgw_router::endpoint::{MetricsState, Sample};
use llmgw_router::message::{CoreMessage, Enqueue, Refusal, Ticket};
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::{Board, Dispatcher, Grant, Map, Wanted};
use llmgw_types::admission::Thresholds;
use llmgw_types::{BandRank, CoreId, PoolSlot, Snapshot};

use crate::case::{Case, Figures};
use crate::engine::{self, BATCH, OUTPUT, PROMPT};
use crate::table::{BRONZE, GATE, PLATINUM, POOL, SLOT, table};

const CORES: u32 = 2;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;
const HOP: u64 = MILLI / 20;
const NETWORK: u64 = MILLI / 5;
const SCRAPE: u64 = 2 * SECOND;
const NET: u64 = 100 * MILLI;
const TTL: u64 = 30 * SECOND;
/// What a refused client waits before it comes again, as it is told.
const RETRY_AFTER: u64 = SECOND;
/// Until the flood has settled nothing is measured.
const WARM_UP: u64 = 60 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A client sends its next request.
    Comes(usize),
    /// A core hears what lies in the list under that number.
    Hears(u32, u64),
    /// The engine gets a request, or has something to do.
    Reaches(usize),
    Engine,
    /// A request's answer begins, or ends, at its home core.
    Begins(usize),
    Ends(usize),
    Scrape,
    /// A core's timer: deadlines and the net.
    Timer(u32),
    High,
}

struct Request {
    home: u32,
    came: u64,
    is_measured: bool,
    /// Which client has it; none of the high band's.
    client: Option<usize>,
    held: Option<(Grant, Option<PoolPlace<Arc<Board>>>)>,
    priority: i64,
    job: Option<JobId>,
}

struct Core {
    gate: Gate<Arc<Board>>,
    controller: Controller<Arc<Board>>,
    dispatcher: Dispatcher,
}

struct World {
    case: Case,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    chance: Chance,
    board: Arc<Board>,
    snapshot: Snapshot,
    profiles: Vec<RoutingProfile>,
    cores: Vec<Core>,
    lanes: HashMap<u64, CoreMessage>,
    batch: Batch,
    engine_at: Option<u64>,
    jobs: HashMap<JobId, usize>,
    requests: Vec<Request>,
    figures: Figures,
    tokens: u64,
    left: usize,
}

/// Runs a case to the end of its measured requests.
///
/// # Panics
/// When a count was lost, or a place, or a request.
pub fn run(case: Case) -> Figures {
    let mut world = World::new(case);
    world.start();
    while let Some(Reverse((at, _, what))) = world.events.pop() {
        world.now = at;
        world.happen(what);
        if world.left == 0 {
            break;
        }
    }
    world.end()
}

fn owner(_: u64, _: u32) -> CoreId {
    CoreId(0)
}

impl World {
    fn new(case: Case) -> Self {
        let board = Arc::new(Board::new(CORES as usize, 1));
        let snapshot = Snapshot::of(&table(&case)).expect("a table");
        let cells = board.endpoint(SLOT);
        cells.set_ready(true);
        cells.set_batch_capacity(BATCH);
        let core = |core| Core {
            gate: Gate::new(board.clone(), CoreId(core), || {}),
            controller: Controller::new(board.clone(), CoreId(core)),
            dispatcher: Dispatcher::new(board.clone(), CoreId(core), Scheduler::new(Chance::seeded(case.seed))),
        };
        let profiles = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
        Self {
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            chance: Chance::seeded(case.seed),
            cores: (0..CORES).map(core).collect(),
            board,
            snapshot,
            profiles,
            lanes: HashMap::new(),
            batch: Batch::new(engine::config(case.engine, case.memory, case.speed)),
            engine_at: None,
            jobs: HashMap::new(),
            requests: Vec::new(),
            figures: Figures::default(),
            tokens: 0,
            left: case.platinum,
            case,
        }
    }

    fn start(&mut self) {
        for core in &mut self.cores {
            core.controller.set_limits(Limits::default(), []);
        }
        self.scrape();
        for client in 0..self.case.bronze {
            let at = (self.chance.unit() * self.case.ramp * SECOND as f64) as u64;
            self.at(at, Happens::Comes(client));
        }
        self.at(WARM_UP, Happens::High);
    }

    fn at(&mut self, at: u64, what: Happens) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, what)));
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Comes(client) => self.submit(BRONZE, Some(client)),
            Happens::High => {
                let is_full = self.board.in_flight(SLOT) >= i64::from(BATCH);
                self.submit(PLATINUM, None);
                if is_full && self.case.takes_out {
                    self.take_out();
                }
                let pause = -self.chance.unit().max(1e-12).ln() * self.case.every;
                self.at(self.now + (pause * SECOND as f64) as u64, Happens::High);
            }
            Happens::Hears(core, number) => {
                if let Some(message) = self.lanes.remove(&number) {
                    self.hear(core, message);
                }
            }
            Happens::Reaches(request) => {
                let id = self.batch.submit(self.now, engine::job(self.requests[request].priority, request as u64));
                self.jobs.insert(id, request);
                self.requests[request].job = Some(id);
                self.engine();
            }
            Happens::Engine => self.engine(),
            Happens::Begins(request) => self.begin(request),
            Happens::Ends(request) => self.end_of(request),
            Happens::Scrape => self.scrape(),
            Happens::Timer(core) => {
                let now = Mono(self.now);
                let mut answers = Vec::new();
                let controller = &mut self.cores[core as usize].controller;
                controller.expire(now, |ticket, answer| answers.push((ticket, answer)));
                controller.net();
                self.turn(core, answers);
                if !self.cores[core as usize].controller.is_empty() {
                    self.at(self.now + NET, Happens::Timer(core));
                }
            }
        }
    }

    fn submit(&mut self, band: BandRank, client: Option<usize>) {
        let request = self.requests.len();
        let priority = if band == PLATINUM { -400 } else { -100 };
        let (home, came) = (request as u32 % CORES, self.now);
        let is_measured = client.is_none();
        self.requests.push(Request { home, came, is_measured, client, held: None, priority, job: None });

        let wanted = self.wanted();
        let map = Map { table: self.snapshot.table(), rings: &[], profiles: &self.profiles };
        let core = &mut self.cores[home as usize];
        if !self.case.admission {
            let grant = core.dispatcher.dispatch(map, &wanted, None).expect("an engine");
            return self.go(request, grant, None);
        }
        let at = AtGate { gate: &core.gate, band, owner_of: owner };
        match core.dispatcher.admit(map, &wanted, at, None) {
            Ok((grant, place)) => {
                self.figures.passed += 1;
                self.go(request, grant, Some(place));
            }
            Err(Held::NoEndpoint) => panic!("the engine is always there"),
            Err(Held::Shut(attempt)) => {
                let asked = Enqueue {
                    ticket: Ticket { core: CoreId(home), number: request as u64 },
                    gate: GATE,
                    generation: 1,
                    tenant: 0,
                    deadline: Mono(self.now + TTL),
                    cost: PROMPT as u32 + OUTPUT,
                    bytes: 4 * PROMPT as u32,
                    pools: attempt.pools(),
                    band,
                };
                attempt.sent();
                self.send(home, 0, CoreMessage::Enqueue(asked));
            }
        }
        self.pay(home);
    }

    /// Ends the newest of the low band at the engine; its client comes again at once.
    fn take_out(&mut self) {
        let newest = self.jobs.iter().filter(|(_, at)| self.requests[**at].client.is_some()).max_by_key(|(_, at)| **at);
        let Some((id, request)) = newest.map(|(id, request)| (*id, *request)) else { return };
        self.figures.taken_out += 1;
        self.batch.abort(self.now, id);
        self.jobs.remove(&id);
        let (home, client) = (self.requests[request].home, self.requests[request].client);
        drop(self.requests[request].held.take());
        self.pay(home);
        self.at(self.now + NETWORK, Happens::Comes(client.expect("of the low band")));
    }

    fn wanted(&self) -> Wanted<'static> {
        Wanted { tokens: PROMPT as u32, now: Mono(self.now), ..Wanted::default() }
    }

    /// Says something to a core: at once to itself, over a lane to another.
    fn send(&mut self, from: u32, to: u32, message: CoreMessage) {
        if from == to {
            return self.hear(to, message);
        }
        self.order += 1;
        self.lanes.insert(self.order, message);
        self.at(self.now + HOP, Happens::Hears(to, self.order));
    }

    fn hear(&mut self, core: u32, message: CoreMessage) {
        let controller = &mut self.cores[core as usize].controller;
        let mut answers = Vec::new();
        match message {
            CoreMessage::Enqueue(asked) => {
                let was_empty = controller.is_empty();
                controller.enqueue(&asked, |_, _| true, |ticket, answer| answers.push((ticket, answer)));
                if was_empty {
                    self.at(self.now + NET, Happens::Timer(core));
                }
            }
            CoreMessage::Nudge(pool) => controller.nudge(pool),
            CoreMessage::Granted(ticket, pool) => return self.granted(core, ticket, pool),
            CoreMessage::Refused(ticket, refusal) => return self.refused(ticket, refusal),
            other => panic!("nobody says {other:?}"),
        }
        self.turn(core, answers);
    }

    fn turn(&mut self, core: u32, mut answers: Vec<(Ticket, Answer)>) {
        while self.cores[core as usize].controller.turn(|ticket, answer| answers.push((ticket, answer)))
            == Progress::More
        {}
        for (ticket, answer) in answers {
            let message = match answer {
                Answer::Granted(pool) => CoreMessage::Granted(ticket, pool),
                Answer::Refused(refusal) => CoreMessage::Refused(ticket, refusal),
            };
            self.send(core, ticket.core.0, message);
        }
    }

    fn granted(&mut self, core: u32, ticket: Ticket, pool: PoolSlot) {
        self.figures.waited += 1;
        let wanted = self.wanted();
        let map = Map { table: self.snapshot.table(), rings: &[], profiles: &self.profiles };
        let core = &mut self.cores[core as usize];
        let place = core.gate.granted(PoolGate { slot: pool, owner: CoreId(0) });
        let grant = core.dispatcher.dispatch_in(map, &wanted, &place, None).expect("an engine");
        self.go(ticket.number as usize, grant, Some(place));
    }

    fn refused(&mut self, ticket: Ticket, refusal: Refusal) {
        self.figures.refused += 1;
        assert!(matches!(refusal, Refusal::Ttl | Refusal::Full), "{refusal:?}");
        let client = self.requests[ticket.number as usize].client.expect("the high band is never refused");
        self.at(self.now + RETRY_AFTER, Happens::Comes(client));
    }

    fn go(&mut self, request: usize, grant: Grant, place: Option<PoolPlace<Arc<Board>>>) {
        self.requests[request].held = Some((grant, place));
        self.at(self.now + NETWORK, Happens::Reaches(request));
    }

    fn pay(&mut self, core: u32) {
        let mut owed = Vec::new();
        self.cores[core as usize].gate.pay(|pool| {
            owed.push(pool);
            true
        });
        for pool in owed {
            self.send(core, pool.owner.0, CoreMessage::Nudge(pool.slot));
        }
    }

    fn engine(&mut self) {
        for event in self.batch.advance(self.now) {
            match event {
                EngineEvent::Token { id, at, produced: 1 } => self.at(at + NETWORK, Happens::Begins(self.jobs[&id])),
                EngineEvent::Finished { id, at } => {
                    let request = self.jobs.remove(&id).expect("its request");
                    self.at(at + NETWORK, Happens::Ends(request));
                }
                EngineEvent::Refused { .. } => panic!("every request fits"),
                EngineEvent::Preempted { .. } => self.figures.preemptions += 1,
                EngineEvent::Token { .. } | EngineEvent::Admitted { .. } => {}
            }
        }
        let next = self.batch.next_event_at();
        if let Some(at) = next.filter(|at| self.engine_at.is_none_or(|known| *at < known || known <= self.now)) {
            self.engine_at = Some(at);
            self.at(at.max(self.now), Happens::Engine);
        }
    }

    fn begin(&mut self, request: usize) {
        let Request { came, is_measured, .. } = self.requests[request];
        if is_measured && self.left > 0 {
            self.figures.ttft_ms.push((self.now - came) as f64 / MILLI as f64);
            self.left -= 1;
        }
    }

    fn end_of(&mut self, request: usize) {
        let (home, client) = (self.requests[request].home, self.requests[request].client);
        drop(self.requests[request].held.take());
        if self.now > WARM_UP {
            self.tokens += u64::from(OUTPUT);
        }
        self.pay(home);
        if let Some(client) = client {
            self.at(self.now + NETWORK, Happens::Comes(client));
        }
    }

    /// What the side runtime does with the engine's numbers.
    fn scrape(&mut self) {
        let own = u32::try_from(self.board.in_flight(SLOT)).unwrap_or(0);
        let (running, waiting) = (self.batch.running_count() as u32, self.batch.waiting_count() as u32);
        let kv_usage_ratio = self.batch.kv_usage_ratio() as f32;
        let cells = self.board.endpoint(SLOT);
        let at = Mono(self.now.max(1));
        cells.set_sample(&Sample { running, waiting, kv_usage_ratio: Some(kv_usage_ratio), drain_rate: None, at });
        cells.set_metrics(MetricsState::Fresh);
        let reading = Some(Reading { running, waiting, kv_usage_ratio, own });
        let state = PoolState::of([EngineState { capacity: BATCH, own, reading }]);
        let table = self.snapshot.table();
        let thresholds = Thresholds { kv_by_band: self.case.kv_by_band, ..Thresholds::default() };
        let room = (1u8..).zip(table.models[0].admission.bands.iter()).map(|(rank, band)| {
            let spec = BandSpec::new(band.saturation_ceiling.to_native(), band.capacity_share.to_native());
            (BandRank(rank), state.room(&spec, &thresholds))
        });
        if publish_room(&*self.board, POOL, room) {
            self.send(u32::MAX, 0, CoreMessage::Nudge(POOL));
        }
        self.at(self.now + SCRAPE, Happens::Scrape);
    }

    fn end(mut self) -> Figures {
        let seconds = (self.now - WARM_UP) as f64 / SECOND as f64;
        self.figures.goodput = self.tokens as f64 / seconds;
        self.figures.ttft_ms.sort_by(f64::total_cmp);
        // Whatever still runs gives its place back.
        self.requests.iter_mut().for_each(|request| drop(request.held.take()));
        let granted = self.lanes.values().filter(|message| matches!(message, CoreMessage::Granted(..))).count();
        assert_eq!(self.board.pool_load(POOL), granted as i64, "a place was lost");
        assert_eq!(self.board.in_flight(SLOT), 0, "a count was lost");
        self.figures
    }
}
