//! Cells by name, without a series for whatever a peer sends: rows that a table of ours hands out, and `other`.
//!
//! The side runtime keeps one `RowNames` for each kind of label set (model and pool, replica) and gives a row to each
//! name when it publishes a route table; the row travels in the snapshot. Each core keeps its own `Rows` of cells and
//! finds them by row, so that counting needs no look-up by name. Rows are never reused for another name while the
//! process lives: a name that comes back goes on where it stopped, and a name that never was known is counted under
//! `other`. A gauge says what is, not what was: the page shows gauges of those rows alone that the present table
//! holds.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::metric::OwnLines;

/// The value that stands for every name outside our tables.
pub const OTHER: &str = "other";

/// The label value for a name that may or may not be known.
pub fn known_or_other(known: Option<&str>) -> &str {
    known.unwrap_or(OTHER)
}

/// Position of a label set in `RowNames` and of its cells in every core's `Rows`. Row 0 is `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowIdx(pub u32);

impl RowIdx {
    pub const OTHER: RowIdx = RowIdx(0);
}

/// Which label values a row stands for.
///
/// Owner: the thread that publishes route tables.
/// Invariant: at most `capacity` rows, the one for `other` included; a set that finds no room counts as `other`.
#[derive(Debug)]
pub struct RowNames<const N: usize> {
    by_name: HashMap<[Box<str>; N], RowIdx>,
    names: Vec<[Box<str>; N]>,
    capacity: usize,
}

impl<const N: usize> RowNames<N> {
    pub fn new(capacity: usize) -> Self {
        let other: [Box<str>; N] = std::array::from_fn(|_| Box::from(OTHER));
        let by_name = HashMap::from([(other.clone(), RowIdx::OTHER)]);
        Self { by_name, names: vec![other], capacity: capacity.max(1) }
    }

    /// The row of a label set that our tables know, a fresh one if it had none.
    pub fn row(&mut self, values: [&str; N]) -> RowIdx {
        let values = values.map(Box::from);
        if let Some(row) = self.by_name.get(&values) {
            return *row;
        }
        let Some(row) = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < self.capacity) else {
            return RowIdx::OTHER;
        };
        self.names.push(values.clone());
        self.by_name.insert(values, RowIdx(row));
        RowIdx(row)
    }

    /// Label values of a row; those of `other` for one that was never given out.
    pub fn values(&self, row: RowIdx) -> [&str; N] {
        let names = self.names.get(row.0 as usize).unwrap_or(&self.names[0]);
        std::array::from_fn(|at| &*names[at])
    }

    /// All rows in the order in which they were given out.
    pub fn iter(&self) -> impl Iterator<Item = (RowIdx, [&str; N])> {
        (0u32..).map(RowIdx).take(self.names.len()).map(|row| (row, self.values(row)))
    }
}

/// One core's cells, a `T` a row, made when the row is first used.
///
/// Owner: the core that writes the cells calls `at`; `seen` may be called from any thread.
/// Cost: `at` is an array access and one flag once the row exists; the first use allocates.
#[derive(Debug)]
pub struct Rows<T> {
    cells: Box<[OnceLock<Box<OwnLines<T>>>]>,
    make: fn() -> T,
}

impl<T> Rows<T> {
    pub fn new(capacity: usize, make: fn() -> T) -> Self {
        Self { cells: (0..capacity.max(1)).map(|_| OnceLock::new()).collect(), make }
    }

    /// The cells of a row; a row beyond the capacity is `other`.
    pub fn at(&self, row: RowIdx) -> &T {
        self.cells.get(row.0 as usize).unwrap_or(&self.cells[0]).get_or_init(|| Box::new(OwnLines::new((self.make)())))
    }

    /// The cells of a row that has been used.
    pub fn seen(&self, row: RowIdx) -> Option<&T> {
        Some(self.cells.get(row.0 as usize)?.get()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expose::Page;
    use crate::merge;
    use crate::metric::Counter;
    use crate::registry::{Kind, Label, MetricDesc};

    static REQUESTS: MetricDesc = MetricDesc {
        name: "llmgw_requests_total",
        help: "Requests",
        kind: Kind::Counter,
        labels: &[Label::known("model", "models")],
    };

    #[test]
    fn a_name_keeps_its_row() {
        let mut names = RowNames::new(8);
        let (a, b) = (names.row(["a", "x"]), names.row(["b", "x"]));
        assert_eq!((names.row(["a", "x"]), names.row(["b", "x"])), (a, b));
        assert_ne!(a, b);
        assert_eq!((names.values(b), names.values(RowIdx(99))), (["b", "x"], [OTHER, OTHER]));
    }

    #[test]
    fn a_model_called_other_shares_the_row_of_others() {
        assert_eq!(RowNames::new(8).row([OTHER]), RowIdx::OTHER);
    }

    #[test]
    fn a_full_table_counts_the_rest_as_other() {
        let mut names = RowNames::new(3);
        assert_eq!(["a", "b", "c", "a"].map(|name| names.row([name]).0), [1, 2, 0, 1]);
        assert_eq!(names.iter().count(), 3);
    }

    /// Two cores are asked for a hundred thousand names that no table knows: the page stays as long as it was.
    #[test]
    fn unknown_names_add_no_series() {
        let mut names = RowNames::new(16);
        let known = names.row(["llama"]);
        let cores = [Rows::new(16, Counter::new), Rows::new(16, Counter::new)];
        let find = |name: &str| if name == "llama" { Some(known) } else { None };
        for n in 0..100_000 {
            let row = find(&format!("model-{n}")).unwrap_or(RowIdx::OTHER);
            cores[n % 2].at(row).increment();
        }
        cores[0].at(find("llama").unwrap_or(RowIdx::OTHER)).add(7);

        let mut page = Page::new();
        for (row, values) in names.iter() {
            let cells = cores.iter().filter_map(|core| core.seen(row));
            page.family(&REQUESTS).count(&values, merge::counters(cells));
        }
        let text = page.into_text();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            ["llmgw_requests_total{model=\"other\"} 100000", "llmgw_requests_total{model=\"llama\"} 7"]
        );
    }

    #[test]
    fn a_row_beyond_the_cells_is_other() {
        let rows = Rows::new(2, Counter::new);
        rows.at(RowIdx(5)).increment();
        assert_eq!(rows.seen(RowIdx::OTHER).map(Counter::value), Some(1));
        assert!(rows.seen(RowIdx(1)).is_none() && rows.seen(RowIdx(5)).is_none());
    }
}
