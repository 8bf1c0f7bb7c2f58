//! Who may ask, as it is published to the cores, and the cells in which a core notes that a key was used.
//!
//! Made by whoever watches the store, taken by every core between two turns. Decides nothing: what a table says is read
//! where it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use llmgw_kit::clock::Wall;
use llmgw_types::{CoreId, KeyIdx, TenantSnapshot};

use crate::quota::LimitTable;

/// One publication. The newest replaces the others whole.
///
/// From: the thread that watches the store. To: every core. Bound: the newest one, and those that a core still has:
/// the sender keeps each until no core has it, so that no core is the one to free it. Loss: none, a later publication
/// carries everything.
#[derive(Debug)]
pub struct Tenants {
    /// The table.
    pub snapshot: Arc<TenantSnapshot>,
    /// What it is held to.
    pub limits: Arc<LimitTable>,
    /// Where each core notes use; at least as many cells as the table has keys.
    pub used: Vec<Arc<Used>>,
}

impl Tenants {
    /// Notes on `core` that a key was used. Cost: one load, and a store for the first time a minute.
    pub fn note(&self, core: CoreId, key: KeyIdx, now: Wall) {
        if let Some(used) = self.used.get(core.idx()) {
            used.note(key, now);
        }
    }
}

/// The minutes in which keys were last used on one core, by row. Writer: that core. Readers: anybody.
#[derive(Debug, Default)]
pub struct Used(Box<[AtomicU32]>);

impl Used {
    /// Cells for so many keys, none of which was used.
    pub fn new(keys: usize) -> Self {
        Self((0..keys).map(|_| AtomicU32::new(0)).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&self, key: KeyIdx, now: Wall) {
        let minute = u32::try_from(now.0 / MINUTE_MS).unwrap_or(u32::MAX);
        if let Some(cell) = self.0.get(key.idx())
            && cell.load(Ordering::Relaxed) != minute
        {
            cell.store(minute, Ordering::Relaxed);
        }
    }

    /// The beginning of the minute in which each key was last used, unix milliseconds; 0: never.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|cell| u64::from(cell.load(Ordering::Relaxed)) * MINUTE_MS)
    }
}

const MINUTE_MS: u64 = 60_000;

/// What the sender keeps: publications that some core may still have, and the cells of all.
#[derive(Debug, Default)]
pub struct Kept {
    publications: Vec<Arc<Tenants>>,
    used: Vec<Arc<Used>>,
    /// The newest moment that was told of each key.
    told: Vec<u64>,
}

/// Cells beyond what a table needs, so that a few new keys need no new cells.
const SPARE: usize = 1024;

impl Kept {
    /// For that many cores.
    pub fn new(cores: usize) -> Self {
        Self { used: (0..cores).map(|_| Arc::default()).collect(), ..Self::default() }
    }

    /// A publication of a table and its limits; it is kept until nobody else has it.
    pub fn publication(&mut self, snapshot: impl Into<Arc<TenantSnapshot>>, limits: Arc<LimitTable>) -> Arc<Tenants> {
        let snapshot = snapshot.into();
        let keys = snapshot.table().keys.len();
        if self.used.iter().any(|used| used.len() < keys) {
            // What is noted in the old ones from here on until the cores have the new ones is not told.
            self.used.iter_mut().for_each(|used| *used = Arc::new(Used::new(keys + SPARE)));
        }
        let tenants = Arc::new(Tenants { snapshot, limits, used: self.used.clone() });
        self.publications.push(tenants.clone());
        tenants
    }

    /// Lets go of what no core has any more. The newest is kept: it may not have been taken yet.
    pub fn let_go(&mut self) {
        let newest = self.publications.len().saturating_sub(1);
        let mut at = 0;
        self.publications.retain(|tenants| {
            at += 1;
            at > newest || Arc::strong_count(tenants) > 1
        });
    }

    /// How many publications are kept.
    pub fn count(&self) -> usize {
        self.publications.len()
    }

    /// Keys that were used since this was asked last, and when, unix milliseconds.
    pub fn used(&mut self) -> Vec<(KeyIdx, u64)> {
        let mut newest: Vec<u64> = Vec::new();
        for used in &self.used {
            newest.resize(newest.len().max(used.len()), 0);
            for (newest, at) in newest.iter_mut().zip(used.all()) {
                *newest = at.max(*newest);
            }
        }
        self.told.resize(self.told.len().max(newest.len()), 0);
        let rows = (0..).zip(newest).zip(&mut self.told);
        let later = rows.filter(|((_, at), told)| at > *told);
        later
            .map(|((row, at), told)| {
                *told = at;
                (KeyIdx(row), at)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use llmgw_types::TenantTable;
    use llmgw_types::tenants::{Key, Project};

    use super::*;

    fn snapshot(keys: usize) -> TenantSnapshot {
        let key = |row: usize| Key::plain(format!("key-{row}"));
        let projects = vec![Project { id: "proj-1".into(), path: "a/b/c".into(), organization: 0 }];
        let table = TenantTable { keys: (0..keys).map(key).collect(), projects, ..TenantTable::default() };
        TenantSnapshot::of(&table).expect("a table")
    }

    #[test]
    fn a_publication_is_let_go_when_no_core_has_it_and_the_newest_never() {
        let mut kept = Kept::new(1);
        let first = kept.publication(snapshot(1), Arc::default());
        let second = kept.publication(snapshot(1), Arc::default());
        kept.let_go();
        assert_eq!(kept.count(), 2, "a core has the first");
        drop((first, second));
        kept.let_go();
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn the_use_of_a_key_is_told_once_a_minute_whatever_core_saw_it_and_however_many_keys_come() {
        let mut kept = Kept::new(2);
        let tenants = kept.publication(snapshot(3), Arc::default());
        let [first, second] = [0, 1].map(CoreId);
        tenants.note(first, KeyIdx(1), Wall(120_000));
        tenants.note(second, KeyIdx(1), Wall(180_500));
        tenants.note(second, KeyIdx(2), Wall(180_500));
        tenants.note(second, KeyIdx(u32::MAX), Wall(180_500));
        assert_eq!(kept.used(), [(KeyIdx(1), 180_000), (KeyIdx(2), 180_000)]);
        tenants.note(first, KeyIdx(1), Wall(181_000));
        assert_eq!(kept.used(), []);
        let more = kept.publication(snapshot(5000), Arc::default());
        assert!(more.used.iter().all(|used| used.len() >= 5000));
        more.note(first, KeyIdx(4999), Wall(240_000));
        assert_eq!(kept.used(), [(KeyIdx(4999), 240_000)]);
    }
}
