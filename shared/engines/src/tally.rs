//! Makes one number of a metric's lines.
//!
//! Engines split a metric over lines by model, data-parallel rank, priority or source, and some publish the same number
//! from several ranks. Used by `contract` alone; knows no metric by name.

use crate::names::{PartLabel, Vocabulary};
use crate::promtext::{Label, Labels};

/// Lines of one metric that are told apart. Beyond this many further ones are not counted.
pub(crate) const GROUPS_MAX: usize = 1024;

/// How lines that are not copies of each other become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Sum,
    /// The largest.
    Max,
}

/// The lines of one metric seen so far.
///
/// Invariant: at most `GROUPS_MAX` groups.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    groups: Vec<Group>,
    unreadable_lines: usize,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// Hash of the labels but for those that tell copies apart.
    key: u64,
    /// How many labels make the line a part of a number published elsewhere.
    part_depth: usize,
    value: f64,
}

impl Tally {
    /// Takes a line. A value that cannot be a count or a share (negative, infinite, not a number) is only remembered as
    /// unreadable.
    pub(crate) fn add(&mut self, vocabulary: &Vocabulary, labels: Labels<'_>, value: f64) {
        if !value.is_finite() || value < 0.0 {
            self.unreadable_lines += 1;
            return;
        }
        let (mut key, mut part_depth) = (0u64, 0);
        for label in labels.iter().filter(|label| !vocabulary.copy_labels.contains(&label.name)) {
            // Summed, so that the order of the labels does not matter.
            key = key.wrapping_add(hash(label));
            part_depth += usize::from(vocabulary.part_labels.iter().any(|part| is_part(part, &label)));
        }
        if let Some(group) = self.groups.iter_mut().find(|group| group.key == key) {
            group.value = group.value.max(value);
        } else if self.groups.len() < GROUPS_MAX {
            self.groups.push(Group { key, part_depth, value });
        }
    }

    /// The number; `None` if no line had one. Where the whole is published beside its parts, the whole counts.
    pub(crate) fn value(&self, join: Join) -> Option<f64> {
        let depth = self.groups.iter().map(|group| group.part_depth).min()?;
        let values = self.groups.iter().filter(|group| group.part_depth == depth).map(|group| group.value);
        Some(match join {
            Join::Sum => values.sum(),
            Join::Max => values.fold(0.0, f64::max),
        })
    }

    pub(crate) fn has_unreadable_lines(&self) -> bool {
        self.unreadable_lines > 0
    }
}

fn is_part(part: &PartLabel, label: &Label<'_>) -> bool {
    part.name == label.name && part.whole != label.raw
}

/// FNV-1a over name and value, a byte no text has between them.
fn hash(label: Label<'_>) -> u64 {
    let bytes = label.name.bytes().chain([0xff]).chain(label.raw.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
