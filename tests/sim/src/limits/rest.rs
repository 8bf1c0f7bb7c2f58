//! A world comes to rest: everything that runs ends, every message is heard, every lease goes back.

use llmgw_router::limiter::{Home, Owner};
use llmgw_router::quota::window::TICK_NS;

use super::check;
use super::world::{Lane, World};

/// Steps in which a world comes to rest once nothing new happens, or it never does.
const REST_STEPS_MAX: usize = 100_000;
/// Ticks after which a lease that nobody uses has gone back.
const IDLE_TICKS: u32 = 4;

impl World {
    pub(super) fn rest(&mut self) {
        self.stands.fill(0);
        self.known.clear();
        for core in 0..self.plan.cores {
            if self.tables[core].table.generation() < self.newest.table.generation() {
                self.adopt(core);
            }
        }
        self.finish_all();
        let mut ticks = 0;
        for round in 0..REST_STEPS_MAX {
            if self.is_quiet() && self.running.is_empty() {
                let is_over = self.owners.iter().all(Owner::is_idle) || ticks > IDLE_TICKS;
                if self.homes.iter().all(Home::is_idle) && self.waiting.is_empty() && is_over {
                    check::at_rest(self);
                    self.fresh.clear();
                    return;
                }
                // Idle leases go back with time, also those of which nothing is left.
                ticks += 1;
                self.now_ns += TICK_NS;
                (0..self.plan.cores).for_each(|core| self.tick(core));
                continue;
            }
            self.deliver(round % self.plan.cores);
            self.finish_all();
            if self.broken.is_some() {
                return;
            }
        }
        let waiting = self.waiting.len();
        self.breaks(format!("it does not come to rest: {waiting} wait"));
    }

    fn finish_all(&mut self) {
        self.running.clone().into_iter().for_each(|at| self.finish_one(at));
    }

    fn is_quiet(&self) -> bool {
        self.up.iter().flatten().all(Lane::is_empty) && self.down.iter().flatten().all(Lane::is_empty)
    }

    /// A window later nothing counts but budgets.
    pub(super) fn end(&mut self) {
        if self.broken.is_none() {
            self.now_ns += 70 * TICK_NS;
            check::empty(self);
        }
    }
}
