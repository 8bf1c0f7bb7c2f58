//! The levels that a request has to pass: its key, project, team and organisation, each for all models and for its own.

use super::{Amounts, Measure, Measures};

/// Levels of a chain: four scopes, each for all models and for one.
pub const LEVELS_MAX: usize = 8;

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Key,
    Project,
    Team,
    Org,
}

impl Scope {
    /// The word in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Project => "project",
            Self::Team => "team",
            Self::Org => "organization",
        }
    }
}

/// One level's limits. `None` is no limit; 0 is none at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub scope: Scope,
    /// Whether it is for one model.
    pub of_model: bool,
    /// By measure.
    pub limits: [Option<i64>; 4],
    /// How its budget runs; there where it has one.
    pub budget: Option<BudgetTerms>,
}

/// How a budget runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetTerms {
    /// Row of its calendar.
    pub calendar: u32,
    /// Another number for each budget that this level is given: what was counted for one is not for the next.
    pub epoch: u32,
    /// Spent already when the table got this budget, in the period of that second.
    pub spent: i64,
    /// Units: unix seconds.
    pub spent_at: u32,
}

impl Level {
    pub const fn limit(&self, measure: Measure) -> Option<i64> {
        self.limits[measure as usize]
    }
}

/// Rows of levels, in the order key, project, team, organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelList([u32; LEVELS_MAX]);

const NONE: u32 = u32::MAX;

impl LevelList {
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied().take_while(|level| *level != NONE)
    }

    pub fn has(&self, level: u32) -> bool {
        level != NONE && self.0.contains(&level)
    }
}

impl Default for LevelList {
    fn default() -> Self {
        Self([NONE; LEVELS_MAX])
    }
}

impl FromIterator<u32> for LevelList {
    /// The first few, as many as a chain has.
    fn from_iter<I: IntoIterator<Item = u32>>(levels: I) -> Self {
        let mut list = Self::default();
        list.0.iter_mut().zip(levels).for_each(|(to, level)| *to = level);
        list
    }
}

/// All levels that requests of one key pass, to one model or to those without limits of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub levels: LevelList,
    /// Hash of the organisation: who owns what is counted.
    pub org: u64,
    /// A later number whenever a limit or a level of it changed.
    pub version: u32,
    /// The version since which the same windows at the same levels count it, whatever their limits: what was charged by
    /// any version from that one on is counted where it would be by this one.
    pub counts_since: u32,
    /// What any level limits.
    pub(crate) measures: Measures,
    /// The least limit of all levels, by measure; nothing where none limits it.
    pub(crate) tightest: [i64; 4],
}

impl Chain {
    /// What any of its levels limits.
    pub fn measures(&self) -> Measures {
        self.measures
    }

    /// The least limit of all its levels.
    pub fn limit(&self, measure: Measure) -> Option<i64> {
        self.measures.has(measure).then(|| self.tightest[measure as usize])
    }

    /// Whether what was charged by that version stands where this one charges. Both are counts that may run over.
    pub(crate) fn counts_as(&self, version: u32) -> bool {
        (version.wrapping_sub(self.counts_since) as i32) >= 0
    }

    /// What is asked for and can never be had: more than the whole limit.
    pub(crate) fn lacks_for_good(&self, ask: &Amounts) -> Option<Measure> {
        self.measures.iter().find(|measure| {
            let asked = ask.of(*measure);
            asked > 0 && self.limit(*measure).is_some_and(|limit| asked > limit)
        })
    }
}
