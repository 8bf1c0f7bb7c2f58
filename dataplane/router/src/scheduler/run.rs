//! The pipeline: filter, shortlist, score, choose. One per core, with buffers that are used again.

use llmgw_kit::chance::Chance;
use llmgw_types::snapshot::{ArchivedPool, ArchivedRouteTable};
use llmgw_types::{BoardSlot, EndpointIdx};

use super::profile::RoutingProfile;
use super::{Candidate, Context, registry};

/// Runs decisions. Owner: one core.
pub struct Scheduler {
    chance: Chance,
    candidates: Vec<Candidate>,
    scores: Vec<f32>,
    total: Vec<f32>,
}

impl Scheduler {
    /// A scheduler that draws from `chance`.
    pub fn new(chance: Chance) -> Self {
        Self { chance, candidates: Vec::new(), scores: Vec::new(), total: Vec::new() }
    }

    /// The endpoint of `pool` that gets the request; `None` when no member passes the filters.
    ///
    /// Cost: one pass over the members for the filters; scores only for the picker's shortlist; no allocation once the
    /// buffers have grown to the pool's size.
    pub fn pick(
        &mut self,
        table: &ArchivedRouteTable,
        pool: &ArchivedPool,
        profile: &RoutingProfile,
        ctx: &Context<'_>,
    ) -> Option<Candidate> {
        self.candidates.clear();
        for (member, row) in (0u32..).zip(pool.members.iter()) {
            let endpoint = table.endpoints.get(row.endpoint.to_native() as usize)?;
            let candidate = Candidate {
                endpoint: EndpointIdx(row.endpoint.to_native()),
                member,
                slot: BoardSlot(endpoint.slot.to_native()),
                weight: endpoint.weight.to_native(),
                has_addr: endpoint.addr.is_some(),
            };
            if registry::FILTERS.iter().all(|filter| filter.keeps(ctx, &candidate)) {
                self.candidates.push(candidate);
            }
        }
        if self.candidates.is_empty() {
            return None;
        }
        profile.picker.shortlist(&mut self.candidates, &mut self.chance);
        self.total.clear();
        self.total.resize(self.candidates.len(), 0.0);
        self.scores.resize(self.candidates.len(), 0.0);
        for (scorer, weight) in &profile.scorers {
            scorer.score(ctx, &self.candidates, &mut self.scores);
            for (total, score) in self.total.iter_mut().zip(&self.scores) {
                *total += weight * score;
            }
        }
        let chosen = profile.picker.choose(&self.total, &mut self.chance);
        self.candidates.get(chosen).copied()
    }
}
