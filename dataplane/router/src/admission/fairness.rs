//! Turns between the tenants of a band: deficit round robin by token cost.
//!
//! Kept by the controller for each pool and band with somebody waiting. In every round a tenant may spend one quantum,
//! and keeps what it could not spend, as long as it waits. A round is never walked through: the round in which a tenant
//! can pay for its first request is known, so tenants lie in a wheel by that round and the next one is found by a bit
//! search, however many wait or are known. Never looks at cells, pools or time.
//!
//! Bound: two tenants that both wait all the while are served within one quantum and the largest request of each other.
//! Within a tenant the order is that of arrival. Source: Shreedhar and Varghese, "Efficient fair queueing using deficit
//! round robin", 1995.

use std::collections::HashMap;

use super::slab::{NONE, Slab};

/// Tokens that a tenant may spend in a round.
pub const QUANTUM: u64 = 2048;
/// Rounds that are told apart.
const ROUNDS: usize = 256;
/// The most that a request counts for: what comes together in the rounds that are told apart.
pub const COST_MAX: u64 = (ROUNDS as u64 - 2) * QUANTUM;

/// A request's row.
pub(super) type Row = u32;

/// One that waits.
#[derive(Debug)]
struct Waiter {
    ticket: u32,
    tenant: u32,
    cost: u64,
    prev: u32,
    next: u32,
}

/// A tenant with somebody waiting.
#[derive(Debug)]
struct Tenant {
    hash: u32,
    /// What it has to spend as of the round `since`.
    balance: u64,
    since: u64,
    /// The round in which it can pay for its first request: where it lies in the wheel.
    due: u64,
    /// Its requests, by arrival.
    first: u32,
    last: u32,
    /// Its neighbours in the wheel.
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// The turns of one band in one pool.
#[derive(Debug)]
pub(super) struct Turns {
    waiters: Slab<Waiter>,
    tenants: Slab<Tenant>,
    by_hash: HashMap<u32, u32, ahash::RandomState>,
    /// Tenants by the round in which they can pay, modulo the wheel's size; each in the order in which they came there.
    wheel: [Ends; ROUNDS],
    occupied: [u64; ROUNDS / 64],
    round: u64,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            waiters: Slab::default(),
            tenants: Slab::default(),
            // Order never depends on the map's.
            by_hash: HashMap::default(),
            wheel: [Ends { first: NONE, last: NONE }; ROUNDS],
            occupied: [0; ROUNDS / 64],
            round: 0,
        }
    }
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.len() == 0
    }

    /// Adds a ticket at the end of its tenant's.
    pub(super) fn push(&mut self, tenant: u32, cost: u32, ticket: u32) -> Row {
        let cost = u64::from(cost).clamp(1, COST_MAX);
        let known = self.by_hash.get(&tenant).copied();
        let at = known.unwrap_or_else(|| {
            let (since, round) = (self.round, self.round);
            let new =
                Tenant { hash: tenant, balance: 0, since, due: round, first: NONE, last: NONE, prev: NONE, next: NONE };
            let at = self.tenants.insert(new);
            self.by_hash.insert(tenant, at);
            at
        });
        let last = self.tenants.get(at).map_or(NONE, |tenant| tenant.last);
        let row = self.waiters.insert(Waiter { ticket, tenant: at, cost, prev: last, next: NONE });
        if let Some(before) = self.waiters.get_mut(last) {
            before.next = row;
        }
        if let Some(tenant) = self.tenants.get_mut(at) {
            tenant.last = row;
            if last == NONE {
                tenant.first = row;
            }
        }
        if known.is_none() {
            self.queue_up(at);
        }
        row
    }

    /// The ticket whose turn it is.
    pub(super) fn next(&self) -> Option<u32> {
        let tenant = self.tenants.get(self.next_tenant()?)?;
        self.waiters.get(tenant.first).map(|waiter| waiter.ticket)
    }

    /// Takes the ticket whose turn it is, at the cost of its tenant.
    pub(super) fn serve(&mut self) -> Option<u32> {
        let at = self.next_tenant()?;
        let tenant = self.tenants.get_mut(at)?;
        let row = tenant.first;
        self.round = tenant.due;
        let cost = self.waiters.get(row)?.cost;
        tenant.balance = (tenant.balance + (tenant.due - tenant.since) * QUANTUM).saturating_sub(cost);
        tenant.since = tenant.due;
        let waiter = self.unlink_waiter(row)?;
        self.settle(at);
        Some(waiter.ticket)
    }

    /// Takes a ticket out of turn, at no cost.
    pub(super) fn remove(&mut self, row: Row) {
        let Some(waiter) = self.waiters.get(row) else { return };
        let (at, was_first) = (waiter.tenant, waiter.prev == NONE);
        self.unlink_waiter(row);
        if was_first {
            self.settle(at);
        }
    }

    /// Puts a tenant where its first request belongs, or forgets it when it has none.
    fn settle(&mut self, at: u32) {
        let Some(tenant) = self.tenants.get(at) else { return };
        if tenant.first == NONE {
            let hash = tenant.hash;
            self.unlink_tenant(at);
            self.tenants.remove(at);
            self.by_hash.remove(&hash);
            return;
        }
        // It goes on within its turn while it can pay.
        if self.due(tenant) != tenant.due {
            self.unlink_tenant(at);
            self.queue_up(at);
        }
    }

    /// The round in which a tenant can pay for its first request.
    fn due(&self, tenant: &Tenant) -> u64 {
        let cost = self.waiters.get(tenant.first).map_or(0, |first| first.cost);
        let rounds = cost.saturating_sub(tenant.balance).div_ceil(QUANTUM);
        (tenant.since + rounds).max(self.round)
    }

    /// Whoever comes anew has nothing yet, so that its first turn is in a later round than this: else one that always
    /// comes anew would always be before those that wait.
    fn queue_up(&mut self, at: u32) {
        let Some(tenant) = self.tenants.get(at) else { return };
        let due = self.due(tenant);
        let spoke = due as usize % ROUNDS;
        let last = self.wheel[spoke].last;
        if let Some(tenant) = self.tenants.get_mut(at) {
            (tenant.due, tenant.prev, tenant.next) = (due, last, NONE);
        }
        match self.tenants.get_mut(last) {
            Some(before) => before.next = at,
            None => self.wheel[spoke].first = at,
        }
        self.wheel[spoke].last = at;
        self.occupied[spoke / 64] |= 1 << (spoke % 64);
    }

    fn unlink_tenant(&mut self, at: u32) {
        let Some(tenant) = self.tenants.get(at) else { return };
        let (prev, next, spoke) = (tenant.prev, tenant.next, tenant.due as usize % ROUNDS);
        match self.tenants.get_mut(prev) {
            Some(before) => before.next = next,
            None => self.wheel[spoke].first = next,
        }
        match self.tenants.get_mut(next) {
            Some(after) => after.prev = prev,
            None => self.wheel[spoke].last = prev,
        }
        if self.wheel[spoke].first == NONE {
            self.occupied[spoke / 64] &= !(1 << (spoke % 64));
        }
    }

    fn unlink_waiter(&mut self, row: Row) -> Option<Waiter> {
        let waiter = self.waiters.remove(row)?;
        let tenant = self.tenants.get_mut(waiter.tenant)?;
        match self.waiters.get_mut(waiter.prev) {
            Some(before) => before.next = waiter.next,
            None => tenant.first = waiter.next,
        }
        match self.waiters.get_mut(waiter.next) {
            Some(after) => after.prev = waiter.prev,
            None => tenant.last = waiter.prev,
        }
        Some(waiter)
    }

    /// The first tenant of the nearest round in which anybody can pay. Cost: a few words of bits.
    fn next_tenant(&self) -> Option<u32> {
        let start = self.round as usize % ROUNDS;
        let words = ROUNDS / 64;
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mask = match step {
                0 => u64::MAX << (start % 64),
                // The part of the first word that lies behind the start.
                _ if step == words => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            if bits != 0 {
                return Some(self.wheel[word * 64 + bits.trailing_zeros() as usize].first);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use llmgw_kit::chance::Chance;
    use proptest::prelude::*;

    use super::*;

    /// Serves `count` tickets whose number is their tenant.
    fn order(turns: &mut Turns, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| turns.serve()).collect()
    }

    #[test]
    fn tenants_take_turns_and_each_ones_requests_keep_their_order() {
        let mut turns = Turns::default();
        for ticket in 0..3 {
            turns.push(7, QUANTUM as u32, ticket);
        }
        turns.push(8, QUANTUM as u32, 10);
        turns.push(9, QUANTUM as u32, 20);
        assert_eq!(turns.next(), Some(0));
        assert_eq!(order(&mut turns, 9), [0, 10, 20, 1, 2]);
        assert!(turns.is_empty() && turns.next().is_none());
    }

    #[test]
    fn large_requests_wait_until_their_tenant_can_pay_and_nobody_waits_for_nothing() {
        let mut turns = Turns::default();
        turns.push(1, 3 * QUANTUM as u32, 100);
        for ticket in 0..9 {
            turns.push(2, QUANTUM as u32, ticket);
        }
        assert_eq!(order(&mut turns, 5), [0, 1, 100, 2, 3]);
        let mut alone = Turns::default();
        alone.push(1, u32::MAX, 5);
        alone.push(1, u32::MAX, 6);
        assert_eq!(order(&mut alone, 3), [5, 6]);
    }

    #[test]
    fn whoever_comes_anew_each_time_is_not_before_those_that_wait() {
        let mut turns = Turns::default();
        for tenant in 0..4 {
            for _ in 0..8 {
                turns.push(tenant, QUANTUM as u32, tenant);
            }
        }
        turns.push(99, 1, 99);
        let mut served = Vec::new();
        for _ in 0..25 {
            let ticket = turns.serve().unwrap();
            served.push(ticket);
            if ticket == 99 {
                turns.push(99, 1, 99);
            }
        }
        assert_eq!(served.iter().filter(|ticket| **ticket == 99).count(), 5, "{served:?}");
    }

    #[test]
    fn a_ticket_that_leaves_frees_its_turn() {
        let mut turns = Turns::default();
        let dear = turns.push(1, 9 * QUANTUM as u32, 1);
        turns.push(1, 1, 2);
        turns.push(2, 2 * QUANTUM as u32, 3);
        turns.remove(dear);
        turns.remove(dear);
        assert_eq!(order(&mut turns, 3), [2, 3]);
        let only = turns.push(5, 1, 4);
        turns.remove(only);
        assert!(turns.is_empty() && turns.serve().is_none());
    }

    proptest! {
        /// Tenants that wait all the while, with requests of any size, and others that come and go.
        #[test]
        fn two_waiting_tenants_differ_by_at_most_the_largest_request_and_a_quantum(seed in any::<u64>()) {
            let mut chance = Chance::seeded(seed);
            let tenants = 2 + chance.below(5);
            let largest = 1 + chance.below(20 * QUANTUM as u32);
            let mut turns = Turns::default();
            let mut served = vec![0u64; tenants as usize];
            let mut costs: HashMap<u32, (u32, u64)> = HashMap::new();
            let mut rows: Vec<Row> = Vec::new();
            let mut number = 0;
            let mut push = |turns: &mut Turns, costs: &mut HashMap<u32, (u32, u64)>, chance: &mut Chance, tenant: u32| {
                let cost = 1 + chance.below(largest);
                number += 1;
                costs.insert(number, (tenant, cost.into()));
                turns.push(tenant, cost, number)
            };
            for tenant in 0..tenants {
                for _ in 0..3 {
                    push(&mut turns, &mut costs, &mut chance, tenant);
                }
            }
            for _ in 0..400 {
                match chance.below(4) {
                    0 => rows.push(push(&mut turns, &mut costs, &mut chance, 100)),
                    1 if !rows.is_empty() => turns.remove(rows.swap_remove(chance.below(rows.len() as u32) as usize)),
                    _ => {
                        let ticket = turns.serve().unwrap();
                        let (tenant, cost) = costs[&ticket];
                        if tenant == 100 {
                            // Its rows may be another's by then.
                            rows.clear();
                            continue;
                        }
                        rows.clear();
                        served[tenant as usize] += cost;
                        push(&mut turns, &mut costs, &mut chance, tenant);
                        let gap = served.iter().max().unwrap() - served.iter().min().unwrap();
                        prop_assert!(gap <= u64::from(largest) + QUANTUM, "{served:?} {largest}");
                    }
                }
            }
        }
    }
}
