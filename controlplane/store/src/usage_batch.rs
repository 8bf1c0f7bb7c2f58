//! Rows of usage on their way into the store: their texts in one buffer, so that a row costs no allocation and a batch
//! can be filled, handed to the thread that writes and filled again.

use std::ops::Range;

use crate::usage::UsageRow;

/// A row whose texts are ranges of the batch's buffer.
pub(crate) type Packed = UsageRow<Range<usize>>;

/// Rows that are written together. Cheap to fill again after [`Batch::clear`].
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Vec<Packed>,
    texts: String,
}

impl Batch {
    /// Takes one more.
    pub fn push(&mut self, row: &UsageRow<&str>) {
        let texts = &mut self.texts;
        self.rows.push(row.map(|text| {
            let begin = texts.len();
            texts.push_str(text);
            begin..texts.len()
        }));
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows, in the order in which they came.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = UsageRow<&str>> {
        self.rows.iter().map(|row| self.shown(row))
    }

    /// The row of that number, counted from 0.
    pub fn row(&self, number: usize) -> Option<UsageRow<&str>> {
        self.rows.get(number).map(|row| self.shown(row))
    }

    pub(crate) fn packed(&self) -> &[Packed] {
        &self.rows
    }

    /// A row of this batch, with its texts.
    pub(crate) fn shown(&self, row: &Packed) -> UsageRow<&str> {
        row.map(|range| self.texts.get(range.clone()).unwrap_or_default())
    }

    /// Lets go of the rows, not of the room for them.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.texts.clear();
    }
}

impl<'r> FromIterator<&'r UsageRow> for Batch {
    fn from_iter<I: IntoIterator<Item = &'r UsageRow>>(rows: I) -> Self {
        let mut batch = Self::default();
        rows.into_iter().for_each(|row| batch.push(&row.map(String::as_str)));
        batch
    }
}
