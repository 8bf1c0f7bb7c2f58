//! Whose row is which: given out once, kept for the life of the process.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use llmgw_types::tenants::Limits;

/// Rows by what they stand for. A row is never given to another.
#[derive(Debug)]
pub(super) struct Rows<T> {
    rows: HashMap<T, u32>,
    names: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { rows: HashMap::new(), names: Vec::new() }
    }
}

impl<T: Clone + Hash + Eq> Rows<T> {
    /// The row of that, a new one at the end where it has none.
    pub(super) fn row(&mut self, of: &T) -> u32 {
        if let Some(row) = self.rows.get(of) {
            return *row;
        }
        // Far more than a store holds.
        let row = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.rows.insert(of.clone(), row);
        self.names.push(of.clone());
        row
    }

    /// What each row stands for.
    pub(super) fn names(&self) -> &[T] {
        &self.names
    }
}

/// A number that changes when what it stands for does.
#[derive(Clone, Copy, Debug, Default)]
struct Version {
    number: u32,
    print: u64,
}

/// Versions by row.
#[derive(Debug, Default)]
pub(super) struct Versions(Vec<Version>);

impl Versions {
    /// The version of that row, whose value hashes to `print` at this moment.
    fn of(&mut self, row: u32, print: u64) -> u32 {
        let at = row as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, Version::default());
        }
        let Some(version) = self.0.get_mut(at) else { return 0 };
        if version.print != print {
            *version = Version { number: version.number.wrapping_add(1), print };
        }
        version.number
    }

    /// The version of a level's limits.
    pub(super) fn of_level(&mut self, row: u32, limits: &Limits) -> u32 {
        let mut hasher = DefaultHasher::new();
        (limits.rpm, limits.tpm, limits.parallel).hash(&mut hasher);
        if let Some(budget) = &limits.budget {
            (budget.micros, budget.period.word(), &budget.time_zone).hash(&mut hasher);
        }
        self.of(row, hasher.finish())
    }

    /// The version of what a key is held to: its levels, each with its own version.
    pub(super) fn of_key(&mut self, row: u32, levels: &[u32], version: impl Fn(u32) -> u32) -> u32 {
        let mut hasher = DefaultHasher::new();
        for level in levels {
            (level, version(*level)).hash(&mut hasher);
        }
        self.of(row, hasher.finish())
    }

    /// The newest version of that row.
    pub(super) fn newest(&self, row: u32) -> u32 {
        self.0.get(row as usize).map_or(0, |version| version.number)
    }
}
