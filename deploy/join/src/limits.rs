//! What keys are held to, put together: the table of who may ask, the calendars of budgets, and what the store says was
//! spent. Called by `tenants` alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llmgw_kit::clock::Wall;
use llmgw_router::quota::LimitTable;
use llmgw_router::quota::build::{Builder, Facts};
use llmgw_store::{Store, StoreError};
use llmgw_tenancy::Period;
use llmgw_tenancy::calendar;
use llmgw_types::TenantSnapshot;
use llmgw_types::tenants::{ArchivedLevel, ArchivedPeriod, ArchivedTenantTable};

/// How far calendars are worked out: months beyond the time in which they are worked out again.
const DAYS: usize = 400;
const MONTHS: usize = 14;
/// How often calendars are worked out again, where nothing else is a reason to.
const RENEWED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Makes tables of limits, each with the numbers of the one before.
pub(crate) struct Limiting {
    store: Store,
    builder: Builder,
    made_at: Instant,
}

impl Limiting {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, builder: Builder::default(), made_at: Instant::now() }
    }

    /// The limits that go with a table of who may ask.
    ///
    /// Errors: what was spent cannot be read. Then nothing has changed, and the same can be asked again.
    pub(crate) fn table(&mut self, snapshot: &TenantSnapshot) -> Result<Arc<LimitTable>, StoreError> {
        let tenants = snapshot.table();
        let mut builder = self.builder.clone();
        let mut facts = StoreFacts { store: &self.store, tenants, now: now(), spent: HashMap::new(), error: None };
        let table = builder.build(tenants, &mut facts);
        match facts.error {
            Some(error) => Err(error),
            None => {
                (self.builder, self.made_at) = (builder, Instant::now());
                Ok(Arc::new(table))
            }
        }
    }

    /// Whether calendars are to be worked out again.
    pub(crate) fn is_old(&self) -> bool {
        self.made_at.elapsed() >= RENEWED_AFTER
    }
}

/// Calendars and what was spent, at one moment.
struct StoreFacts<'a> {
    store: &'a Store,
    tenants: &'a ArchivedTenantTable,
    now: u32,
    /// By the second since when, and the level's row.
    spent: HashMap<u32, HashMap<u32, i64>>,
    error: Option<StoreError>,
}

impl StoreFacts<'_> {
    /// What was spent since a second, at every level that had any part in it.
    fn since(&self, since: u32) -> Result<HashMap<u32, i64>, StoreError> {
        let totals = self.store.read(|rows| rows.used_since(i64::from(since) * 1000))?;
        if totals.is_empty() {
            return Ok(HashMap::new());
        }
        let keys: HashMap<&str, _> = self.tenants.keys.iter().map(|key| (key.id.as_str(), key)).collect();
        let mut sums: HashMap<u32, i64> = HashMap::new();
        for total in totals {
            let Some(key) = keys.get(total.key_id.as_str()) else { continue };
            let units = i64::try_from(total.used.units_micros).unwrap_or(i64::MAX);
            for row in key.levels.iter().map(|row| row.to_native()) {
                let level = self.tenants.levels.get(row as usize);
                let is_of = level.is_some_and(|level| level.model.as_ref().is_none_or(|of| of.as_str() == total.model));
                if is_of {
                    let sum = sums.entry(row).or_default();
                    *sum = sum.saturating_add(units);
                }
            }
        }
        Ok(sums)
    }
}

impl Facts for StoreFacts<'_> {
    fn edges(&mut self, zone: &str, period: ArchivedPeriod) -> Vec<u32> {
        let (period, count) = match period {
            ArchivedPeriod::Day => (Period::Day, DAYS),
            ArchivedPeriod::Month => (Period::Month, MONTHS),
        };
        let now = i64::from(self.now);
        calendar::edges(zone, period, now, count).unwrap_or_else(|| {
            tracing::warn!(zone, "no such time zone: budgets that name it begin anew by UTC");
            calendar::edges("UTC", period, now, count).unwrap_or_default()
        })
    }

    fn spent(&mut self, row: u32, _level: &ArchivedLevel, since: u32) -> i64 {
        if !self.spent.contains_key(&since) {
            match self.since(since) {
                Ok(sums) => drop(self.spent.insert(since, sums)),
                Err(error) => self.error = Some(error),
            }
        }
        self.spent.get(&since).and_then(|sums| sums.get(&row)).copied().unwrap_or(0)
    }

    fn now(&self) -> u32 {
        self.now
    }
}

fn now() -> u32 {
    u32::try_from(Wall::now().unix_seconds()).unwrap_or(u32::MAX)
}
