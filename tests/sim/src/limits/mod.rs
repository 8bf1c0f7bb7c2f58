//! Worlds of tenants: home cores and owners of limits over the router's own code, in virtual time, with lanes that keep
//! order and overtake each other, clients that leave, engines that fail, keys that are revoked, limits that change,
//! wall clocks that step, and the edges of days and months.
//!
//! A step is one turn of one core. Reading order: `plan` (what a world is like), `shape` (its limits), `world` (whose
//! turn it is), `requests`, `lanes`, `publish` and `rest` (what happens), `ledger` (what is true, which the code under
//! test never sees), `check` (what must hold).

mod check;
mod lanes;
mod ledger;
mod plan;
mod publish;
mod requests;
mod rest;
mod shape;
mod world;

pub(crate) use world::run;

use llmgw_router::limiter::{Fault, Faults};

/// One mistake, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted(pub(crate) Option<Fault>);

impl Faults for Planted {
    fn planted(&self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use crate::fired::{Fired, Trouble};

    /// Endings of each kind in the test below, at least.
    const EACH: u64 = 300;

    #[test]
    fn ten_thousand_mixed_endings_leave_nothing() {
        // Each world is looked over whenever it comes to rest, and once more a window later.
        const KINDS: [Trouble; 7] = [
            Trouble::Finished,
            Trouble::LeftRunning,
            Trouble::NeverRan,
            Trouble::MoreThanReserved,
            Trouble::RefusedByOwner,
            Trouble::RevokedRunning,
            Trouble::LateVerdict,
        ];
        let mut sum = Fired::default();
        let count = |sum: &Fired| KINDS.map(|kind| sum.count_of(kind));
        for seed in 0.. {
            let outcome = super::run(seed, 20_000, None, false);
            assert_eq!(outcome.broken, None, "seed {seed}");
            sum.add(&outcome.fired);
            let counts = count(&sum);
            if counts.iter().sum::<u64>() >= 10_000 && counts.iter().all(|count| *count >= EACH) {
                break;
            }
            assert!(seed < 200, "some endings hardly come up: {counts:?} of {KINDS:?}");
        }
    }
}
