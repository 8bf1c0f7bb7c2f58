//! Worlds of tenants: home cores and owners of limits over the router's own code, in virtual time, with lanes that keep
//! order and overtake each other, clients that leave, engines that fail, keys that are revoked, limits that change,
//! wall clocks that step, and the edges of days and months.
//!
//! A step is one turn of one core. Reading order: `plan` (what a world is like), `world` (who moves), `ledger` (what is
//! true, which the code under test never sees), `check` (what must hold).

mod check;
mod ledger;
mod plan;
mod requests;
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
    #[test]
    fn ten_thousand_mixed_endings_leave_nothing() {
        let mut requests = 0;
        for seed in 0.. {
            let outcome = super::run(seed, 20_000, None, false);
            assert_eq!(outcome.broken, None, "seed {seed}");
            requests += outcome.requests;
            if requests >= 10_000 {
                break;
            }
        }
    }
}
