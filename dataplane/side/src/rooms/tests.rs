//! Room follows engines, breakers and tables, in the right order.

use std::time::Duration;

use llmgw_config::from_text;
use llmgw_router::endpoint::Sample;
use llmgw_router::message::CoreMessage;
use llmgw_runtime::mailbox::Mesh;
use llmgw_types::CoreId;

use super::*;
use crate::table::{Addrs, Book, table};

const NOW: Mono = Mono(1_000_000_000);
const BRONZE: BandRank = BandRank(1);
const PLATINUM: BandRank = BandRank(4);

struct World {
    board: Arc<Board>,
    book: Book,
    rooms: Rooms,
    lanes: Lanes,
}

impl World {
    fn new() -> Self {
        let board = Arc::new(Board::new(2, 8));
        let mesh = Mesh::<CoreMessage>::new(2, 1, 8).expect("descriptors");
        Self { book: Book::new(&board, 7), rooms: Rooms::new(board.clone()), lanes: Lanes::new(mesh.post(2), 2), board }
    }

    /// One model on endpoints of these names, each with that batch; all ready.
    fn publish(&mut self, names: &[&str]) -> u64 {
        let endpoint = |name: &&str| {
            format!("  - {{ name: {name}, url: 'http://{name}.local:1', model: m, batch_capacity: 32 }}\n")
        };
        let text = format!("endpoints:\n{}", names.iter().map(endpoint).collect::<String>());
        let config = from_text("server.yaml", &text, []).expect("a configuration");
        let table = table(&config, &Addrs::default(), &mut self.book, &self.board).expect("room");
        for endpoint in &table.endpoints {
            let cells = self.board.endpoint(BoardSlot(endpoint.slot));
            cells.set_ready(true);
            cells.set_batch_capacity(32);
            cells.set_capacity_limit(true);
        }
        let generation = table.generation;
        self.rooms.follow(Arc::new(Snapshot::of(&table).expect("a table")), NOW, &self.lanes);
        generation
    }

    fn cells(&self, name: &str) -> &llmgw_router::endpoint::EndpointCells {
        self.board.endpoint(self.book.slot(name).expect("it is in the table"))
    }

    /// Room for bronze and for platinum once it was looked.
    fn room(&mut self) -> (i32, i32) {
        self.rooms.look(NOW, &self.lanes);
        self.stored()
    }

    fn stored(&self) -> (i32, i32) {
        (self.board.room(PoolSlot(0), BRONZE), self.board.room(PoolSlot(0), PLATINUM))
    }
}

#[test]
fn room_is_what_engines_that_take_work_hold() {
    let mut world = World::new();
    world.publish(&["a", "b"]);
    assert_eq!(world.room(), (60, 72));
    world.cells("a").set_ready(false);
    assert_eq!(world.room(), (30, 36));
    world.cells("a").set_ready(true);
    world.cells("a").set_breaker(BreakerState::Open, NOW + Duration::from_secs(5));
    assert_eq!(world.room(), (30, 36));
    world.cells("a").set_breaker(BreakerState::HalfOpen, NOW);
    assert_eq!(world.room(), (31, 41), "one trial at a time");
    world.cells("a").set_breaker(BreakerState::Closed, NOW);
    let full = Sample { running: 40, waiting: 5, kv_usage_ratio: Some(0.95), drain_rate: None, at: NOW };
    world.cells("a").set_sample(&full);
    world.cells("a").set_foreign(10);
    assert_eq!(world.room(), (50, 62), "ten are not ours; the caches are half full on average");
    world.cells("b").set_sample(&Sample { running: 0, waiting: 0, ..full });
    assert_eq!(world.room(), (0, 0), "no room in the caches");
    world.rooms.look(NOW + Duration::from_secs(7), &world.lanes);
    assert_eq!(world.stored(), (60, 72), "a sample that is too old says nothing");
}

#[test]
fn an_engine_in_which_nobody_ever_waited_holds_nobody_back() {
    let mut world = World::new();
    world.publish(&["a"]);
    world.cells("a").set_capacity_limit(false);
    world.cells("a").set_batch_capacity(9);
    assert_eq!(world.room(), (972, 1028));
    for _ in 0..1000 {
        world.board.raise(CoreId(0), world.book.slot("a").expect("there"), 1);
    }
    assert_eq!(world.room(), (1900, 2004), "nobody reads its metrics");
}

#[test]
fn one_whose_metrics_are_read_is_trusted_with_twice_what_it_showed() {
    let mut world = World::new();
    world.publish(&["a"]);
    world.cells("a").set_capacity_limit(false);
    world.cells("a").set_batch_capacity(0);
    let page = Sample { running: 0, waiting: 0, kv_usage_ratio: None, drain_rate: None, at: NOW };
    world.cells("a").set_sample(&page);
    assert_eq!(world.room(), (121, 132), "as a start");
    for _ in 0..1000 {
        world.board.raise(CoreId(0), world.book.slot("a").expect("there"), 1);
    }
    assert_eq!(world.room(), (121, 132), "what we sent shows nothing");
    world.cells("a").set_batch_capacity(100);
    assert_eq!(world.room(), (190, 204));
    world.cells("a").set_batch_capacity(64);
    world.cells("a").set_capacity_limit(true);
    assert_eq!(world.room(), (60, 68), "a queue lasted");
}

#[test]
fn room_falls_before_cores_hear_of_it_and_rises_after_the_last_of_them() {
    let mut world = World::new();
    let first = world.publish(&["a", "b"]);
    (0..2).for_each(|core| world.board.set_generation(CoreId(core), first));
    assert_eq!(world.room(), (60, 72));
    let second = world.publish(&["b", "c"]);
    assert_eq!(world.stored(), (30, 36), "a has left, and c is not known to all");
    world.board.set_generation(CoreId(0), second);
    assert_eq!(world.room(), (30, 36));
    world.board.set_generation(CoreId(1), second);
    assert_eq!(world.room(), (60, 72));
}

#[test]
fn an_endpoint_that_begins_to_drain_is_told_to_the_cores_by_a_table() {
    let mut world = World::new();
    world.publish(&["a", "b"]);
    assert!(!world.rooms.look(NOW, &world.lanes));
    world.cells("a").set_draining(true);
    assert!(world.rooms.look(NOW, &world.lanes));
    assert_eq!(world.stored(), (30, 36));
    world.publish(&["a", "b"]);
    assert!(!world.rooms.look(NOW, &world.lanes));
}

#[test]
fn whoever_waits_is_told_of_new_room_once() {
    let board = Arc::new(Board::new(1, 8));
    let mesh = Mesh::<CoreMessage>::new(1, 1, 1).expect("descriptors");
    let mut world = World {
        book: Book::new(&board, 7),
        rooms: Rooms::new(board.clone()),
        lanes: Lanes::new(mesh.post(1), 1),
        board,
    };
    world.publish(&["a"]);
    world.board.set_waiting(PoolSlot(0), BRONZE);
    assert!(world.rooms.owed.is_empty(), "nobody waited");
    world.cells("a").set_batch_capacity(40);
    assert_eq!(world.room(), (38, 44));
    assert!(world.rooms.owed.is_empty(), "it was sent");
    world.cells("a").set_batch_capacity(41);
    assert_eq!(world.room().1, 45);
    assert_eq!(world.rooms.owed.len(), 1, "the lane is full: it is owed");
}
