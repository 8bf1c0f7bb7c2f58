//! A core that decides while another does the same: each reads the cache lines that the other writes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use llmgw_runtime::cores::{keep_to, usable_cpus};
use llmgw_types::CoreId;

use crate::measure::{self, Plan, Timing};
use crate::world::{self, World};

/// Decisions among 100 endpoints on the first CPU, beside decisions on the second.
pub(super) fn beside_another(plan: Plan) -> Timing {
    let cpus = usable_cpus();
    let board = world::board(100, 2);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            keep_to(&cpus[cpus.len().min(2) - 1..cpus.len().min(2)]);
            let mut other = World::on(&board, 100, "max-score", CoreId(1));
            while !is_over.load(Ordering::Relaxed) {
                drop(black_box(other.decide()));
            }
        });
        let measured = scope.spawn(|| {
            keep_to(&cpus[..1]);
            let mut world = World::on(&board, 100, "max-score", CoreId(0));
            let timing = measure::measure(plan, || drop(black_box(world.decide())));
            is_over.store(true, Ordering::Relaxed);
            timing
        });
        let timing = measured.join();
        is_over.store(true, Ordering::Relaxed);
        timing.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
