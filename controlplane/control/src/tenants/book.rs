//! Whose row is which: given out once, and found again in the table before.

use std::hash::{DefaultHasher, Hash, Hasher};

use ahash::{HashMap, HashMapExt as _};
use llmgw_types::tenants::Limits;

/// Rows of a table that is being made, by what they stand for: those of the table before, and new ones behind them. A
/// row is never given to another.
#[derive(Debug)]
pub(super) struct Rows<T> {
    rows: HashMap<T, u32>,
    room: usize,
}

impl<T: Hash + Eq> Rows<T> {
    /// Those of the table before, in their order; there is room for so many more.
    pub(super) fn of(known: Option<impl ExactSizeIterator<Item = T>>, more: usize) -> Self {
        let room = known.as_ref().map_or(0, ExactSizeIterator::len) + more;
        let mut rows = HashMap::with_capacity(room);
        rows.extend(known.into_iter().flatten().zip(0..));
        Self { rows, room }
    }

    /// As many rows as there may be.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// The row of that, a new one at the end where it has none.
    pub(super) fn row(&mut self, of: T) -> u32 {
        // Far more than a store holds.
        let next = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        *self.rows.entry(of).or_insert(next)
    }

    /// The row of that, if it has one.
    pub(super) fn known(&self, of: T) -> Option<u32> {
        self.rows.get(&of).copied()
    }
}

/// Numbers of what has no rows of its own.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<String, u32>);

impl Numbers {
    /// The number of that id, a new one where it has none.
    pub(super) fn of(&mut self, id: &str) -> u32 {
        if let Some(number) = self.0.get(id) {
            return *number;
        }
        let number = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.insert(id.to_owned(), number);
        number
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
