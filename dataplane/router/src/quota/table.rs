//! All limits, as cores get them: one immutable table, built off the cores and replaced whole.
//!
//! Invariant: a row's number is its level's, its chain's or its calendar's for the life of the process; what is gone
//! leaves a hole. So counters, leases and messages name rows, whatever table a core has at the moment.

use super::chain::{Chain, Level, LevelList};
use super::{Measure, Measures};

/// A span of time. Units: unix seconds, the end not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub start: u32,
    pub end: u32,
}

impl Period {
    /// All of time.
    pub const ALWAYS: Self = Self { start: 0, end: u32::MAX };

    pub const fn has(&self, second: u32) -> bool {
        self.start <= second && second < self.end
    }

    /// What both have in common.
    fn within(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

/// When periods of one kind begin in one time zone. Past the last edge, its period goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    /// Rising. Units: unix seconds.
    pub edges: Vec<u32>,
}

impl Calendar {
    /// The period that a second is in. Cost: a binary search.
    pub fn at(&self, second: u32) -> Period {
        let after = self.edges.partition_point(|edge| *edge <= second);
        let start = after.checked_sub(1).and_then(|at| self.edges.get(at)).copied().unwrap_or(0);
        Period { start, end: self.edges.get(after).copied().unwrap_or(u32::MAX) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct LimitTable {
    generation: u64,
    levels: Vec<Option<Level>>,
    chains: Vec<Option<Chain>>,
    calendars: Vec<Calendar>,
    /// By row of the table of keys.
    keys: Vec<KeyChains>,
}

/// The chains of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChains {
    /// For models without limits of their own.
    pub all: Option<u32>,
    /// By public name; few.
    pub of_models: Box<[(Box<str>, u32)]>,
}

/// What a chain is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainRow {
    pub levels: LevelList,
    /// Hash of the organisation.
    pub org: u64,
    pub version: u32,
    /// See [`Chain::counts_since`].
    pub counts_since: u32,
}

impl LimitTable {
    /// Puts a table together. Levels that a chain names and that are not there are left out of it; a chain without any
    /// is a hole.
    pub fn new(
        generation: u64,
        levels: Vec<Option<Level>>,
        chains: Vec<Option<ChainRow>>,
        calendars: Vec<Calendar>,
    ) -> Self {
        let level = |row: u32| levels.get(row as usize).and_then(Option::as_ref);
        let chain = |ChainRow { levels: list, org, version, counts_since }: ChainRow| {
            let list: LevelList = list.iter().filter(|row| level(*row).is_some()).collect();
            let (mut measures, mut tightest) = (Measures::default(), [0; 4]);
            for measure in Measure::ALL {
                let least = list.iter().filter_map(level).filter_map(|level| level.limit(measure)).min();
                if let Some(least) = least {
                    (tightest[measure as usize], measures) = (least, measures.with(measure));
                }
            }
            (!measures.is_empty()).then_some(Chain { levels: list, org, version, counts_since, measures, tightest })
        };
        let chains = chains.into_iter().map(|row| row.and_then(&chain)).collect();
        Self { generation, levels, chains, calendars, keys: Vec::new() }
    }

    /// The same with these chains of keys.
    #[must_use]
    pub fn with_keys(self, keys: Vec<KeyChains>) -> Self {
        Self { keys, ..self }
    }

    /// The number of the chain that requests of a key to a model pass; `None` where nothing limits them.
    pub fn chain_of(&self, key: u32, model: &str) -> Option<u32> {
        let chains = self.keys.get(key as usize)?;
        let own = chains.of_models.iter().find(|(name, _)| **name == *model);
        own.map(|(_, chain)| *chain).or(chains.all)
    }

    /// Rises with every table.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The chain of that number; `None` when nothing limits it.
    pub fn chain(&self, chain: u32) -> Option<&Chain> {
        self.chains.get(chain as usize)?.as_ref()
    }

    pub fn level(&self, level: u32) -> Option<&Level> {
        self.levels.get(level as usize)?.as_ref()
    }

    /// The levels of a chain, with their numbers.
    pub fn levels_of<'a>(&'a self, chain: &'a Chain) -> impl Iterator<Item = (u32, &'a Level)> {
        chain.levels.iter().filter_map(|row| Some((row, self.level(row)?)))
    }

    /// The period of a level's budget that a second is in.
    pub fn period(&self, level: &Level, second: u32) -> Period {
        let calendar = level.budget.and_then(|budget| self.calendars.get(budget.calendar as usize));
        calendar.map_or(Period::ALWAYS, |calendar| calendar.at(second))
    }

    /// The time around a second in which no budget of the chain changes its period.
    pub fn span(&self, chain: &Chain, second: u32) -> Period {
        let periods = self.levels_of(chain).map(|(_, level)| self.period(level, second));
        periods.fold(Period::ALWAYS, Period::within)
    }

    /// Where each level above a key is to be asked for: its row, a chain that it is in, and its position there.
    pub fn places_of(&self, key: u32) -> Vec<(u32, u32, u8)> {
        let mut places: Vec<(u32, u32, u8)> = Vec::new();
        let Some(chains) = self.keys.get(key as usize) else { return places };
        for number in chains.all.iter().chain(chains.of_models.iter().map(|(_, chain)| chain)) {
            let Some(chain) = self.chain(*number) else { continue };
            for (nth, row) in (0..).zip(chain.levels.iter()) {
                if places.iter().all(|(known, ..)| *known != row) {
                    places.push((row, *number, nth));
                }
            }
        }
        places
    }

    /// How many numbers of chains there are.
    pub fn chain_count(&self) -> usize {
        self.chains.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::{BudgetTerms, Scope};
    use super::*;

    fn level(limits: [Option<i64>; 4], calendar: Option<u32>) -> Option<Level> {
        let budget = calendar.map(|calendar| BudgetTerms { calendar, epoch: 0, spent: 0, spent_at: 0 });
        Some(Level { scope: Scope::Key, of_model: false, limits, budget })
    }

    fn chain(rows: &[u32]) -> Option<ChainRow> {
        Some(ChainRow { levels: rows.iter().copied().collect(), org: 1, version: 1, counts_since: 1 })
    }

    #[test]
    fn the_least_of_all_levels_holds_and_what_no_level_limits_is_free() {
        let levels = vec![
            level([Some(10), None, None, None], None),
            level([Some(5), Some(100), None, None], None),
            None,
            level([Some(7), None, Some(0), None], None),
        ];
        let chains = vec![chain(&[0, 1, 2, 3]), chain(&[2]), None];
        let table = LimitTable::new(3, levels, chains, Vec::new());
        let chain = table.chain(0).unwrap();
        assert_eq!(Measure::ALL.map(|measure| chain.limit(measure)), [Some(5), Some(100), Some(0), None]);
        assert_eq!(chain.levels.iter().collect::<Vec<_>>(), [0, 1, 3]);
        assert!(table.chain(1).is_none() && table.chain(2).is_none() && table.chain(9).is_none());
    }

    #[test]
    fn a_chain_s_time_ends_with_the_first_of_its_periods() {
        let calendars = vec![Calendar { edges: vec![100, 200, 300] }, Calendar { edges: vec![50, 150, 350] }];
        let budget = [None, None, None, Some(1)];
        let levels = vec![level(budget, Some(0)), level(budget, Some(1))];
        let chains = vec![chain(&[0, 1])];
        let table = LimitTable::new(1, levels, chains, calendars);
        let span = |second| table.span(table.chain(0).unwrap(), second);
        assert_eq!(span(120), Period { start: 100, end: 150 });
        assert_eq!(span(150), Period { start: 150, end: 200 });
        assert_eq!(span(20), Period { start: 0, end: 50 });
        assert_eq!(span(400), Period { start: 350, end: u32::MAX });
    }
}
