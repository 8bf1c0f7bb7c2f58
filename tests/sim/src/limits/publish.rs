//! Limits change, and cores learn of it one after the other.

use std::rc::Rc;

use llmgw_router::limiter::ToOwner;
use llmgw_router::quota::{Amounts, Measure};

use super::ledger::Late;
use super::shape::Limits;
use super::world::World;
use crate::fired::Trouble;

impl World {
    pub(super) fn publish(&mut self) {
        let what = self.shape.change(&mut self.chance);
        self.newest = Rc::new(self.shape.limits());
        self.fired.count(what);
        let generation = self.newest.table.generation();
        self.log(|| format!("limits {generation} are published: {what:?}"));
    }

    /// While an ask waits at an owner for slices to come back: a limit is lowered into what is held of it, so that the
    /// ask needs others back as well. Answer: whether there was one to lower.
    pub(super) fn tighten(&mut self, owner: usize) -> bool {
        let now = self.now();
        let row = self.chance.below(self.shape.levels.len() as u32);
        let measure = Measure::ALL[self.chance.below(4) as usize];
        let Some(limit) = self.shape.levels[row as usize].limits[measure as usize] else { return false };
        if self.owner_of(self.shape.org_of_level(row).into()) != owner {
            return false;
        }
        let (counted, held) = self.owners[owner].at_level(row, now);
        let (counted, held) = (counted[measure as usize], held[measure as usize]);
        let to = counted + 1 + i64::from(self.chance.below(u32::try_from(held).unwrap_or(0).max(1)));
        if held == 0 || to >= limit {
            return false;
        }
        self.shape.lower(row, measure, to);
        self.newest = Rc::new(self.shape.limits());
        self.fired.count(Trouble::LimitLowered);
        let generation = self.newest.table.generation();
        self.log(|| format!("limits {generation} are published: {measure:?} of level {row} lowered to {to}"));
        self.adopt(owner);
        true
    }

    pub(super) fn adopt(&mut self, core: usize) {
        let (limits, now) = (self.newest.clone(), self.now());
        let before = std::mem::replace(&mut self.tables[core], limits.clone());
        let chains = 0..limits.table.chain_count() as u32;
        if chains.clone().any(|chain| self.homes[core].in_hand(chain).0 != Amounts::default()) {
            self.fired.count(Trouble::SwappedWithLease);
        }
        for row in 0..self.shape.levels.len() as u32 {
            if self.owner_of(self.shape.org_of_level(row).into()) == core {
                self.owner_learns(row, &before, &limits);
            }
        }
        let mut out = Vec::new();
        self.homes[core].keep_to(&limits.table, |org, message| super::requests::keep(&mut out, org, message));
        for chain in chains {
            let (left, _) = self.homes[core].in_hand(chain);
            if limits.table.chain(chain).is_none() && !left.is_zero() {
                self.breaks(format!("core {core} holds {left:?} of chain {chain}, which is revoked"));
            }
        }
        self.send_up(core, out);
        let mut down = Vec::new();
        self.owners[core].keep_to(&limits.table, now, |home, message| down.push((home, message)));
        self.send_down(core, down);
        self.log(|| format!("core {core} takes limits {}", limits.table.generation()));
    }

    /// A level's owner takes other limits of it.
    fn owner_learns(&mut self, row: u32, before: &Limits, after: &Limits) {
        let budget = Measure::Budget as usize;
        if before.table.level(row).is_none() && after.table.level(row).is_some() {
            self.fresh.insert(row);
        }
        if before.since[row as usize][budget] != after.since[row as usize][budget] {
            // What is on its way to this owner is counted by the budget that came.
            let late = self.unheard_units(row);
            self.ledger.late.insert(row, late);
        }
    }

    /// What was spent at a level and its owner does not know of.
    fn unheard_units(&self, row: u32) -> Vec<Late> {
        let mut late = Vec::new();
        let owner = self.owner_of(self.shape.org_of_level(row).into());
        for message in self.up.iter().flat_map(|lanes| &lanes[owner]) {
            if let ToOwner::Report(report) = &message.what
                && self.shape.rows(report.chain).has(row)
            {
                late.push(Late { second: Some(report.second), units: report.used_units });
            }
        }
        let chains = (0..self.newest.table.chain_count() as u32).filter(|chain| self.shape.rows(*chain).has(row));
        for chain in chains {
            let used = self.homes.iter().map(|home| home.in_hand(chain).1.units);
            late.extend(used.map(|units| Late { second: None, units }));
        }
        late
    }

    pub(super) fn tick(&mut self, core: usize) {
        let now = self.now();
        self.ticked[core] = now.tick;
        let limits = self.tables[core].clone();
        let mut out = Vec::new();
        self.homes[core].tick(&limits.table, now, |org, message| super::requests::keep(&mut out, org, message));
        self.send_up(core, out);
        self.owners[core].tick(now);
    }
}
