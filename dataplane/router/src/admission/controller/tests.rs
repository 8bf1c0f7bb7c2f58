//! The controller over the board's own cells: who is granted what, when, and what the cells say meanwhile.

use std::sync::Arc;

use llmgw_types::CoreId;

use super::*;
use crate::board::Board;
use crate::message::TicketPools;

const LOW: BandRank = BandRank(1);
const MID: BandRank = BandRank(2);
const HIGH: BandRank = BandRank(3);
const GATE: u64 = 77;

struct World {
    board: Arc<Board>,
    controller: Controller<Arc<Board>>,
    answers: Vec<(u64, Answer)>,
    number: u64,
}

/// Core 0 owns the gates; so much room for everybody in pools 0 and 1.
fn world(room: i32) -> World {
    let board = Arc::new(Board::new(2, 1));
    for pool in [0, 1].map(PoolSlot) {
        [LOW, MID, HIGH].into_iter().for_each(|band| board.set_room(pool, band, room));
    }
    let controller = Controller::new(board.clone(), CoreId(0));
    World { board, controller, answers: Vec::new(), number: 0 }
}

fn asked(band: BandRank) -> Enqueue {
    Enqueue {
        ticket: Ticket { core: CoreId(1), number: 0 },
        gate: GATE,
        generation: 0,
        tenant: 1,
        deadline: Mono(1_000),
        cost: 100,
        bytes: 10,
        pools: pools(&[0]),
        band,
    }
}

fn pools(slots: &[u32]) -> TicketPools {
    slots.iter().copied().map(PoolSlot).collect()
}

impl World {
    /// Enqueues and gives its number.
    fn ask(&mut self, mut asked: Enqueue) -> u64 {
        self.number += 1;
        asked.ticket.number = self.number;
        let answers = &mut self.answers;
        self.controller.enqueue(&asked, |_, _| true, |ticket, answer| answers.push((ticket.number, answer)));
        self.number
    }

    fn turn(&mut self) -> Progress {
        let answers = &mut self.answers;
        self.controller.turn(|ticket, answer| answers.push((ticket.number, answer)))
    }

    /// Numbers of those granted by one turn, in order.
    fn granted(&mut self) -> Vec<u64> {
        self.turn();
        let answers = std::mem::take(&mut self.answers);
        answers
            .into_iter()
            .filter(|(_, answer)| matches!(answer, Answer::Granted(_)))
            .map(|(number, _)| number)
            .collect()
    }

    fn refused(&mut self) -> Vec<(u64, Refusal)> {
        let refusal = |(number, answer)| match answer {
            Answer::Refused(refusal) => Some((number, refusal)),
            Answer::Granted(_) => None,
        };
        std::mem::take(&mut self.answers).into_iter().filter_map(refusal).collect()
    }

    /// A place of pool 0 is given up at home.
    fn release(&mut self) {
        self.board.add_load(CoreId(1), PoolSlot(0), -1);
        self.controller.nudge(PoolSlot(0));
    }

    fn waiting(&self) -> BandRank {
        self.board.waiting(PoolSlot(0))
    }
}

#[test]
fn higher_bands_go_first_and_the_cell_says_who_waits() {
    let mut world = world(1);
    let [low, high, mid] = [LOW, HIGH, MID].map(|band| world.ask(asked(band)));
    assert_eq!(world.waiting(), HIGH);
    assert_eq!((world.granted(), world.waiting()), (vec![high], MID));
    assert_eq!(world.granted(), Vec::<u64>::new(), "there is no more room");
    world.release();
    assert_eq!((world.granted(), world.waiting()), (vec![mid], LOW));
    world.release();
    assert_eq!((world.granted(), world.waiting()), (vec![low], BandRank::NOBODY));
    assert!(world.controller.is_empty());
    assert_eq!((world.board.load(CoreId(0), PoolSlot(0)), world.board.pool_load(PoolSlot(0))), (3, 1));
}

#[test]
fn a_trial_that_found_no_room_leaves_no_count() {
    let mut world = world(0);
    world.ask(asked(HIGH));
    assert_eq!((world.granted(), world.board.pool_load(PoolSlot(0))), (vec![], 0));
    world.board.set_room(PoolSlot(0), HIGH, 1);
    world.controller.nudge(PoolSlot(0));
    assert_eq!(world.granted(), [1]);
}

#[test]
fn full_bands_and_full_queues_refuse_and_higher_bands_displace_the_newest_of_the_lowest() {
    let mut world = world(0);
    world.controller.set_limits(Limits { per_band: 2, total: 4, bytes: 1_000 }, [(5, Limits::default())]);
    let low = [0, 1].map(|_| world.ask(asked(LOW)));
    let third = world.ask(asked(LOW));
    assert_eq!(world.refused(), [(third, Refusal::Full)]);
    for band in [MID, MID] {
        world.ask(asked(band));
    }
    let high = world.ask(asked(HIGH));
    assert_eq!(world.refused(), [(low[1], Refusal::Displaced)]);
    // Bytes make room in the same way, or nobody is taken out at all.
    let large = world.ask(Enqueue { bytes: 2_000, ..asked(HIGH) });
    assert_eq!(world.refused(), [(large, Refusal::Full)]);
    let all_others = world.ask(Enqueue { bytes: 985, ..asked(HIGH) });
    assert_eq!(world.refused().len(), 3);
    world.board.set_room(PoolSlot(0), HIGH, 9);
    world.controller.nudge(PoolSlot(0));
    assert_eq!(world.granted(), [high, all_others]);
    // Another gate has bounds of its own.
    for _ in 0..3 {
        world.ask(Enqueue { gate: 5, ..asked(LOW) });
    }
    assert!(world.refused().is_empty());
    let depths: Vec<_> = world.controller.depths().map(|depth| (depth.gate, depth.band, depth.count)).collect();
    assert_eq!(depths, [(5, LOW, 3)]);
}

#[test]
fn a_withdrawn_ticket_frees_its_turn_and_a_late_one_is_refused_once() {
    let mut world = world(0);
    let [first, second] = [1, 2].map(|at| world.ask(Enqueue { deadline: Mono(at * 100), ..asked(HIGH) }));
    let third = world.ask(Enqueue { deadline: Mono(300), ..asked(LOW) });
    assert_eq!(world.controller.next_deadline(), Some(Mono(100)));
    let ticket = |number| Ticket { core: CoreId(1), number };
    world.controller.withdraw(ticket(first));
    world.controller.withdraw(ticket(first));
    let answers = &mut world.answers;
    world.controller.expire(Mono(250), |ticket, answer| answers.push((ticket.number, answer)));
    assert_eq!((world.refused(), world.waiting()), (vec![(second, Refusal::Ttl)], LOW));
    world.controller.withdraw(ticket(third));
    assert_eq!((world.waiting(), world.controller.next_deadline()), (BandRank::NOBODY, None));
    world.board.set_room(PoolSlot(0), HIGH, 9);
    world.controller.nudge(PoolSlot(0));
    assert_eq!(world.granted(), Vec::<u64>::new());
}

#[test]
fn a_ticket_for_several_pools_takes_the_first_place_and_leaves_all_queues() {
    let mut world = world(0);
    let both = world.ask(Enqueue { pools: pools(&[0, 1]), ..asked(HIGH) });
    let only = world.ask(asked(LOW));
    world.board.set_room(PoolSlot(1), HIGH, 1);
    world.controller.nudge(PoolSlot(1));
    world.turn();
    assert_eq!(world.answers, [(both, Answer::Granted(PoolSlot(1)))]);
    assert_eq!((world.waiting(), world.board.waiting(PoolSlot(1))), (LOW, BandRank::NOBODY));
    world.board.set_room(PoolSlot(0), LOW, 1);
    world.controller.nudge(PoolSlot(0));
    world.answers.clear();
    assert_eq!(world.granted(), [only]);
}

#[test]
fn tenants_take_turns_within_a_band() {
    let mut world = world(0);
    let spent = super::super::fairness::QUANTUM as u32;
    let of = |tenant| Enqueue { tenant, cost: spent, ..asked(LOW) };
    let many: Vec<u64> = (0..3).map(|_| world.ask(of(1))).collect();
    let few = world.ask(of(2));
    world.board.set_room(PoolSlot(0), LOW, 9);
    world.controller.nudge(PoolSlot(0));
    assert_eq!(world.granted(), [many[0], few, many[1], many[2]]);
}

#[test]
fn a_turn_is_bounded_and_the_next_goes_on() {
    let mut world = world(i32::MAX - 1);
    let count = GRANTS_PER_TURN * 2 + 3;
    for _ in 0..count {
        world.ask(asked(LOW));
    }
    assert_eq!(world.turn(), Progress::More);
    assert_eq!(world.answers.len(), GRANTS_PER_TURN);
    assert_eq!((world.turn(), world.turn(), world.turn()), (Progress::More, Progress::Done, Progress::Done));
    assert_eq!(world.answers.len(), count);
}

#[test]
fn a_pool_that_is_gone_is_waited_for_no_more_and_its_slots_next_holder_is_not_it() {
    let mut world = world(0);
    let one = world.ask(asked(HIGH));
    let both = world.ask(Enqueue { pools: pools(&[0, 1]), ..asked(HIGH) });
    let newer = world.ask(Enqueue { generation: 6, ..asked(LOW) });
    // Slot 0 is a pool of another gate by then.
    let is_known = |gate: u64, pool: PoolSlot| pool == PoolSlot(1) || gate != GATE;
    let mut answers = Vec::new();
    world.controller.keep_to(5, is_known, |ticket, answer| answers.push((ticket.number, answer)));
    assert_eq!(answers, [(one, Answer::Refused(Refusal::NoEndpoint))]);
    assert_eq!((world.waiting(), world.board.waiting(PoolSlot(1))), (LOW, HIGH), "whose table is newer waits");
    // One that asks by an older table is refused, one by a newer table waits.
    let mut ask = |generation, number| {
        let asked = Enqueue { ticket: Ticket { core: CoreId(1), number }, generation, ..asked(HIGH) };
        let mut refused = false;
        let refusal = Answer::Refused(Refusal::NoEndpoint);
        world.controller.enqueue(&asked, is_known, |_, answer| refused |= answer == refusal);
        refused
    };
    assert_eq!((ask(4, 100), ask(5, 101), ask(6, 102)), (true, true, false));
    world.board.set_room(PoolSlot(1), HIGH, 1);
    world.controller.nudge(PoolSlot(1));
    assert_eq!(world.granted(), [both]);
    let mut answers = Vec::new();
    world.controller.keep_to(6, is_known, |ticket, _| answers.push(ticket.number));
    answers.sort_unstable();
    assert_eq!((answers, world.waiting()), (vec![newer, 102], BandRank::NOBODY));
}

#[test]
fn the_net_finds_what_a_lost_nudge_left_and_counts_it() {
    let mut world = world(0);
    world.ask(asked(LOW));
    world.turn();
    world.controller.net();
    world.turn();
    assert_eq!(world.controller.found_by_net(), 0);
    world.board.set_room(PoolSlot(0), LOW, 1);
    world.controller.net();
    assert_eq!((world.granted().len(), world.controller.found_by_net()), (1, 1));
}

#[test]
fn deadlines_of_tickets_long_gone_are_not_kept() {
    let mut world = world(i32::MAX - 1);
    for _ in 0..5_000 {
        world.ask(asked(LOW));
        world.turn();
    }
    assert!(world.controller.deadlines.len() <= DEADLINES_SPARE + 2, "{}", world.controller.deadlines.len());
}
