//! The gate while there is room, and the queue behind it while there is none.

use std::hint::black_box;
use std::sync::Arc;

use llmgw_kit::clock::Mono;
use llmgw_router::Board;
use llmgw_router::admission::{Answer, Cells, Controller, Gate, Limits, PoolGate};
use llmgw_router::message::{Enqueue, Ticket};
use llmgw_types::{BandRank, CoreId, PoolSlot};

const POOL: PoolSlot = PoolSlot(3);
const OWNER: CoreId = CoreId(0);
const BAND: BandRank = BandRank(2);

/// A request that passes at once on one of so many cores, and its end.
pub(super) fn pass(cores: u32) -> impl FnMut() {
    let board = Arc::new(Board::new(cores as usize, 1));
    board.set_room(POOL, BAND, 1_000);
    let gate = Gate::new(board, CoreId(cores - 1), || {});
    let pool = PoolGate { slot: POOL, owner: OWNER };
    move || {
        let mut attempt = gate.attempt(BAND);
        drop(black_box(attempt.try_pool(pool)));
    }
}

/// A request that is queued among `backlog` others, each of another tenant of the `tenants` there are; a place that is
/// given up; and the grant of it to whose turn it is. What is done for one request that waits.
pub(super) fn queued(backlog: u32, tenants: u32) -> impl FnMut() {
    let board = Arc::new(Board::new(2, 1));
    let mut controller = Controller::new(board.clone(), OWNER);
    controller.set_limits(Limits { per_band: u32::MAX, total: u32::MAX, bytes: u64::MAX }, []);
    // One place, taken.
    board.set_room(POOL, BAND, 1);
    board.add_load(CoreId(1), POOL, 1);
    let asked = |number: u64, tenant: u32| Enqueue {
        // Whoever is served is known by its number.
        ticket: Ticket { core: CoreId(1), number: number << 32 | u64::from(tenant) },
        gate: 1,
        generation: 0,
        tenant,
        deadline: Mono(number),
        // From a few hundred tokens to tens of thousands.
        cost: 200 + (number % 97) as u32 * 300,
        bytes: 1_000,
        pools: [POOL].into_iter().collect(),
        band: BAND,
    };
    let mut number = 0;
    for tenant in 0..backlog {
        controller.enqueue(&asked(number, tenant), |_, _| true, |_, _| {});
        number += 1;
    }
    controller.turn(|_, _| {});
    move || {
        board.add_load(CoreId(1), POOL, -1);
        controller.nudge(POOL);
        let mut served = 0;
        controller.turn(|ticket, answer| {
            debug_assert_eq!(answer, Answer::Granted(POOL));
            served = ticket.number as u32;
        });
        // Whoever was served comes again, or the next of those who have not come for longest.
        let next = if backlog == tenants { served } else { number as u32 % tenants };
        controller.enqueue(&asked(number, next), |_, _| true, |_, _| {});
        number += 1;
        black_box(controller.len());
    }
}
