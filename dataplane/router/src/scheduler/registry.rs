//! Names of the configuration and the plugins they mean: one line each.

use super::filters::{Breaker, Draining, Excluded, Pinned, Ready};
use super::pickers::{MaxScore, PowerOfTwo, RoundRobin, Softmax};
use super::scorers::{Cost, Inflight, Kv, Load, PoolPriority, Prefix, Queue, Session};
use super::{Candidate, Context, Filter, Picker, Scorer};

/// Makes the list of filters and the walk through them, which calls each by its type: what several of them read of an
/// endpoint is then read once.
macro_rules! filters {
    ($($filter:ident),*) => {
        /// Filters, in the order in which they run. All of them always run.
        pub static FILTERS: [&dyn Filter; [$(stringify!($filter)),*].len()] = [$(&$filter),*];

        /// The first filter that drops the candidate, by its place in [`FILTERS`].
        #[inline]
        pub fn dropped_by(ctx: &Context<'_>, candidate: &Candidate) -> Option<usize> {
            [$($filter.keeps(ctx, candidate)),*].iter().position(|keeps| !keeps)
        }
    };
}

filters!(Ready, Draining, Breaker, Excluded, Pinned);

/// Their names in the same order, as metrics show them.
pub const FILTER_NAMES: [&str; FILTERS.len()] = ["ready", "draining", "breaker", "excluded", "pinned"];

/// Scorers by name.
pub static SCORERS: [&dyn Scorer; 8] = [&Queue, &Kv, &Load, &Inflight, &PoolPriority, &Session, &Prefix, &Cost];

/// Their names in the same order, as metrics show them.
pub const SCORER_NAMES: [&str; SCORERS.len()] =
    ["queue", "kv", "load", "inflight", "pool-priority", "session", "prefix", "cost"];

/// Pickers by name.
pub static PICKERS: [&dyn Picker; 4] = [&PowerOfTwo, &MaxScore, &Softmax, &RoundRobin];

/// The scorer of that name.
pub fn scorer(name: &str) -> Option<&'static dyn Scorer> {
    SCORERS.iter().copied().find(|scorer| scorer.name() == name)
}

/// The picker of that name.
pub fn picker(name: &str) -> Option<&'static dyn Picker> {
    PICKERS.iter().copied().find(|picker| picker.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_metrics_are_those_of_the_plugins() {
        assert_eq!(FILTERS.map(|filter| filter.name()), FILTER_NAMES);
        assert_eq!(SCORERS.map(|scorer| scorer.name()), SCORER_NAMES);
    }
}
