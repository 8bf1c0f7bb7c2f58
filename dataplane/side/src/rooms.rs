//! How many requests each pool may hold: the gate's `room` cells, from what engines say, their breakers and the table.
//!
//! Owner: the publisher, which looks a few dozen times a second and before every table. Room falls before the cores
//! learn that an endpoint left, and rises only when the last of them works with the table that has a newcomer: in
//! between the gate is too tight, never too wide. Whoever waits for a pool with new room is told of it through the
//! gate's owner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use llmgw_kit::clock::Mono;
use llmgw_router::admission::band::PoolState;
use llmgw_router::admission::saturation::{EngineState, Reading, saturation};
use llmgw_router::admission::{BANDS_MAX, BandSpec, Cells, publish_room};
use llmgw_router::board::Board;
use llmgw_router::endpoint::BreakerState;
use llmgw_types::admission::{ArchivedThresholds, Thresholds};
use llmgw_types::snapshot::{ArchivedPool, ArchivedRouteTable};
use llmgw_types::{BandRank, BoardSlot, PoolSlot, Snapshot};

use crate::lanes::Lanes;

/// What an engine is taken to run at once of which nobody knows it: that neither the configuration nor the engine says
/// and that never showed a queue. Where it was seen to run half as many, twice that: so a flood after a start fills its
/// batch within a few readings, and overfills it by no more than this or the batch again.
const START_CAPACITY: u32 = 128;
/// The same of an engine whose metrics are not read: nothing would ever show more. Where we have as many, twice that.
const BLIND_CAPACITY: u32 = 1024;

/// See the module.
pub(crate) struct Rooms {
    board: Arc<Board>,
    table: Option<Arc<Snapshot>>,
    /// Members of the newest table that every core works with.
    adopted: HashSet<(PoolSlot, BoardSlot)>,
    is_adopted: bool,
    draining: HashSet<BoardSlot>,
    /// Owners that are still to hear of new room: their lanes were full.
    owed: HashMap<PoolSlot, u64>,
}

impl Rooms {
    /// No table yet.
    pub(crate) fn new(board: Arc<Board>) -> Self {
        Self {
            board,
            table: None,
            adopted: HashSet::new(),
            is_adopted: false,
            draining: HashSet::new(),
            owed: HashMap::new(),
        }
    }

    /// Another table is about to be put before the cores.
    pub(crate) fn follow(&mut self, table: Arc<Snapshot>, now: Mono, lanes: &Lanes) {
        let is_first = self.table.is_none();
        let stays: HashSet<PoolSlot> = table.table().pools.iter().map(slot).collect();
        if let Some(old) = &self.table {
            for pool in old.table().pools.iter().map(slot).filter(|pool| !stays.contains(pool)) {
                self.owed.remove(&pool);
                let _ = publish_room(&self.board, pool, ranks().map(|rank| (rank, 0)));
            }
        }
        self.draining = self.draining_now(table.table());
        self.table = Some(table);
        self.is_adopted = false;
        if is_first {
            self.adopt();
        }
        self.store(now, lanes);
    }

    /// Looks at the engines again. Answer: whether one began or ceased to drain, so that cores are to count anew.
    pub(crate) fn look(&mut self, now: Mono, lanes: &Lanes) -> bool {
        let Some(table) = self.table.clone() else { return false };
        if !self.is_adopted && self.board.oldest_generation() >= table.table().generation.to_native() {
            self.adopt();
        }
        self.store(now, lanes);
        self.draining_now(table.table()) != self.draining
    }

    fn draining_now(&self, table: &ArchivedRouteTable) -> HashSet<BoardSlot> {
        let slots = table.endpoints.iter().map(|endpoint| BoardSlot(endpoint.slot.to_native()));
        slots.filter(|slot| self.board.endpoint(*slot).is_draining()).collect()
    }

    fn adopt(&mut self) {
        let Some(table) = &self.table else { return };
        let table = table.table();
        let members = |pool| members(table, pool).map(move |member| (slot(pool), member));
        self.adopted = table.pools.iter().flat_map(members).collect();
        self.is_adopted = true;
    }

    fn store(&mut self, now: Mono, lanes: &Lanes) {
        let Some(snapshot) = self.table.clone() else { return };
        let table = snapshot.table();
        let mut seen = HashSet::new();
        for pool in table.pools.iter() {
            let at = slot(pool);
            // Pools of the same engines share a gate: the first in the table says what it is held to.
            if !seen.insert(at) {
                continue;
            }
            let is_known = |member: &BoardSlot| self.adopted.contains(&(at, *member));
            let engines = members(table, pool).filter(is_known);
            let state = PoolState::of(engines.filter_map(|member| engine(&self.board, member, table, now)));
            let Some(model) = table.models.get(pool.model.to_native() as usize) else { continue };
            let thresholds = thresholds(&pool.thresholds);
            // Models that share a gate may have more bands than the first: those above its highest are held as that.
            let last = model.admission.bands.len().saturating_sub(1);
            let room = |rank: BandRank| {
                let band = model.admission.bands.get((rank.idx() - 1).min(last));
                band.map_or(0, |band| {
                    let spec = BandSpec::new(band.saturation_ceiling.to_native(), band.capacity_share.to_native());
                    state.room(&spec, &thresholds)
                })
            };
            if ranks().all(|rank| self.board.room(at, rank) == room(rank)) {
                continue;
            }
            if publish_room(&self.board, at, ranks().map(|rank| (rank, room(rank)))) {
                self.owed.insert(at, pool.gate.to_native());
            }
        }
        self.owed.retain(|pool, gate| !lanes.nudge(*gate, *pool));
    }
}

fn ranks() -> impl Iterator<Item = BandRank> {
    (1..=BANDS_MAX).map(|rank| BandRank(u8::try_from(rank).unwrap_or(u8::MAX)))
}

fn slot(pool: &ArchivedPool) -> PoolSlot {
    PoolSlot(pool.slot.to_native())
}

fn members<'t>(table: &'t ArchivedRouteTable, pool: &'t ArchivedPool) -> impl Iterator<Item = BoardSlot> + 't {
    let endpoints = pool.members.iter().filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize));
    endpoints.map(|endpoint| BoardSlot(endpoint.slot.to_native()))
}

fn thresholds(thresholds: &ArchivedThresholds) -> Thresholds {
    Thresholds {
        target_waiting: thresholds.target_waiting.to_native(),
        kv_ceiling: thresholds.kv_ceiling.to_native(),
        kv_by_band: thresholds.kv_by_band,
    }
}

/// How full a pool is; see [`saturation`].
pub(crate) fn saturation_of(board: &Board, table: &ArchivedRouteTable, pool: &ArchivedPool, now: Mono) -> f32 {
    let engines = members(table, pool).filter_map(|member| engine(board, member, table, now));
    saturation(engines, &thresholds(&pool.thresholds))
}

/// What is known of an engine that takes work.
fn engine(board: &Board, member: BoardSlot, table: &ArchivedRouteTable, now: Mono) -> Option<EngineState> {
    let cells = board.endpoint(member);
    if !cells.is_ready() || cells.is_draining() || now < cells.out_until() {
        return None;
    }
    let own = u32::try_from(board.in_flight(member).max(0)).unwrap_or(u32::MAX);
    let known = cells.batch_capacity().unwrap_or(0);
    let fresh_from = Mono(now.0.saturating_sub(u64::from(table.stale_after_ms.to_native()) * 1_000_000));
    let sample = cells.fresh_sample(fresh_from);
    let capacity = match (cells.breaker(), cells.is_capacity_limit()) {
        // One request at a time, to see whether it has recovered.
        (BreakerState::Open | BreakerState::HalfOpen, _) => 1,
        (BreakerState::Closed, true) => known,
        (BreakerState::Closed, false) if sample.is_some() => START_CAPACITY.max(known.saturating_mul(2)),
        (BreakerState::Closed, false) => BLIND_CAPACITY.max(known.max(own).saturating_mul(2)),
    };
    let reading = sample.map(|sample| Reading {
        running: sample.running,
        waiting: sample.waiting,
        kv_usage_ratio: sample.kv_usage_ratio.unwrap_or(0.0),
        own: sample.running.saturating_add(sample.waiting).saturating_sub(cells.foreign()),
    });
    Some(EngineState { capacity, own, reading })
}

#[cfg(test)]
mod tests;
