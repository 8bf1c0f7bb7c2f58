//! From the table of who may ask to the table of limits: which chains there are, what their numbers are, when budgets
//! begin anew and what was spent of them before.
//!
//! Kept by whoever publishes, off the cores, for the life of the process: numbers that were given stay. Asks for
//! calendars and for what was spent through [`Facts`]; does no I/O itself.

use std::collections::HashMap;

use llmgw_types::tenants::{ArchivedLevel, ArchivedLevelKind, ArchivedPeriod, ArchivedTenantTable};

use super::chain::{BudgetTerms, Level, LevelList, Scope};
use super::table::{Calendar, ChainRow, KeyChains, LimitTable};
use super::{AMOUNT_MAX, Measure};

/// What limits depend on that is in no table.
pub trait Facts {
    /// The beginnings of periods, from the one that holds this moment on. Units: unix seconds.
    fn edges(&mut self, zone: &str, period: ArchivedPeriod) -> Vec<u32>;
    /// What the requests below the level of that row, of its model if it is for one, have spent since. Units:
    /// millionths.
    fn spent(&mut self, row: u32, level: &ArchivedLevel, since: u32) -> i64;
    /// This moment. Units: unix seconds.
    fn now(&self) -> u32;
}

/// A budget as it was first seen.
#[derive(Clone, Debug)]
struct Known {
    calendar: u32,
    terms: BudgetTerms,
}

const NONE: u32 = u32::MAX;

/// Which windows count a chain, and since which version.
#[derive(Clone, Copy, Debug)]
struct Counted {
    levels: LevelList,
    /// Two bits a level, in the order of `levels`: a window of requests, one of tokens.
    windows: u16,
    since: u32,
}

impl Counted {
    fn by(list: &LevelList, levels: &[Option<Level>], version: u32) -> Self {
        let mut windows = 0;
        for (nth, row) in list.iter().enumerate() {
            let level = levels.get(row as usize).and_then(Option::as_ref);
            let has = |measure| level.is_some_and(|level| level.limit(measure).is_some());
            windows |= (u16::from(has(Measure::Requests)) | u16::from(has(Measure::Tokens)) << 1) << (2 * nth);
        }
        Self { levels: *list, windows, since: version }
    }

    /// The same, since then if nothing is counted elsewhere by now.
    fn after(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if (before.levels, before.windows) == (self.levels, self.windows) => before,
            _ => self,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// By key: its chain for all models, [`NONE`] where it had none so far.
    chains: Vec<u32>,
    /// By key and the level that makes a model a chain of its own.
    of_models: HashMap<(u32, u32), u32>,
    /// Numbers of chains that were given.
    chain_count: u32,
    /// By chain; none for one that is gone.
    counted: Vec<Option<Counted>>,
    /// By level.
    budgets: Vec<Option<Known>>,
    epochs: u32,
    calendars: Vec<(ArchivedPeriod, String)>,
}

impl Builder {
    /// Makes the table of limits that goes with a table of who may ask.
    pub fn build(&mut self, tenants: &ArchivedTenantTable, facts: &mut impl Facts) -> LimitTable {
        let rows = tenants.levels.iter();
        self.budgets.resize(tenants.levels.len().max(self.budgets.len()), None);
        let calendars = self.calendars(tenants, facts);
        let levels: Vec<_> = rows.zip(0..).map(|(level, row)| self.level(level, row, &calendars, facts)).collect();
        let mut counted: Vec<Option<Counted>> = vec![None; self.chain_count as usize];
        let mut chains: Vec<Option<ChainRow>> = vec![None; self.chain_count as usize];
        self.chains.resize(tenants.keys.len().max(self.chains.len()), NONE);
        let before = std::mem::take(&mut self.counted);
        let mut keys = Vec::with_capacity(tenants.keys.len());
        for (key, row) in tenants.keys.iter().zip(0u32..) {
            if key.is_revoked || key.levels.is_empty() {
                keys.push(KeyChains::default());
                continue;
            }
            let of_level = |level: u32| tenants.levels.get(level as usize);
            let own_levels = || key.levels.iter().map(|level| level.to_native());
            let model_of = |level: &u32| of_level(*level).and_then(|level| level.model.as_ref());
            let first = own_levels().next().and_then(of_level);
            let org = first.map_or(0, |level| u64::from(level.organization.to_native()));
            let version = key.limits_version.to_native();
            let mut put = |number: u32, list: LevelList| {
                let at = number as usize;
                if chains.len() <= at {
                    chains.resize(at + 1, None);
                    counted.resize(at + 1, None);
                }
                let before = before.get(at).copied().flatten();
                let is_counted = Counted::by(&list, &levels, version).after(before);
                counted[at] = Some(is_counted);
                chains[at] = Some(ChainRow { levels: list, org, version, counts_since: is_counted.since });
                number
            };
            let for_all: LevelList = own_levels().filter(|level| model_of(level).is_none()).collect();
            let all = for_all.iter().next().is_some().then(|| put(self.number(row, None), for_all));
            let mut of_models: Vec<(Box<str>, u32)> = Vec::new();
            for level in own_levels() {
                let Some(model) = model_of(&level).map(|name| name.as_str()) else { continue };
                if of_models.iter().any(|(known, _)| **known == *model) {
                    continue;
                }
                let is_passed = |level: &u32| model_of(level).is_none_or(|of| of.as_str() == model);
                let number = put(self.number(row, Some(level)), own_levels().filter(is_passed).collect());
                of_models.push((model.into(), number));
            }
            keys.push(KeyChains { all, of_models: of_models.into() });
        }
        counted.shrink_to_fit();
        self.counted = counted;
        LimitTable::new(tenants.generation.to_native(), levels, chains, calendars).with_keys(keys)
    }

    fn number(&mut self, key: u32, level: Option<u32>) -> u32 {
        let number = match level {
            Some(level) => self.of_models.entry((key, level)).or_insert(NONE),
            // There is one for each key.
            None => &mut self.chains[key as usize],
        };
        if *number == NONE {
            *number = self.chain_count;
            self.chain_count += 1;
        }
        *number
    }

    /// All calendars that any budget has followed so far, as they run from now on.
    fn calendars(&mut self, tenants: &ArchivedTenantTable, facts: &mut impl Facts) -> Vec<Calendar> {
        for budget in tenants.levels.iter().filter_map(|level| level.limits.budget.as_ref()) {
            if self.calendar(budget.period, &budget.time_zone).is_none() {
                self.calendars.push((budget.period, budget.time_zone.as_str().to_owned()));
            }
        }
        self.calendars.iter().map(|(period, zone)| Calendar { edges: facts.edges(zone, *period) }).collect()
    }

    fn calendar(&self, period: ArchivedPeriod, zone: &str) -> Option<u32> {
        let at = self.calendars.iter().position(|known| known.0 == period && known.1 == zone)?;
        u32::try_from(at).ok()
    }

    fn level(
        &mut self,
        level: &ArchivedLevel,
        row: u32,
        calendars: &[Calendar],
        facts: &mut impl Facts,
    ) -> Option<Level> {
        let amount = |limit: u64| i64::try_from(limit).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX);
        let of = &level.limits;
        let mut limits = [None; 4];
        limits[Measure::Requests as usize] = of.rpm.as_ref().map(|limit| amount(limit.to_native()));
        limits[Measure::Tokens as usize] = of.tpm.as_ref().map(|limit| amount(limit.to_native()));
        limits[Measure::Parallel as usize] = of.parallel.as_ref().map(|limit| amount(limit.to_native()));
        let known = self.budgets.get(row as usize).cloned().flatten();
        let budget = level.limits.budget.as_ref().and_then(|budget| {
            limits[Measure::Budget as usize] = Some(amount(budget.micros.to_native()));
            let calendar = self.calendar(budget.period, &budget.time_zone)?;
            if let Some(known) = known.filter(|known| known.calendar == calendar) {
                return Some(known);
            }
            // A budget that was not there, or ran by another calendar: what counts for it is on record.
            let spent_at = facts.now();
            let since = calendars.get(calendar as usize).map_or(0, |calendar| calendar.at(spent_at).start);
            self.epochs += 1;
            let terms = BudgetTerms { calendar, epoch: self.epochs, spent: facts.spent(row, level, since), spent_at };
            Some(Known { calendar, terms })
        });
        let terms = budget.as_ref().map(|budget| budget.terms);
        if let Some(place) = self.budgets.get_mut(row as usize) {
            *place = budget;
        }
        let has_any = limits.iter().any(Option::is_some);
        let scope = match level.kind {
            ArchivedLevelKind::Key => Scope::Key,
            ArchivedLevelKind::Project => Scope::Project,
            ArchivedLevelKind::Team => Scope::Team,
            ArchivedLevelKind::Organization => Scope::Org,
        };
        has_any.then_some(Level { scope, of_model: level.model.is_some(), limits, budget: terms })
    }
}

#[cfg(test)]
mod tests {
    use llmgw_types::tenants::{Budget, Key, Level, LevelKind, Limits, Period, Project, TenantSnapshot, TenantTable};

    use super::*;

    /// A calendar of three periods, and 70 spent wherever somebody asks.
    struct Fixed(u32);

    impl Facts for Fixed {
        fn edges(&mut self, _zone: &str, _period: ArchivedPeriod) -> Vec<u32> {
            vec![100, 200, 300]
        }
        fn spent(&mut self, _row: u32, _level: &ArchivedLevel, since: u32) -> i64 {
            self.0 += 1;
            i64::from(since)
        }
        fn now(&self) -> u32 {
            150
        }
    }

    fn level(kind: LevelKind, model: Option<&str>, rpm: Option<u64>, budget: Option<&str>) -> Level {
        let budget = budget.map(|zone| Budget { micros: 9, period: Period::Day, time_zone: zone.into() });
        let limits = Limits { rpm, budget, ..Limits::default() };
        Level { kind, scope_id: "x".into(), model: model.map(str::to_owned), organization: 3, limits }
    }

    fn key(levels: &[u32], limits_version: u32) -> Key {
        Key { levels: levels.to_vec(), limits_version, ..Key::plain("key-1") }
    }

    fn build(builder: &mut Builder, facts: &mut Fixed, keys: Vec<Key>, levels: Vec<Level>) -> LimitTable {
        let projects = vec![Project { id: "p".into(), path: "a/b/c".into(), organization: 3 }];
        let mut table = TenantTable::default();
        (table.generation, table.keys, table.projects, table.levels) = (1, keys, projects, levels);
        builder.build(TenantSnapshot::of(&table).expect("a table").table(), facts)
    }

    #[test]
    fn a_model_with_limits_of_its_own_has_a_chain_of_its_own_and_numbers_stay() {
        let (mut builder, mut facts) = (Builder::default(), Fixed(0));
        let levels = || {
            vec![
                level(LevelKind::Key, None, Some(9), None),
                level(LevelKind::Key, Some("big"), Some(3), None),
                level(LevelKind::Organization, None, Some(20), None),
            ]
        };
        let table = build(&mut builder, &mut facts, vec![key(&[0, 1, 2], 1), key(&[], 1)], levels());
        let (small, big) = (table.chain_of(0, "small").unwrap(), table.chain_of(0, "big").unwrap());
        let rows = |table: &LimitTable, chain| table.chain(chain).unwrap().levels.iter().collect::<Vec<_>>();
        assert_eq!((rows(&table, small), rows(&table, big)), (vec![0, 2], vec![0, 1, 2]));
        assert_eq!(table.chain(big).unwrap().org, 3);
        assert_eq!((table.chain_of(1, "big"), table.chain_of(7, "big")), (None, None));
        // Another key in front of others, and the limit for the model is gone.
        let table = build(&mut builder, &mut facts, vec![key(&[0, 2], 2), key(&[2], 1)], levels());
        assert_eq!(table.chain_of(0, "big"), Some(small));
        assert!(table.chain(big).is_none() && table.chain_of(1, "x").is_some_and(|chain| chain > big));
        assert_eq!(table.chain(small).unwrap().version, 2);
    }

    #[test]
    fn a_chain_counts_since_its_windows_changed_and_not_since_their_limits_did() {
        let (mut builder, mut facts) = (Builder::default(), Fixed(0));
        let mut since = |version: u32, is_revoked: bool, rpm: Option<u64>, org: Option<u64>| {
            let levels = vec![level(LevelKind::Key, None, rpm, None), level(LevelKind::Organization, None, org, None)];
            let key = Key { is_revoked, ..key(&[0, 1], version) };
            let table = build(&mut builder, &mut facts, vec![key], levels);
            table.chain_of(0, "m").and_then(|chain| table.chain(chain)).map(|chain| chain.counts_since)
        };
        assert_eq!(since(1, false, Some(9), Some(5)), Some(1));
        assert_eq!(since(2, false, Some(7), Some(50)), Some(1), "the same windows, other limits");
        assert_eq!(since(3, false, Some(7), None), Some(3));
        assert_eq!(since(4, false, Some(7), Some(5)), Some(4), "it was away in between");
        assert_eq!(since(5, true, Some(7), Some(5)), None);
        assert_eq!(since(6, false, Some(7), Some(5)), Some(6));
    }

    #[test]
    fn a_revoked_key_has_no_chain() {
        let (mut builder, mut facts) = (Builder::default(), Fixed(0));
        let levels = || vec![level(LevelKind::Key, None, Some(9), None)];
        let first = build(&mut builder, &mut facts, vec![key(&[0], 1)], levels()).chain_of(0, "m").unwrap();
        let revoked = Key { is_revoked: true, ..key(&[0], 2) };
        let table = build(&mut builder, &mut facts, vec![revoked], levels());
        assert!(table.chain(first).is_none() && table.chain_of(0, "m").is_none());
    }

    #[test]
    fn what_was_spent_is_asked_for_once_a_budget_and_again_for_another_calendar() {
        let (mut builder, mut facts) = (Builder::default(), Fixed(0));
        let mut terms = |zone: Option<&str>| {
            let levels = vec![level(LevelKind::Key, None, Some(5), zone)];
            let table = build(&mut builder, &mut facts, vec![key(&[0], 1)], levels);
            (table.level(0).unwrap().budget, facts.0)
        };
        let (first, asked) = terms(Some("UTC"));
        let first = first.unwrap();
        assert_eq!((first.spent, first.spent_at, asked), (100, 150, 1), "from the begin of its period");
        assert_eq!(terms(Some("UTC")), (Some(first), 1));
        let (other, asked) = terms(Some("Asia/Tokyo"));
        assert!(asked == 2 && other.unwrap().epoch != first.epoch);
        assert_eq!(terms(None).0, None);
        let (again, asked) = terms(Some("Asia/Tokyo"));
        assert!(asked == 3 && again.unwrap().epoch != other.unwrap().epoch);
    }
}
