//! A routing profile: scorers with weights and a picker, made from what the route table names.

use llmgw_types::snapshot::ArchivedProfileSpec;

use super::registry;
use super::{Picker, Scorer};

/// Scorers with weights and a picker. `inflight` is always among them; a cost stands alone and has it in it.
pub struct RoutingProfile {
    /// Weighted scorers.
    pub scorers: Vec<(&'static dyn Scorer, f32)>,
    /// Who chooses.
    pub picker: &'static dyn Picker,
    /// Of `softmax`, else 0.
    pub temperature: f32,
    /// Of a profile by cost: what a token that is not cached weighs.
    pub w_overlap: Option<f32>,
    /// Whether a session weighs by its scorer; else its endpoint is taken.
    pub weighs_sessions: bool,
}

impl RoutingProfile {
    /// Makes the profile of a table's row. A name this version does not know was refused or named when the
    /// configuration was checked; here it counts nothing.
    pub fn of(spec: &ArchivedProfileSpec) -> Self {
        let cost = spec.scorers.iter().find(|entry| entry.0.as_str() == "cost");
        let w_overlap = cost.map(|entry| entry.1.to_native());
        let mut scorers: Vec<(&'static dyn Scorer, f32)> = spec
            .scorers
            .iter()
            .filter_map(|entry| Some((registry::scorer(entry.0.as_str())?, entry.1.to_native())))
            .collect();
        if let Some(cost) = w_overlap.and(registry::scorer("cost")) {
            scorers = vec![(cost, 1.0)];
        } else if !scorers.iter().any(|(scorer, _)| scorer.name() == "inflight") {
            scorers.extend(registry::scorer("inflight").map(|scorer| (scorer, 1.0)));
        }
        let picker = registry::picker(spec.picker.as_str()).unwrap_or(registry::PICKERS[0]);
        let weighs_sessions = scorers.iter().any(|(scorer, _)| scorer.name() == "session");
        Self { scorers, picker, temperature: spec.temperature.to_native(), w_overlap, weighs_sessions }
    }
}
