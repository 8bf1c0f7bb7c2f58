//! Cores on one thread, with the real lanes between them: who waits, who gets a place, and what becomes of it.

use std::pin::pin;
use std::task::{Context, Wake};

use llmgw_router::admission::{Cells, publish_room};
use llmgw_runtime::mailbox::{Mailbox, Mesh};
use llmgw_runtime::run_local;
use llmgw_types::BandRank;

use super::*;

const BAND: BandRank = BandRank(1);
const POOL: PoolSlot = PoolSlot(0);
/// The first core owns the gate.
const GATE: u64 = 0;
const LATE: Mono = Mono(u64::MAX / 4);

struct Core {
    admission: Admission,
    cells: Arc<CoreCells>,
    mailbox: Mailbox<CoreMessage>,
}

struct World {
    board: Arc<Board>,
    cores: Vec<Core>,
}

impl World {
    /// Two cores, and room for so many in the one pool. To be made on a driver.
    fn new(room: i32, lane: usize) -> Self {
        let mesh = Mesh::new(2, 0, lane).unwrap();
        let board = Arc::new(Board::new(2, 4));
        assert!(!publish_room(&board, POOL, [(BAND, room)]));
        let core = |number: u32| {
            let cells: Arc<CoreCells> = Arc::default();
            let lanes = Rc::new(Lanes::new(CoreId(number), 2));
            lanes.open(mesh.post(number as usize));
            let admission = Admission::new(lanes, board.clone(), cells.clone());
            admission.pools.borrow_mut().insert((GATE, POOL));
            Core { admission, cells, mailbox: mesh.inbox(CoreId(number)).open().unwrap() }
        };
        Self { cores: (0..2).map(core).collect(), board }
    }

    fn load(&self) -> i64 {
        self.board.pool_load(POOL)
    }
}

fn pass(core: &Core) -> Result<Place, Attempt<Arc<Board>>> {
    let mut attempt = core.admission.gate.attempt(BAND);
    let pool = PoolGate { slot: POOL, owner: CoreId(0) };
    attempt.try_pool(pool).ok_or(attempt)
}

fn wait(core: &Core) -> Result<Waiting<'_>, NoPlace> {
    let Err(attempt) = pass(core) else { panic!("there was room") };
    let asking = Asking { row: RowIdx::OTHER, tenant: 0, cost: 1, bytes: 1, deadline: LATE, heartbeat: None };
    core.admission.wait(attempt, (GATE, 0), 0, &asking, Mono(1))
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// What it has come to, if anything.
fn look(waiting: &mut Waiting<'_>) -> Option<Result<Place, NoPlace>> {
    let waker = Waker::from(Arc::new(Nobody));
    match pin!(waiting.place()).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn rejected(core: &Core, why: NoPlace) -> u64 {
    core.cells.bands.at(RowIdx::OTHER).rejected[why.row()].value()
}

/// Worlds borrow from themselves while somebody waits; tests end with their process.
fn world(room: i32, lane: usize) -> &'static mut World {
    Box::leak(Box::new(World::new(room, lane)))
}

/// The same world to be asked and to be turned: cores have their state in cells.
fn turns(world: &World) {
    for _ in 0..4 {
        for core in &world.cores {
            core.admission.work(Mono(1));
        }
    }
}

#[test]
fn a_place_that_is_given_up_goes_to_whoever_waits_on_its_own_core() {
    run_local(async {
        let world = World::new(1, 16);
        let first = pass(&world.cores[0]).ok().expect("room");
        let mut waiting = wait(&world.cores[0]).expect("a wait");
        turns(&world);
        assert!(look(&mut waiting).is_none());
        drop(first);
        turns(&world);
        let place = look(&mut waiting).expect("an answer").expect("a place");
        assert_eq!(world.load(), 1);
        drop((waiting, place));
        assert_eq!((world.load(), world.board.waiting(POOL)), (0, BandRank::NOBODY));
        let counts = world.cores[0].cells.bands.at(RowIdx::OTHER);
        assert_eq!((counts.admitted[1].value(), counts.waiting.value()), (1, 0));
    });
}

#[test]
fn a_grant_crosses_the_lanes_and_one_that_comes_too_late_goes_back() {
    run_local(async {
        // The lender of a wait is the core; messages are taken beside it.
        let (home, mailboxes) = split(world(1, 16));
        let first = pass(home).ok().expect("room");
        let mut waiting = wait(home).expect("a wait");
        let mut late = wait(home).expect("another");
        mailboxes.turn();
        assert!(look(&mut waiting).is_none() && look(&mut late).is_none());
        drop(first);
        mailboxes.turn();
        let place = look(&mut waiting).expect("an answer").expect("a place");
        assert!(look(&mut late).is_none());
        drop(place);
        mailboxes.turn();
        assert_eq!(mailboxes.board.pool_load(POOL), 1, "granted, and not taken yet");
        drop((waiting, late));
        mailboxes.turn();
        assert_eq!((mailboxes.board.pool_load(POOL), mailboxes.board.waiting(POOL)), (0, BandRank::NOBODY));
        assert_eq!(rejected(home, NoPlace::Refused(Refusal::ClientGone)), 1);
        assert!(home.admission.open.borrow().is_empty());
    });
}

#[test]
fn who_leaves_is_out_of_the_queue_and_the_next_one_has_its_turn() {
    run_local(async {
        let (home, mailboxes) = split(world(1, 16));
        let first = pass(home).ok().expect("room");
        let gone = wait(home).expect("a wait");
        let mut stays = wait(home).expect("another");
        mailboxes.turn();
        drop(gone);
        drop(first);
        mailboxes.turn();
        assert!(look(&mut stays).expect("an answer").is_ok());
        assert_eq!(home.cells.bands.at(RowIdx::OTHER).waiting.value(), 1, "until it is dropped");
    });
}

#[test]
fn a_full_lane_refuses_at_once_and_nothing_of_the_request_is_left() {
    run_local(async {
        let (home, mailboxes) = split(world(1, 1));
        let first = pass(home).ok().expect("room");
        let mut waiting = wait(home).expect("the lane holds one");
        assert_eq!(wait(home).err(), Some(NoPlace::Refused(Refusal::Overloaded)));
        assert_eq!((home.admission.open.borrow().len(), mailboxes.board.pool_load(POOL)), (1, 1));
        drop(first);
        mailboxes.turn();
        assert!(look(&mut waiting).expect("an answer").is_ok());
        assert_eq!(rejected(home, NoPlace::Refused(Refusal::Overloaded)), 1);
    });
}

#[test]
fn a_gateway_that_drains_lets_nobody_wait() {
    run_local(async {
        let (home, mailboxes) = split(world(1, 16));
        let first = pass(home).ok().expect("room");
        let mut waiting = wait(home).expect("a wait");
        mailboxes.turn();
        home.admission.drain();
        assert_eq!(look(&mut waiting).expect("an answer").err(), Some(NoPlace::ShuttingDown));
        assert_eq!(wait(home).err(), Some(NoPlace::ShuttingDown));
        drop(waiting);
        mailboxes.turn();
        assert_eq!(mailboxes.board.waiting(POOL), BandRank::NOBODY, "it was withdrawn");
        drop(first);
        assert_eq!(mailboxes.board.pool_load(POOL), 0);
    });
}

#[test]
fn a_refusal_is_told_and_counted_by_its_reason() {
    run_local(async {
        let (home, mailboxes) = split(world(1, 16));
        let _first = pass(home).ok().expect("room");
        mailboxes.limit(1);
        let mut first = wait(home).expect("a wait");
        let mut second = wait(home).expect("another, until the owner has spoken");
        mailboxes.turn();
        assert!(look(&mut first).is_none());
        assert_eq!(look(&mut second).expect("an answer").err(), Some(NoPlace::Refused(Refusal::Full)));
        drop(second);
        assert_eq!(rejected(home, NoPlace::Refused(Refusal::Full)), 1);
        mailboxes.expire(LATE);
        mailboxes.turn();
        assert_eq!(look(&mut first).expect("an answer").err(), Some(NoPlace::Refused(Refusal::Ttl)));
    });
}

/// Both cores' mailboxes, to be emptied while somebody waits on the second core.
struct Mailboxes {
    board: Arc<Board>,
    cores: [&'static Admission; 2],
    mailboxes: RefCell<[Mailbox<CoreMessage>; 2]>,
}

/// The second core, and what else there is.
fn split(world: &'static mut World) -> (&'static Core, Mailboxes) {
    let mesh = Mesh::new(1, 0, 1).unwrap();
    let mut dummies =
        vec![mesh.inbox(CoreId(0)).open().unwrap(), Mesh::new(1, 0, 1).unwrap().inbox(CoreId(0)).open().unwrap()];
    let mut take = |core: &mut Core| std::mem::replace(&mut core.mailbox, dummies.pop().unwrap());
    let mailboxes = [take(&mut world.cores[0]), take(&mut world.cores[1])];
    let world: &'static World = world;
    let cores = [&world.cores[0].admission, &world.cores[1].admission];
    (&world.cores[1], Mailboxes { board: world.board.clone(), cores, mailboxes: RefCell::new(mailboxes) })
}

impl Mailboxes {
    fn turn(&self) {
        for _ in 0..4 {
            for (core, mailbox) in self.cores.iter().zip(self.mailboxes.borrow_mut().iter_mut()) {
                let mut messages = Vec::new();
                mailbox.look(&mut messages);
                messages.into_iter().for_each(|message| core.hear(message));
                core.work(Mono(1));
            }
        }
    }

    fn limit(&self, per_band: u32) {
        let limits = Limits { per_band, ..Limits::default() };
        self.cores[0].controller.borrow_mut().set_limits(limits, []);
    }

    fn expire(&self, now: Mono) {
        self.cores[0].controller.borrow_mut().expire(now, self.cores[0].answer());
    }
}
