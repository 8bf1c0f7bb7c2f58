//! What a world of tenants is like, drawn from its seed. Numbers are small on purpose: faults live at the last place.

use llmgw_kit::chance::Chance;
use llmgw_router::quota::chain::BudgetTerms;
use llmgw_router::quota::{Calendar, Level, LevelList, LimitTable, Measure, Scope};
use llmgw_tenancy::Period;
use llmgw_tenancy::calendar;

/// Where and when calendars do something: clocks that change, months of different lengths, a zone far east.
const EDGES: &[(&str, Period, i64)] = &[
    // 2026-03-29 and 2026-10-25, local midnights around both; unix seconds.
    ("Europe/Berlin", Period::Day, 1_774_652_400),
    ("Europe/Berlin", Period::Day, 1_792_792_800),
    ("Asia/Tokyo", Period::Day, 1_774_652_400),
    // From the 31st of January on.
    ("Europe/Berlin", Period::Month, 1_769_814_000),
    ("Asia/Tokyo", Period::Month, 1_769_814_000),
    ("UTC", Period::Day, 1_772_150_400),
];
/// Periods that a calendar knows.
const PERIODS: usize = 40;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cores: usize,
    pub(crate) orgs: u32,
    pub(crate) keys: u32,
    pub(crate) tokens_max: u32,
    /// In a thousand requests: those that use more than they reserved.
    pub(crate) excess: u32,
    /// In a thousand steps.
    pub(crate) publications: u32,
    pub(crate) wall_steps: u32,
    pub(crate) stands: u32,
    pub(crate) jumps: u32,
    /// One step in so many lets time pass.
    pub(crate) hurry: u32,
    /// How much a delivery is preferred to an arrival, in a thousand.
    pub(crate) delivers: u32,
    pub(crate) lane_capacity: usize,
    /// Whether limits are few and large, so that most is lent out.
    pub(crate) lends: bool,
    /// Unix seconds.
    pub(crate) wall: i64,
    pub(crate) calendars: Vec<Calendar>,
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let orgs = 1 + chance.below(2);
        let first = EDGES[chance.below(EDGES.len() as u32) as usize];
        let other = EDGES[chance.below(EDGES.len() as u32) as usize];
        // Both by the first's time, so that their edges fall together or near.
        let calendars: Vec<Calendar> = [first, (other.0, other.1, first.2)]
            .iter()
            .map(|(zone, period, from)| Calendar {
                edges: calendar::edges(zone, *period, *from, PERIODS).unwrap_or_default(),
            })
            .collect();
        let edge = calendars[0].edges.get(1 + chance.below(3) as usize).copied().unwrap_or(1_774_652_400);
        let lends = chance.below(3) == 0;
        Self {
            cores: if lends { 2 } else { 1 } + chance.below(3) as usize,
            orgs,
            keys: orgs + chance.below(4),
            tokens_max: 1 + chance.below(if lends { 3 } else { 30 }),
            lends,
            excess: [0, 0, 50, 300][chance.below(4) as usize],
            publications: [0, 0, 3, 20][chance.below(4) as usize],
            wall_steps: [0, 0, 3][chance.below(3) as usize],
            stands: [0, 5, 30][chance.below(3) as usize],
            jumps: [0, 1, 4][chance.below(3) as usize],
            hurry: 3 + chance.below(40),
            delivers: 200 + chance.below(700),
            lane_capacity: [3, 64, 1000][chance.below(3) as usize],
            wall: i64::from(edge) - i64::from(chance.below(90)),
            calendars,
        }
    }
}

/// The limits of a world, as they are changed and published. Levels: of each organisation its own and one team's, of
/// each key its own and one for a model. Chains: of each key one for all models, and one for that model.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) generation: u64,
    pub(crate) levels: Vec<Option<Level>>,
    pub(crate) versions: Vec<u32>,
    pub(crate) is_revoked: Vec<bool>,
    pub(crate) calendars: Vec<Calendar>,
    pub(crate) orgs: u32,
}

impl Shape {
    pub(crate) fn draw(plan: &Plan, chance: &mut Chance) -> Self {
        let mut levels = Vec::new();
        for _ in 0..plan.orgs {
            levels.push(Some(level(Scope::Org, false, plan.lends, chance)));
            levels.push(Some(level(Scope::Team, false, plan.lends, chance)));
        }
        for _ in 0..plan.keys {
            levels.push(Some(level(Scope::Key, false, plan.lends, chance)));
            levels.push(Some(level(Scope::Key, true, plan.lends, chance)));
        }
        let chains = 2 * plan.keys as usize;
        let is_revoked = vec![false; plan.keys as usize];
        let calendars = plan.calendars.clone();
        Self { generation: 1, levels, versions: vec![1; chains], is_revoked, calendars, orgs: plan.orgs }
    }

    pub(crate) fn org_of(&self, key: u32) -> u32 {
        key % self.orgs
    }

    /// The rows of a chain's levels.
    pub(crate) fn rows(&self, chain: u32) -> LevelList {
        let key = chain / 2;
        let own = 2 * self.orgs + 2 * key;
        let org = 2 * self.org_of(key);
        let of_model = (chain % 2 == 1).then_some(own + 1);
        [Some(own), of_model, Some(org + 1), Some(org)].into_iter().flatten().collect()
    }

    pub(crate) fn table(&self) -> LimitTable {
        let chains = (0..self.versions.len() as u32).map(|chain| {
            let key = chain / 2;
            let org = u64::from(self.org_of(key));
            (!self.is_revoked[key as usize]).then(|| (self.rows(chain), org, self.versions[chain as usize]))
        });
        LimitTable::new(self.generation, self.levels.clone(), chains.collect(), self.calendars.clone())
    }

    /// Changes something. Answer: the rows whose refunds, or whose very counting, may be off for a while.
    pub(crate) fn change(&mut self, chance: &mut Chance) -> Vec<u32> {
        self.generation += 1;
        let chains: Vec<u32> = if chance.below(3) == 0 {
            let key = chance.below(self.is_revoked.len() as u32);
            let revoked = &mut self.is_revoked[key as usize];
            *revoked = !*revoked;
            vec![2 * key, 2 * key + 1]
        } else {
            let row = chance.below(self.levels.len() as u32);
            if let Some(level) = &mut self.levels[row as usize] {
                let measure = Measure::ALL[chance.below(4) as usize];
                let known = level.limit(measure);
                let is_there = known.is_some() != (chance.below(6) == 0);
                level.limits[measure as usize] = is_there.then(|| limit(measure, chance));
                if known.is_none()
                    && let Some(budget) = level.budget.as_mut().filter(|_| measure == Measure::Budget)
                {
                    budget.epoch += 1;
                }
            }
            (0..self.versions.len() as u32).filter(|chain| self.rows(*chain).has(row)).collect()
        };
        let mut rows: Vec<u32> = chains.iter().flat_map(|chain| self.rows(*chain).iter().collect::<Vec<_>>()).collect();
        chains.iter().for_each(|chain| self.versions[*chain as usize] += 1);
        rows.sort_unstable();
        rows.dedup();
        rows
    }
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
