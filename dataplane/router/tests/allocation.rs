//! A decision, and the gate before it, allocate nothing once the buffers of their core have grown.

#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so; it hands everything on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::admission::{Cells, Gate, PoolGate};
use llmgw_router::endpoint::Sample;
use llmgw_router::prefix::{Fingerprint, Ledger, Salt, Seed, StampTable};
use llmgw_router::session::key_hash;
use llmgw_router::{Board, Wanted};
use llmgw_types::{BandRank, BoardSlot, CoreId, PoolSlot};

#[path = "decisions/world.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use the rest")]
mod world;

use world::{NOW, World, table, wanted};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is the system allocator's, with the caller's own arguments; the count is a cell of the calling
// thread that needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised; `pointer` came from `alloc` above, so from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

#[test]
fn no_prompt_that_is_looked_for_and_remembered_allocates() {
    for scorers in [&[("cost", 4.0)][..], &[("prefix", 3.0), ("kv", 1.0)]] {
        let mut world = World::of(&table(&[&[60]], scorers, "p2c", 0.0), 1);
        let prefixes = Arc::new(StampTable::new(1 << 16, Ledger::new(1, 60)));
        world.cores = world.cores.into_iter().map(|core| core.with_table(prefixes.clone())).collect();
        let mut fingerprint = Fingerprint::new(&Seed::drawn(&mut Chance::seeded(1)));
        let text = vec![b'x'; 60_000];
        let mut send = |count: u32| {
            for number in 0..count {
                fingerprint.begin(&Salt { model: "m0", ..Salt::default() });
                fingerprint.text(&(number % 7).to_le_bytes());
                fingerprint.text(&text);
                fingerprint.finish();
                drop(world.dispatch(0, &Wanted { prompt: Some(&fingerprint), ..wanted() }));
            }
        };
        send(100);
        assert_eq!(allocations(|| send(1000)), 0, "{scorers:?}");
    }
}

#[test]
fn no_decision_allocates_after_the_first() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8]))) > 0, "allocations are counted");
    let scorers =
        [("queue", 3.0), ("kv", 1.0), ("load", 1.0), ("inflight", 1.0), ("pool-priority", 1.0), ("prefix", 2.0)];
    for (picker, temperature) in [("p2c", 0.0), ("max-score", 0.0), ("softmax", 0.2), ("round-robin", 0.0)] {
        for with_session in [false, true] {
            let mut scorers = scorers.to_vec();
            if with_session {
                scorers.push(("session", 1.0));
            }
            let mut world = World::of(&table(&[&[1, 60], &[7]], &scorers, picker, temperature), 2);
            world.board.set_ready(BoardSlot(0), false);
            for slot in (1..40).map(BoardSlot) {
                let sample = Sample {
                    running: slot.0,
                    waiting: slot.0 % 5,
                    kv_usage_ratio: Some(0.5),
                    drain_rate: Some(2.0),
                    at: Mono(NOW.0 - 1),
                };
                world.board.endpoint(slot).set_sample(&sample);
            }
            let excluded = [BoardSlot(5)];
            let mut decide = |count: u64| {
                for at in 0..count {
                    let session = (at % 3 > 0).then(|| key_hash(&at.to_le_bytes()));
                    let pinned = (at % 7 == 0).then_some(BoardSlot(9));
                    let model = u32::from(at % 2 == 0);
                    let wanted = Wanted { model, session, pinned, excluded: &excluded, ..wanted() };
                    drop(world.dispatch(0, &wanted));
                }
            };
            decide(200);
            let count = allocations(|| decide(10_000));
            assert_eq!(count, 0, "{picker}, session weighed: {with_session}");
        }
    }
}

#[test]
fn a_request_that_passes_the_gate_and_its_end_allocate_nothing_after_the_first() {
    let board = Arc::new(Board::new(3, 1));
    let pool = PoolGate { slot: PoolSlot(2), owner: CoreId(0) };
    board.set_room(pool.slot, BandRank(1), 64);
    let gate = Gate::new(board, CoreId(1), || {});
    let mut held = VecDeque::with_capacity(64);
    let mut pass = |count: u64| {
        for _ in 0..count {
            if held.len() == 64 {
                held.pop_front();
            }
            held.push_back(gate.attempt(BandRank(1)).try_pool(pool).expect("there is room"));
        }
    };
    pass(200);
    assert_eq!(allocations(|| pass(10_000)), 0);
}
