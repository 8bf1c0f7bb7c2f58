//! Requests of a world of tenants: they arrive, leave, and end in one of several ways.

use llmgw_kit::chance::Chance;
use llmgw_router::limiter::message::Want;
use llmgw_router::limiter::{Reservation, Reserved, ToOwner, Truth};
use llmgw_router::quota::{Amounts, Chain, Measure};

use super::check;
use super::ledger::{Excess, Late};
use super::world::{Lane, World};
use crate::fired::Trouble;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running(Reservation),
    Over,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) home: usize,
    pub(super) chain: u32,
    pub(super) ask: Amounts,
    pub(super) state: State,
    pub(super) number: u64,
    /// Its client left while it waited.
    pub(super) is_gone: bool,
}

impl World {
    pub(super) fn arrive(&mut self, core: usize) {
        let chain = self.chance.below(2 * self.plan.keys);
        if self.shape.is_revoked[chain as usize / 2] && self.chance.below(8) > 0 {
            return;
        }
        let tokens = 1 + self.chance.below(self.plan.tokens_max);
        let units = if self.chance.below(5) == 0 { 0 } else { i64::from(tokens) * i64::from(1 + self.chance.below(3)) };
        let ask = Amounts::of_request(tokens.into(), units);
        let (limits, now, at) = (self.tables[core].clone(), self.now(), self.requests.len());
        let (capacity, cores) = (self.plan.lane_capacity, self.plan.cores);
        let lanes: Vec<usize> = self.up[core].iter().map(Lane::len).collect();
        let is_full = |org: u64| lanes[org as usize % cores] >= capacity;
        let mut out = Vec::new();
        let reserved = self.homes[core].reserve(&limits.table, chain, ask, now, |org, message| {
            if is_full(org) && matches!(message, ToOwner::Reserve(_)) {
                return false;
            }
            out.push((org, message));
            true
        });
        self.log(|| format!("request {at} of chain {chain} at core {core}: {ask:?}: {reserved:?}, says {out:?}"));
        let mut number = 0;
        let state = match reserved {
            Reserved::Go(it, _) => {
                self.fired.count(Trouble::FromLease);
                if limits.table.chain(chain).is_none_or(|chain| chain.version != it.version) {
                    self.breaks(format!("request {at} is admitted by limits that are not its core's any more"));
                }
                let generation = self.shape.generation_of(chain, it.version);
                self.ledger.admits(at, it, self.shape.rows(chain), generation);
                self.running.push(at);
                State::Running(it)
            }
            Reserved::Wait(of) => {
                number = of;
                if !self.numbers.insert((core, number)) {
                    // Whoever asked before may not have had its turn to take its answer.
                    self.breaks(format!("request {at} asks under a number that another had: {number}"));
                }
                self.asked.insert((core, number), at);
                let measures = limits.table.chain(chain).map(Chain::measures).unwrap_or_default();
                self.masks.insert(at, measures);
                self.waiting.push(at);
                State::Waiting
            }
            Reserved::Overloaded => {
                self.fired.count(Trouble::LaneFull);
                if !is_full(self.shape.org_of(chain / 2).into()) {
                    self.breaks(format!("request {at} is refused as overloaded, and the lane has room"));
                }
                State::Over
            }
            Reserved::Refused(refused) => {
                self.fired.count(Trouble::RefusedHere);
                check::refused_here(self, core, chain, ask, refused);
                State::Over
            }
            Reserved::Free => State::Over,
        };
        self.requests.push(Request { home: core, chain, ask, state, number, is_gone: false });
        self.send_up(core, out);
    }

    /// A running request of that core ends in one of several ways.
    pub(super) fn finish(&mut self, core: usize) {
        let here: Vec<usize> = self.running.iter().copied().filter(|at| self.requests[*at].home == core).collect();
        if !here.is_empty() {
            let at = here[self.chance.below(here.len() as u32) as usize];
            self.finish_one(at);
        }
    }

    pub(super) fn finish_one(&mut self, at: usize) {
        let State::Running(it) = self.requests[at].state else { return };
        let (core, now) = (self.requests[at].home, self.now());
        let truth = self.ending(self.requests[at].ask);
        if self.shape.is_revoked[it.chain as usize / 2] {
            self.fired.count(Trouble::RevokedRunning);
        }
        let mut out = Vec::new();
        self.homes[core].end(it, truth, now, |org, message| keep(&mut out, org, message));
        self.log(|| format!("request {at} ends: {truth:?}, says {out:?}"));
        let tokens = truth.tokens - it.ask.tokens;
        let is_told = out.iter().any(|(_, message)| matches!(message, ToOwner::Settle(settle) if settle.tokens < 0));
        if truth.ran && it.ask.tokens > 0 && tokens > 0 && !is_told {
            // From the lease, in this tick.
            let generation = Some(self.shape.generation_of(it.chain, it.version));
            self.ledger.excess.push(Excess { levels: self.shape.rows(it.chain), tick: now.tick, tokens, generation });
        }
        self.over(at, truth.ran, truth.tokens, truth.units);
        self.requests[at].state = State::Over;
        self.running.retain(|running| *running != at);
        self.send_up(core, out);
    }

    fn ending(&mut self, ask: Amounts) -> Truth {
        let part = |chance: &mut Chance, most: i64| i64::from(chance.below(most as u32 + 1));
        match self.chance.below(10) {
            // An engine that never answered: nothing is counted.
            0 => {
                self.fired.count(Trouble::NeverRan);
                Truth::default()
            }
            1..=3 => {
                self.fired.count(Trouble::LeftRunning);
                let (tokens, units) = (part(&mut self.chance, ask.tokens), part(&mut self.chance, ask.units));
                Truth { ran: true, tokens, units }
            }
            _ if self.chance_of(self.plan.excess) => {
                self.fired.count(Trouble::MoreThanReserved);
                let more = 1 + i64::from(self.chance.below(10));
                Truth { ran: true, tokens: ask.tokens + more, units: if ask.units == 0 { 0 } else { ask.units + more } }
            }
            _ => {
                self.fired.count(Trouble::Finished);
                Truth { ran: true, tokens: part(&mut self.chance, ask.tokens), units: ask.units }
            }
        }
    }

    /// A request is over, with so much used in truth.
    pub(super) fn over(&mut self, at: usize, ran: bool, tokens: i64, units: i64) {
        let Some(entry) = self.ledger.ends(at, ran, tokens).filter(|entry| entry.it.measures.has(Measure::Budget))
        else {
            return;
        };
        if !ran {
            return;
        }
        for row in entry.levels.iter() {
            let second = entry.it.second;
            self.ledger.spends(&entry, row, self.shape.period(row, second).start, units);
            let owner = self.owner_of(self.shape.org_of_level(row).into());
            if entry.generation < self.tables[owner].since[row as usize][Measure::Budget as usize] {
                self.ledger.late.entry(row).or_default().push(Late { second: Some(second), units });
            }
        }
    }

    pub(super) fn leave(&mut self, core: usize) {
        let is_here = |at: &usize| self.requests[*at].home == core && !self.requests[*at].is_gone;
        let here: Vec<usize> = self.waiting.iter().copied().filter(is_here).collect();
        if here.is_empty() {
            return;
        }
        let at = here[self.chance.below(here.len() as u32) as usize];
        self.requests[at].is_gone = true;
        self.homes[core].leave(self.requests[at].number);
        self.fired.count(Trouble::LeftQueue);
    }
}

/// Takes what must not be lost.
pub(super) fn keep(out: &mut Vec<(u64, ToOwner)>, org: u64, message: ToOwner) -> bool {
    // Questions that find no room are tried where requests arrive; refills always find some here.
    debug_assert!(!matches!(message, ToOwner::Reserve(asked) if asked.what == Want::Use));
    out.push((org, message));
    true
}
