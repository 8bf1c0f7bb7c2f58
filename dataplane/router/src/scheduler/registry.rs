//! Names of the configuration and the plugins they mean: one line each.

use super::filters::{Excluded, Ready};
use super::pickers::{MaxScore, PowerOfTwo};
use super::scorers::Inflight;
use super::{Filter, Picker, Scorer};

/// Filters, in the order in which they run. All of them always run.
pub static FILTERS: &[&dyn Filter] = &[&Ready, &Excluded];

/// Scorers by name.
pub static SCORERS: &[&dyn Scorer] = &[&Inflight];

/// Pickers by name.
pub static PICKERS: &[&dyn Picker] = &[&PowerOfTwo, &MaxScore];

/// The scorer of that name.
pub fn scorer(name: &str) -> Option<&'static dyn Scorer> {
    SCORERS.iter().copied().find(|scorer| scorer.name() == name)
}

/// The picker of that name.
pub fn picker(name: &str) -> Option<&'static dyn Picker> {
    PICKERS.iter().copied().find(|picker| picker.name() == name)
}
