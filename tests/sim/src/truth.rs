//! What is true, and what must be: checked at every grant, pass and answer, and whenever nobody is at work.
//!
//! Called by the actors at the moments that count. Knows what holds a place and who waits from what the actors were
//! told, never from the cells it judges.

use std::collections::BTreeMap;

use llmgw_router::admission::fairness::QUANTUM;
use llmgw_router::admission::{BANDS_MAX, Limits, UNBOUNDED};
use llmgw_router::message::Refusal;
use llmgw_types::{BandRank, PoolSlot};

use crate::requests::Request;
use crate::tables::Publication;

/// Pool slots that a world uses.
pub(crate) const SLOTS: usize = 16;

/// A set of requests.
#[derive(Clone, Debug, Default)]
struct Set(Vec<u64>);

impl Set {
    /// Answer: whether that changes anything.
    fn put(&mut self, request: usize, is_in: bool) -> bool {
        if self.0.len() <= request / 64 {
            self.0.resize(request / 64 + 1, 0);
        }
        let bit = 1u64 << (request % 64);
        let word = &mut self.0[request / 64];
        let was_in = *word & bit != 0;
        *word = if is_in { *word | bit } else { *word & !bit };
        was_in != is_in
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |(word, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        };
        self.0.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(bits)
    }

    fn common(&self, other: &Self) -> i64 {
        self.0.iter().zip(&other.0).map(|(a, b)| i64::from((a & b).count_ones())).sum()
    }
}

/// One actor's try: who held places when it began, and the most room there was since.
#[derive(Clone, Debug)]
struct Try {
    held: Vec<Set>,
    most: Vec<[i32; BANDS_MAX + 1]>,
}

/// One actor's sum over a pool's load cells, cell by cell.
#[derive(Clone, Debug, Default)]
struct Sum {
    /// The pool in which it counted itself up just before.
    raised: Option<PoolSlot>,
    /// Who held a place there when the first cell was read.
    held: Set,
    read: usize,
    total: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Who holds a place that counts, by pool slot.
    holders: Vec<Set>,
    /// By request, the most room that there was while it looked for its place: its place was within that.
    within: Vec<i32>,
    rooms: Vec<[i32; BANDS_MAX + 1]>,
    tries: Vec<Option<Try>>,
    sums: Vec<Sum>,
    /// Who waits at an owner, in the order in which the owner took them in.
    pub(crate) queued: Vec<usize>,
    /// How far two tenants are apart since both began to wait, by pool, band and the pair.
    apart: BTreeMap<(u32, u8, u32, u32), i64>,
    largest: u64,
    pub(crate) broken: Option<String>,
}

impl Truth {
    pub(crate) fn new(actors: usize) -> Self {
        Self {
            holders: vec![Set::default(); SLOTS],
            rooms: vec![[0; BANDS_MAX + 1]; SLOTS],
            tries: vec![None; actors],
            sums: vec![Sum::default(); actors],
            ..Self::default()
        }
    }

    /// The first break counts.
    pub(crate) fn breaks(&mut self, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(what());
        }
    }

    pub(crate) fn room_set(&mut self, pool: PoolSlot, band: BandRank, room: i32) {
        self.rooms[pool.idx()][band.idx()] = room;
        for open in self.tries.iter_mut().flatten() {
            let most = &mut open.most[pool.idx()][band.idx()];
            *most = room.max(*most);
        }
    }

    /// An actor changed its cell.
    pub(crate) fn moves(&mut self, actor: usize, pool: PoolSlot, by: i64) {
        self.sums[actor] = Sum { raised: (by > 0).then_some(pool), ..Sum::default() };
    }

    /// An actor read one cell of a sum, of as many as there are cores. A sum may be too high, never too low: it counts
    /// whoever held a place all the while, and the one that sums.
    pub(crate) fn reads(&mut self, actor: usize, pool: PoolSlot, load: i64) {
        let cores = self.sums.len() - 1;
        let sum = &mut self.sums[actor];
        if sum.read == 0 {
            sum.held = self.holders[pool.idx()].clone();
        }
        (sum.read, sum.total) = (sum.read + 1, sum.total + load);
        if sum.read < cores {
            return;
        }
        let least = sum.held.common(&self.holders[pool.idx()]) + i64::from(sum.raised.take() == Some(pool));
        let total = sum.total;
        (sum.read, sum.total) = (0, 0);
        if total < least {
            self.breaks(|| format!("actor {actor} saw {total} in pool {}, where {least} were all the while", pool.0));
        }
    }

    /// Whether an actor has read the first cell of a sum, and no more.
    pub(crate) fn is_within_sum(&self, actor: usize) -> bool {
        self.sums[actor].read == 1
    }

    /// An actor begins to look for a place, for itself or for those who wait.
    pub(crate) fn tries(&mut self, actor: usize) {
        self.tries[actor] = Some(Try { held: self.holders.clone(), most: self.rooms.clone() });
    }

    pub(crate) fn tried(&mut self, actor: usize) {
        self.tries[actor] = None;
    }

    /// A request has a place, within the room of its band.
    ///
    /// Whoever raised last saw all others that hold a place: so of those that were let in with no more room than some
    /// number, no more than that number are there at once. And those that held all the while were less than the room.
    pub(crate) fn holds(&mut self, actor: usize, request: usize, pool: PoolSlot, band: BandRank) {
        let Some(open) = self.tries[actor].as_ref() else {
            return self.breaks(|| format!("request {request} got a place nobody looked for"));
        };
        // What it counted up is a place from here on.
        self.sums[actor].raised = None;
        let most = open.most[pool.idx()][band.idx()];
        let held = open.held[pool.idx()].common(&self.holders[pool.idx()]);
        self.counts(request, pool, true);
        self.within[request] = most;
        if most == UNBOUNDED {
            return;
        }
        let pool_idx = pool.0;
        if held >= i64::from(most) {
            self.breaks(|| {
                format!("request {request} got into pool {pool_idx} above its ceiling: {held} held it, of {most}")
            });
        }
        let mut within: Vec<i32> = self.holders[pool.idx()].iter().map(|holder| self.within[holder]).collect();
        within.sort_unstable();
        for (count, most) in (1..).zip(&within) {
            if count > *most {
                self.breaks(|| {
                    format!("{count} requests hold a place of pool {pool_idx}, let in one by one up to {most}")
                });
                return;
            }
        }
    }

    /// A place counts from here on, or no more.
    pub(crate) fn counts(&mut self, request: usize, pool: PoolSlot, does: bool) {
        if !self.holders[pool.idx()].put(request, does) {
            return;
        }
        if !does {
            // Should it count again, it did not all the while.
            for open in self.tries.iter_mut().flatten() {
                open.held[pool.idx()].put(request, false);
            }
            for sum in &mut self.sums {
                sum.held.put(request, false);
            }
        }
        if self.within.len() <= request {
            self.within.resize(request + 1, UNBOUNDED);
        }
        // Counted anew at another endpoint or table it asked nobody.
        self.within[request] = UNBOUNDED;
    }

    /// The owner took a ticket in.
    pub(crate) fn queues(&mut self, requests: &[Request], request: usize) {
        let asked = &requests[request];
        self.largest = self.largest.max(asked.cost.into());
        for pool in asked.pools.iter() {
            // Whoever begins to wait is even with everybody.
            let waits = |tenant: u32| self.waits(requests, pool, asked.band, tenant);
            if !waits(asked.tenant) {
                self.apart.retain(|&(at, band, a, b), _| {
                    (at, band) != (pool.0, asked.band.0) || (a != asked.tenant && b != asked.tenant)
                });
            }
        }
        self.queued.push(request);
    }

    fn waits(&self, requests: &[Request], pool: PoolSlot, band: BandRank, tenant: u32) -> bool {
        self.queued.iter().any(|&other| {
            let other = &requests[other];
            other.band == band && other.tenant == tenant && other.pools.iter().any(|at| at == pool)
        })
    }

    pub(crate) fn leaves_queue(&mut self, request: usize) -> bool {
        let at = self.queued.iter().position(|&other| other == request);
        at.map(|at| self.queued.remove(at)).is_some()
    }

    /// The owner grants.
    pub(crate) fn grants(&mut self, requests: &[Request], actor: usize, request: usize, pool: PoolSlot) {
        let granted = &requests[request];
        let same_pool =
            |other: usize| requests[other].owner == granted.owner && requests[other].pools.iter().any(|at| at == pool);
        let waiting: Vec<usize> = self.queued.iter().copied().filter(|&other| same_pool(other)).collect();
        if let Some(higher) = waiting.iter().find(|&&other| requests[other].band > granted.band) {
            self.breaks(|| {
                format!(
                    "request {request} of band {} was granted before {higher} of band {}",
                    granted.band.0, requests[*higher].band.0
                )
            });
        }
        let older = waiting
            .iter()
            .take_while(|&&other| other != request)
            .find(|&&other| requests[other].band == granted.band && requests[other].tenant == granted.tenant);
        if let Some(older) = older {
            self.breaks(|| format!("request {request} was granted before {older}, which its tenant sent before"));
        }
        if !self.leaves_queue(request) {
            self.breaks(|| format!("request {request} was granted and did not wait"));
        }
        self.take_turn(requests, request, pool, &waiting);
        self.holds(actor, request, pool, granted.band);
    }

    /// Tenants that wait all the while stay within a quantum and the largest request of each other, and one more
    /// request where one of them had saved up for one when the other came.
    fn take_turn(&mut self, requests: &[Request], request: usize, pool: PoolSlot, waiting: &[usize]) {
        let granted = &requests[request];
        let mut others: Vec<u32> = waiting
            .iter()
            .map(|&other| &requests[other])
            .filter(|other| other.band == granted.band && other.tenant != granted.tenant)
            .map(|other| other.tenant)
            .collect();
        others.sort_unstable();
        others.dedup();
        let bound = (QUANTUM + 2 * self.largest) as i64;
        for other in others {
            let (a, b) = (granted.tenant.min(other), granted.tenant.max(other));
            let by = if a == granted.tenant { i64::from(granted.cost) } else { -i64::from(granted.cost) };
            let apart = self.apart.entry((pool.0, granted.band.0, a, b)).or_default();
            *apart += by;
            let apart = *apart;
            if apart.abs() > bound {
                self.breaks(|| {
                    format!("tenants {a} and {b} are {apart} tokens apart in pool {}, bound {bound}", pool.0)
                });
            }
        }
    }

    /// The owner refuses, at a time and within bounds; `by` is whose request it took in.
    pub(crate) fn refuses(
        &mut self,
        requests: &[Request],
        request: usize,
        refusal: Refusal,
        (now, limits): (u64, Limits),
        by: Option<usize>,
    ) {
        let refused = &requests[request];
        let of_line = |other: &&usize| requests[**other].gate == refused.gate && Some(**other) != by;
        let line: Vec<usize> = self.queued.iter().filter(of_line).copied().collect();
        match refusal {
            Refusal::Displaced => {
                let lowest = line.iter().map(|&other| requests[other].band).min();
                let newest = line.iter().rev().find(|&&other| Some(requests[other].band) == lowest);
                let for_band = by.map(|by| requests[by].band);
                if newest != Some(&request) || for_band <= Some(refused.band) {
                    self.breaks(|| format!("request {request} was displaced for {by:?}: not the newest of the lowest"));
                }
            }
            Refusal::Ttl if now < refused.deadline => {
                self.breaks(|| format!("request {request} was refused before its deadline"));
            }
            Refusal::Full => {
                let load = Load::of(requests, line.iter().copied());
                let above = Load::of(requests, line.iter().copied().filter(|&at| requests[at].band >= refused.band));
                let in_band = line.iter().filter(|&&other| requests[other].band == refused.band).count() as u32;
                let is_full = in_band >= limits.per_band
                    || above.count >= limits.total
                    || above.bytes + u64::from(refused.bytes) > limits.bytes;
                if !is_full {
                    self.breaks(|| format!("request {request} was refused as the queue was full, with {load:?} in it"));
                }
            }
            _ => {}
        }
        if !self.leaves_queue(request) {
            self.breaks(|| format!("request {request} was refused and did not wait"));
        }
    }

    /// Queues are within their bounds.
    pub(crate) fn within_bounds(&mut self, requests: &[Request], gate: u64, limits: Limits) {
        let line: Vec<usize> = self.queued.iter().copied().filter(|&at| requests[at].gate == gate).collect();
        let load = Load::of(requests, line.iter().copied());
        let fullest = (1..=BANDS_MAX as u8)
            .map(|band| line.iter().filter(|&&at| requests[at].band == BandRank(band)).count())
            .max();
        let is_over = load.count > limits.total
            || load.bytes > limits.bytes
            || fullest.is_some_and(|count| count > limits.per_band as usize);
        if is_over {
            self.breaks(|| format!("a queue is above its bounds: {load:?}, {fullest:?} in one band, {limits:?}"));
        }
    }

    /// An owner took a table: what it does not know is not waited for there.
    pub(crate) fn knows(&mut self, requests: &mut [Request], owner: usize, tables: &Publication) {
        for &at in &self.queued {
            let it = &mut requests[at];
            if it.owner == owner && it.generation <= tables.generation {
                it.pools = it.pools.iter().filter(|pool| tables.knows(it.gate, *pool)).collect();
            }
        }
    }
}

/// What waits together.
#[derive(Debug, Default)]
struct Load {
    count: u32,
    bytes: u64,
}

impl Load {
    fn of(requests: &[Request], line: impl Iterator<Item = usize>) -> Self {
        line.fold(Self::default(), |sum, at| Self {
            count: sum.count + 1,
            bytes: sum.bytes + u64::from(requests[at].bytes),
        })
    }
}
