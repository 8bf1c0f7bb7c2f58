//! The limits of a world, as they are changed and published.
//!
//! Levels: of each organisation its own and one team's, of each key its own and one for a model. Chains: of each key
//! one for all models, and one for that model.

use std::collections::BTreeMap;

use llmgw_kit::chance::Chance;
use llmgw_router::quota::chain::BudgetTerms;
use llmgw_router::quota::table::ChainRow;
use llmgw_router::quota::{Calendar, Level, LevelList, LimitTable, Measure, Period, Scope};

use super::plan::Plan;
use crate::fired::Trouble;

/// What a core has at the moment: the table, and of each level since which generation each of its limits is there.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) table: LimitTable,
    pub(super) since: Vec<[u64; 4]>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    generation: u64,
    /// A level without any limit is not in the table.
    pub(super) levels: Vec<Level>,
    since: Vec<[u64; 4]>,
    versions: Vec<u32>,
    /// Of each chain the version since which the same windows count it.
    counts_since: Vec<u32>,
    /// When each version of each chain came.
    came: BTreeMap<(u32, u32), u64>,
    pub(super) is_revoked: Vec<bool>,
    calendars: Vec<Calendar>,
    pub(super) orgs: u32,
}

impl Shape {
    pub(super) fn draw(plan: &Plan, chance: &mut Chance) -> Self {
        let mut levels = Vec::new();
        for _ in 0..plan.orgs {
            levels.push(level(Scope::Org, false, plan.lends, chance));
            levels.push(level(Scope::Team, false, plan.lends, chance));
        }
        for _ in 0..plan.keys {
            levels.push(level(Scope::Key, false, plan.lends, chance));
            levels.push(level(Scope::Key, true, plan.lends, chance));
        }
        let chains = 2 * plan.keys;
        Self {
            generation: 1,
            since: vec![[1; 4]; levels.len()],
            levels,
            versions: vec![1; chains as usize],
            counts_since: vec![1; chains as usize],
            came: (0..chains).map(|chain| ((chain, 1), 1)).collect(),
            is_revoked: vec![false; plan.keys as usize],
            calendars: plan.calendars.clone(),
            orgs: plan.orgs,
        }
    }

    pub(super) fn org_of(&self, key: u32) -> u32 {
        key % self.orgs
    }

    /// The organisation that a level is in.
    pub(super) fn org_of_level(&self, row: u32) -> u32 {
        if row < 2 * self.orgs { row / 2 } else { self.org_of((row - 2 * self.orgs) / 2) }
    }

    /// The rows of a chain's levels.
    pub(super) fn rows(&self, chain: u32) -> LevelList {
        let key = chain / 2;
        let own = 2 * self.orgs + 2 * key;
        let org = 2 * self.org_of(key);
        let of_model = (chain % 2 == 1).then_some(own + 1);
        [Some(own), of_model, Some(org + 1), Some(org)].into_iter().flatten().collect()
    }

    /// The generation in which that version of a chain came.
    pub(super) fn generation_of(&self, chain: u32, version: u32) -> u64 {
        self.came.get(&(chain, version)).copied().unwrap_or(0)
    }

    /// The calendar of a level's budget, whether or not it has one.
    pub(super) fn calendar_of(&self, row: u32) -> usize {
        self.levels[row as usize].budget.map_or(0, |budget| budget.calendar as usize)
    }

    /// The period of a level's budget that a second is in.
    pub(super) fn period(&self, row: u32, second: u32) -> Period {
        self.calendars[self.calendar_of(row)].at(second)
    }

    pub(super) fn limits(&self) -> Limits {
        let chains = (0..self.versions.len() as u32).map(|chain| {
            let (key, at) = ((chain / 2) as usize, chain as usize);
            let (version, counts_since) = (self.versions[at], self.counts_since[at]);
            let org = u64::from(self.org_of(chain / 2));
            (!self.is_revoked[key]).then(|| ChainRow { levels: self.rows(chain), org, version, counts_since })
        });
        let levels = self.levels.iter().map(|level| is_there(level).then(|| level.clone())).collect();
        let table = LimitTable::new(self.generation, levels, chains.collect(), self.calendars.clone());
        Limits { table, since: self.since.clone() }
    }

    /// Changes something. Answer: what that was.
    pub(super) fn change(&mut self, chance: &mut Chance) -> Trouble {
        self.generation += 1;
        if chance.below(3) == 0 {
            let key = chance.below(self.is_revoked.len() as u32);
            let revoked = &mut self.is_revoked[key as usize];
            *revoked = !*revoked;
            let what = if *revoked { Trouble::KeyRevoked } else { Trouble::KeyBack };
            self.renew(2 * key, true);
            self.renew(2 * key + 1, true);
            return what;
        }
        let row = chance.below(self.levels.len() as u32);
        let before = self.levels[row as usize].clone();
        let what = self.change_level(row, chance);
        self.changed(row, &before);
        what
    }

    /// A limit that is there is lowered to that.
    pub(super) fn lower(&mut self, row: u32, measure: Measure, to: i64) {
        self.generation += 1;
        let before = self.levels[row as usize].clone();
        self.set(row, measure, Some(to));
        self.changed(row, &before);
    }

    /// A level is another than before.
    fn changed(&mut self, row: u32, before: &Level) {
        let windows = |level: &Level| [Measure::Requests, Measure::Tokens].map(|of| level.limit(of).is_some());
        let after = &self.levels[row as usize];
        let is_other = windows(before) != windows(after) || is_there(before) != is_there(after);
        let chains = (0..self.versions.len() as u32).filter(|chain| self.rows(*chain).has(row));
        chains.collect::<Vec<_>>().into_iter().for_each(|chain| self.renew(chain, is_other));
    }

    fn change_level(&mut self, row: u32, chance: &mut Chance) -> Trouble {
        let before = self.levels[row as usize].limits;
        if chance.below(8) == 0 {
            // All of it goes, or comes with one limit.
            let is_gone = before.iter().all(Option::is_none);
            Measure::ALL.iter().for_each(|measure| self.set(row, *measure, None));
            if is_gone {
                let measure = Measure::ALL[chance.below(4) as usize];
                self.set(row, measure, Some(limit(measure, chance)));
                return Trouble::LevelCame;
            }
            return Trouble::LevelWent;
        }
        let measure = Measure::ALL[chance.below(4) as usize];
        let known = before[measure as usize];
        let is_there = known.is_some() != (chance.below(6) == 0);
        let to = is_there.then(|| limit(measure, chance));
        self.set(row, measure, to);
        match (known, to) {
            (None, _) => Trouble::LimitCame,
            (Some(_), None) => Trouble::LimitWent,
            (Some(from), Some(to)) if to < from => Trouble::LimitLowered,
            _ => Trouble::LimitRaised,
        }
    }

    fn set(&mut self, row: u32, measure: Measure, to: Option<i64>) {
        let level = &mut self.levels[row as usize];
        let known = std::mem::replace(&mut level.limits[measure as usize], to);
        if known.is_none() && to.is_some() {
            self.since[row as usize][measure as usize] = self.generation;
            if let Some(budget) = level.budget.as_mut().filter(|_| measure == Measure::Budget) {
                budget.epoch += 1;
            }
        }
    }

    /// Another version of a chain; of other windows, or of the same.
    fn renew(&mut self, chain: u32, is_counted_elsewhere: bool) {
        let at = chain as usize;
        self.versions[at] += 1;
        self.came.insert((chain, self.versions[at]), self.generation);
        if is_counted_elsewhere {
            self.counts_since[at] = self.versions[at];
        }
    }
}

fn is_there(level: &Level) -> bool {
    level.limits.iter().any(Option::is_some)
}

fn level(scope: Scope, of_model: bool, lends: bool, chance: &mut Chance) -> Level {
    let limits = Measure::ALL.map(|measure| {
        if lends {
            let is_there = scope == Scope::Org && measure == Measure::Requests || chance.below(12) == 0;
            return is_there.then(|| large(measure, chance));
        }
        (chance.below(5) < 2).then(|| limit(measure, chance))
    });
    let budget = BudgetTerms { calendar: chance.below(2), epoch: 0, spent: 0, spent_at: 0 };
    Level { scope, of_model, limits, budget: Some(budget) }
}

/// Small ones are asked for each time, large ones are lent out.
fn limit(measure: Measure, chance: &mut Chance) -> i64 {
    let size = match chance.below(6) {
        0 => chance.below(4),
        1 | 2 => 3 + chance.below(20),
        _ => return large(measure, chance),
    };
    sized(measure, size)
}

fn large(measure: Measure, chance: &mut Chance) -> i64 {
    sized(measure, 60 + chance.below(400))
}

fn sized(measure: Measure, size: u32) -> i64 {
    i64::from(match measure {
        Measure::Requests => size,
        Measure::Tokens => size * 8,
        Measure::Parallel => size.div_ceil(8),
        Measure::Budget => size * 20,
    })
}
