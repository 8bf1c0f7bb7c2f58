//! Who of a pool does far worse than the others. Pure; asked again and again by the core that owns the pool, answered
//! once a window.

use std::collections::HashMap;

use llmgw_kit::clock::Mono;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedPool, ArchivedRouteTable};

use super::state::{RATIO_MIN, Tally, WINDOW};
use crate::board::Board;
use crate::endpoint::BreakerState;

/// How far above its pool's mean a failure ratio must be.
const GAP: f64 = 0.3;

/// One member of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTally {
    /// What it did in the time looked at.
    pub tally: Tally,
    /// It gets requests: ready, not draining, its breaker closed.
    pub is_in: bool,
}

/// What a core remembers of its pools' endpoints between two looks. Owner: that core.
#[derive(Debug, Default)]
pub struct Lookout {
    since: Mono,
    before: HashMap<BoardSlot, Tally>,
}

impl Lookout {
    /// Once a window, the endpoints to be ejected from the pools that `is_ours` names by row; else nobody.
    pub fn look(
        &mut self,
        board: &Board,
        table: &ArchivedRouteTable,
        now: Mono,
        is_ours: impl Fn(u32) -> bool,
    ) -> Vec<BoardSlot> {
        if now.since(self.since) < WINDOW {
            return Vec::new();
        }
        self.since = now;
        let before = std::mem::take(&mut self.before);
        let mut ejected = Vec::new();
        for (_, pool) in (0u32..).zip(table.pools.iter()).filter(|(row, _)| is_ours(*row)) {
            let slots: Vec<BoardSlot> = slots(table, pool).collect();
            let members: Vec<MemberTally> = slots
                .iter()
                .map(|slot| {
                    let tally = board.tally(*slot);
                    let earlier = before.get(slot).copied().unwrap_or(tally);
                    self.before.insert(*slot, tally);
                    let cells = board.endpoint(*slot);
                    let is_in = cells.is_ready() && !cells.is_draining() && cells.breaker() == BreakerState::Closed;
                    MemberTally { tally: tally.since(earlier), is_in }
                })
                .collect();
            ejected.extend(judge(&members).into_iter().filter_map(|at| slots.get(at)));
        }
        ejected
    }
}

fn slots<'a>(table: &'a ArchivedRouteTable, pool: &'a ArchivedPool) -> impl Iterator<Item = BoardSlot> + 'a {
    let endpoints = pool.members.iter().filter_map(|row| table.endpoints.get(row.endpoint.to_native() as usize));
    endpoints.map(|endpoint| BoardSlot(endpoint.slot.to_native()))
}

/// Positions of members to be ejected, worst first.
///
/// A member counts with [`RATIO_MIN`] requests or more. With those that are out already, never more than half of the
/// pool is out.
pub fn judge(members: &[MemberTally]) -> Vec<usize> {
    let ratio = |tally: Tally| tally.failed as f64 / tally.total() as f64;
    let mut judged: Vec<(usize, f64)> = members
        .iter()
        .enumerate()
        .filter(|(_, member)| member.is_in && member.tally.total() >= RATIO_MIN)
        .map(|(at, member)| (at, ratio(member.tally)))
        .collect();
    if judged.len() < 2 {
        return Vec::new();
    }
    let mean = judged.iter().map(|(_, ratio)| ratio).sum::<f64>() / judged.len() as f64;
    judged.retain(|(_, ratio)| *ratio >= mean + GAP);
    judged.sort_by(|one, other| other.1.total_cmp(&one.1));
    let out = members.iter().filter(|member| !member.is_in).count();
    judged.truncate((members.len() / 2).saturating_sub(out));
    judged.into_iter().map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
    use llmgw_types::snapshot::{Endpoint, Member, ModelRoute, Placement, Pool, ProfileSpec, Units};
    use llmgw_types::{CoreId, EngineKind, RouteTable, Snapshot};
    use proptest::prelude::*;

    use super::*;

    fn member(answered: u64, failed: u64) -> MemberTally {
        MemberTally { tally: Tally { answered, failed }, is_in: true }
    }

    #[test]
    fn the_one_that_fails_among_those_that_do_not_is_ejected() {
        let good = member(100, 1);
        for (members, expected) in [
            (vec![good, member(55, 45), good, good], vec![1]),
            (vec![good, good], vec![]),
            // All are as bad: nobody is far above the mean.
            (vec![member(50, 50); 4], vec![]),
            // Too few requests to tell.
            (vec![good, member(0, 19), good], vec![]),
            // The worst goes first, and no more than half.
            (vec![member(50, 50), member(10, 90), good, good, good], vec![1]),
            (vec![good, MemberTally { is_in: false, ..good }, member(10, 90)], vec![]),
        ] {
            assert_eq!(judge(&members), expected, "{members:?}");
        }
    }

    #[test]
    fn a_core_looks_once_a_window_at_what_came_since_and_only_at_its_own_pools() {
        let endpoint = |slot: u32| Endpoint {
            name: format!("e{slot}"),
            slot,
            addr: None,
            host: String::new(),
            authorization: None,
            engine: EngineKind::Sim,
            weight: 100,
            idle_limit_ms: 4000,
            queue_order: QueueOrder::default(),
        };
        let member = |endpoint| Member { endpoint, served_as: "m".into() };
        let (members, label) = ((0..3).map(member).collect(), "none/unknown".to_owned());
        let table = RouteTable {
            endpoints: (0..3).map(endpoint).collect(),
            pools: vec![Pool {
                model: 0,
                label,
                priority: 1,
                metric_row: 1,
                slot: 0,
                gate: 1,
                thresholds: Thresholds::default(),
                prefix: None,
                members,
            }],
            models: vec![ModelRoute {
                name: "m".into(),
                created: 0,
                pools: vec![0],
                profile: 0,
                placement: Placement::default(),
                admission: Admission::default(),
                fallbacks: vec![],
                budget_fallback: None,
                units: Units::default(),
            }],
            profiles: vec![ProfileSpec { name: "p".into(), scorers: vec![], picker: "p2c".into(), temperature: 0.0 }],
            ..RouteTable::default()
        };
        let snapshot = Snapshot::of(&table).unwrap();
        let board = Board::new(1, 3);
        (0..3).for_each(|slot| board.set_ready(BoardSlot(slot), true));
        let (mut lookout, start) = (Lookout::default(), Mono(0) + WINDOW);
        let spend = |failures_of_the_first: bool| {
            for slot in (0..3).map(BoardSlot) {
                for at in 0..40 {
                    if slot.0 == 0 && failures_of_the_first && at % 2 == 0 {
                        board.count_failure(CoreId(0), slot);
                    } else {
                        board.count_answer(CoreId(0), slot);
                    }
                }
            }
        };
        let mut look = |now: Mono, is_ours: bool| lookout.look(&board, snapshot.table(), now, |_| is_ours);
        spend(true);
        assert_eq!(look(start, true), [], "the first look is where counting begins");
        spend(true);
        assert_eq!(look(start + WINDOW / 2, true), [], "the window is not over");
        assert_eq!(look(start + WINDOW, true), [BoardSlot(0)]);
        spend(false);
        assert_eq!(look(start + WINDOW * 2, true), [], "it does as well as the others now");
        spend(true);
        assert_eq!(look(start + WINDOW * 3, false), [], "another core's pool");
    }

    proptest! {
        #[test]
        fn never_more_than_half_of_a_pool_is_out(
            members in prop::collection::vec((0u64..200, 0u64..200, any::<bool>()), 0..20),
        ) {
            let members: Vec<MemberTally> = members
                .into_iter()
                .map(|(answered, failed, is_in)| MemberTally { tally: Tally { answered, failed }, is_in })
                .collect();
            let ejected = judge(&members);
            let out = members.iter().filter(|member| !member.is_in).count();
            prop_assert!(ejected.is_empty() || ejected.len() + out <= members.len() / 2);
            prop_assert!(ejected.iter().all(|&at| members[at].is_in));
        }
    }
}
