//! Whether this gateway wants traffic: every core has a route table, at least one endpoint takes requests, and nobody
//! asked it to stop.
//!
//! Both `/readyz` pages say it in these words. Endpoints that an operator drained take none, so they count for nothing.
//! One that cools down or whose breaker is open still counts: without another it is asked all the same, and a load
//! balancer that turned away from every gateway at the first failure of the only engine would make an outage of it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use llmgw_kit::clock::Mono;
use llmgw_types::BoardSlot;

use crate::board::Board;
use crate::endpoint::BreakerState;

/// Written by the side runtime, and once by each core; read by health pages and by cores.
#[derive(Debug, Default)]
pub struct Readiness {
    /// Cores that have no route table yet.
    cores_missing: AtomicU32,
    ready: AtomicU32,
    known: AtomicU32,
    is_starting: AtomicBool,
    is_settling: AtomicBool,
}

impl Readiness {
    /// Nobody is ready yet, and `cores` cores are to come. (By default none are waited for.)
    pub fn of_cores(cores: usize) -> Self {
        Self { cores_missing: AtomicU32::new(u32::try_from(cores).unwrap_or(u32::MAX)), ..Self::default() }
    }

    /// A core has made its state and has its first route table. Owner: each core, once.
    pub fn core_serves(&self) {
        let _ = self.cores_missing.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |missing| missing.checked_sub(1));
    }

    /// Whether endpoints are being asked for the first time: traffic that came now would all go to the first to answer.
    /// Owner: side runtime.
    pub fn set_starting(&self, is_starting: bool) {
        self.is_starting.store(is_starting, Ordering::Release);
    }

    /// How many of the `known` endpoints answered their last check. Owner: side runtime.
    pub fn set_endpoints(&self, ready: u32, known: u32) {
        self.known.store(known, Ordering::Relaxed);
        self.ready.store(ready, Ordering::Release);
    }

    /// From here on the gateway is on its way out. Owner: side runtime.
    pub fn settle(&self) {
        self.is_settling.store(true, Ordering::Release);
    }

    /// Whether the gateway is on its way out.
    pub fn is_settling(&self) -> bool {
        self.is_settling.load(Ordering::Acquire)
    }

    /// Endpoints that answered their last check, and known ones.
    pub fn endpoints(&self) -> (u32, u32) {
        (self.ready.load(Ordering::Acquire), self.known.load(Ordering::Relaxed))
    }

    /// Whether a load balancer should send requests here, and in a few words why.
    pub fn judge(&self, standing: &Standing) -> (bool, &'static str) {
        match standing {
            _ if self.is_settling() => (false, "stopping"),
            _ if self.cores_missing.load(Ordering::Acquire) > 0 => (false, "cores are starting"),
            _ if self.is_starting.load(Ordering::Acquire) => (false, "endpoints are asked for the first time"),
            Standing { ready: 0, draining: 0, .. } => (false, "no endpoint is ready"),
            Standing { ready: 0, draining, known, .. } if draining == known => (false, "every endpoint is drained"),
            Standing { ready: 0, .. } => (false, "no endpoint is ready that is not drained"),
            Standing { ready, out, .. } if ready == out => (true, "every ready endpoint failed a moment ago"),
            _ => (true, "ready"),
        }
    }
}

/// How the endpoints of a route table stand at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// All of them.
    pub known: u32,
    /// Those that may get requests.
    pub ready: u32,
    /// Those that an operator drained.
    pub draining: u32,
    /// Of the ready ones, those that get none for a while, or one at a time, after failures.
    pub out: u32,
}

impl Standing {
    /// Looks at the endpoints of these slots. Cost: a cache line each.
    pub fn of(board: &Board, slots: impl Iterator<Item = BoardSlot>, now: Mono) -> Self {
        let mut standing = Self::default();
        for cells in slots.map(|slot| board.endpoint(slot)) {
            standing.known += 1;
            if cells.is_draining() {
                standing.draining += 1;
            } else if cells.is_ready() {
                standing.ready += 1;
                let is_out = now < cells.out_until() || cells.breaker() != BreakerState::Closed;
                standing.out += u32::from(is_out);
            }
        }
        standing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn traffic_is_wanted_while_an_endpoint_takes_requests_and_until_told_to_settle() {
        let (board, readiness, now) = (Board::new(1, 2), Readiness::of_cores(2), Mono(1_000));
        let check = |expected: (bool, &str), counts: [u32; 3]| {
            let standing = Standing::of(&board, [BoardSlot(0), BoardSlot(1)].into_iter(), now);
            let [ready, draining, out] = counts;
            assert_eq!(standing, Standing { known: 2, ready, draining, out });
            assert_eq!(readiness.judge(&standing), expected);
        };
        let (a, b) = (board.endpoint(BoardSlot(0)), board.endpoint(BoardSlot(1)));
        a.set_ready(true);
        check((false, "cores are starting"), [1, 0, 0]);
        readiness.core_serves();
        check((false, "cores are starting"), [1, 0, 0]);
        readiness.core_serves();
        check((true, "ready"), [1, 0, 0]);
        a.set_ready(false);
        check((false, "no endpoint is ready"), [0, 0, 0]);
        a.set_ready(true);
        readiness.set_starting(true);
        check((false, "endpoints are asked for the first time"), [1, 0, 0]);
        readiness.set_starting(false);
        check((true, "ready"), [1, 0, 0]);
        a.set_breaker(BreakerState::Closed, now + Duration::from_secs(1));
        check((true, "every ready endpoint failed a moment ago"), [1, 0, 1]);
        b.set_ready(true);
        check((true, "ready"), [2, 0, 1]);
        b.set_breaker(BreakerState::HalfOpen, now);
        check((true, "every ready endpoint failed a moment ago"), [2, 0, 2]);
        a.set_draining(true);
        check((true, "every ready endpoint failed a moment ago"), [1, 1, 1]);
        b.set_ready(false);
        check((false, "no endpoint is ready that is not drained"), [0, 1, 0]);
        b.set_draining(true);
        check((false, "every endpoint is drained"), [0, 2, 0]);
        readiness.settle();
        check((false, "stopping"), [0, 2, 0]);
        assert_eq!(readiness.judge(&Standing { known: 1, ready: 1, draining: 0, out: 0 }), (false, "stopping"));
    }
}
