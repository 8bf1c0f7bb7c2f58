//! Pass the gate, pick and count in one step: the only place where "when" and "where" meet.
//!
//! A [`Grant`] comes with a [`Place`] that counts the request on the load board and gives it back when it is dropped,
//! however the request ends.

mod decider;

use std::rc::Rc;
use std::sync::Arc;

use llmgw_types::{BandRank, BoardSlot, CoreId, EndpointIdx, PoolIdx, PoolSlot};

use crate::admission::{Attempt, Cells, Gate, PoolGate, PoolPlace};
use crate::board::Board;
use crate::prefix::{Prefilling, StampTable};
use crate::scheduler::cached::Reuse;
use crate::scheduler::explain::Explanation;
use crate::scheduler::run::{Scheduler, Seat, Tally};

pub use decider::{Choice, Decider, Map, NoEndpoint, View, Wanted, first_back};

/// A core's share of the load board.
pub struct CoreBoard {
    board: Arc<Board>,
    core: CoreId,
}

/// A request's count on the board: one up while it lives, one down when it is dropped.
pub struct Place {
    share: Rc<CoreBoard>,
    slot: BoardSlot,
    tokens: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.share.board.lower(self.share.core, self.slot, self.tokens);
    }
}

/// Where a request goes.
pub struct Grant {
    /// The pool.
    pub pool: PoolIdx,
    /// The endpoint, a row of the same table.
    pub endpoint: EndpointIdx,
    /// Its position among the pool's members.
    pub member: u32,
    /// Its column on the board.
    pub slot: BoardSlot,
    /// How its session came there.
    pub seat: Seat,
    /// What became of its prompt; absent where nobody looked for it.
    pub reuse: Option<Reuse>,
    /// The count that goes with it.
    pub place: Place,
    /// What its engine has to prefill of it: to be dropped at the first token.
    pub prefilling: Option<Prefilling>,
}

/// Why a request is not on its way yet.
pub enum Held<C: Cells> {
    /// Pools that could serve it have no room: it may wait for them.
    Shut(Attempt<C>),
    /// No endpoint of any pool of the model may get it.
    NoEndpoint,
}

/// Whose request is to be admitted, and how owners are found.
#[derive(Clone, Copy)]
pub struct AtGate<'a, C: Cells> {
    /// This core's gates.
    pub gate: &'a Gate<C>,
    /// The request's band.
    pub band: BandRank,
    /// The core that owns what hashes to that.
    pub owner_of: fn(u64, u32) -> CoreId,
}

/// Decides for one core.
pub struct Dispatcher {
    share: Rc<CoreBoard>,
    decider: Decider,
}

impl Dispatcher {
    /// A dispatcher for `core`.
    pub fn new(board: Arc<Board>, core: CoreId, scheduler: Scheduler) -> Self {
        Self { share: Rc::new(CoreBoard { board, core }), decider: Decider::new(scheduler) }
    }

    /// The same with a table of where prompts are cached.
    pub fn with_table(self, table: Arc<StampTable>) -> Self {
        Self { decider: self.decider.with_table(table), ..self }
    }

    /// Finds a place for a request, see [`Decider::choose`], and counts it there before it returns.
    ///
    /// Errors: no pool has an eligible endpoint.
    pub fn dispatch(
        &mut self,
        map: Map<'_>,
        wanted: &Wanted<'_>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Grant, NoEndpoint> {
        let view = View { board: &self.share.board, core: self.share.core, map };
        let choice = self.decider.choose(view, wanted, explanation)?;
        Ok(self.grant(map, choice, wanted))
    }

    /// Passes the gate of the first pool that has room and somebody to serve the request, and finds and counts its
    /// place there before it returns: nothing lies between the gate and the engine.
    ///
    /// Errors: what may be waited for, or that there is nobody.
    pub fn admit<C: Cells>(
        &mut self,
        map: Map<'_>,
        wanted: &Wanted<'_>,
        at: AtGate<'_, C>,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<(Grant, PoolPlace<C>), Held<C>> {
        let share = self.share.clone();
        let view = View { board: &share.board, core: share.core, map };
        let Some(route) = map.table.models.get(wanted.model as usize) else { return Err(Held::NoEndpoint) };
        let mut attempt = at.gate.attempt(at.band);
        for row in route.pools.iter().map(|row| PoolIdx(row.to_native())) {
            let Some(pool) = map.table.pools.get(row.idx()) else { continue };
            let owner = (at.owner_of)(pool.gate.to_native(), share.board.core_count());
            let Some(place) = attempt.try_pool(PoolGate { slot: PoolSlot(pool.slot.to_native()), owner }) else {
                if !self.decider.has_candidate(view, row, wanted) {
                    attempt.leave_out_last();
                }
                continue;
            };
            if let Some(choice) = self.decider.choose_in(view, row, wanted, explanation.as_deref_mut()) {
                place.runs_at(choice.slot);
                return Ok((self.grant(map, choice, wanted), place));
            }
        }
        Err(if attempt.shut().is_empty() { Held::NoEndpoint } else { Held::Shut(attempt) })
    }

    /// Finds and counts a place in the pool in which a request holds one already: after a grant, or for a retry.
    ///
    /// Errors: no endpoint of that pool may get it; the place in the pool is still held.
    pub fn dispatch_in<C: Cells>(
        &mut self,
        map: Map<'_>,
        wanted: &Wanted<'_>,
        place: &PoolPlace<C>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Grant, NoEndpoint> {
        let route = map.table.models.get(wanted.model as usize).ok_or(NoEndpoint)?;
        let has_slot = |row: &PoolIdx| {
            map.table.pools.get(row.idx()).is_some_and(|pool| pool.slot.to_native() == place.pool().slot.0)
        };
        let row = route.pools.iter().map(|row| PoolIdx(row.to_native())).find(has_slot).ok_or(NoEndpoint)?;
        let view = View { board: &self.share.board, core: self.share.core, map };
        let choice = self.decider.choose_in(view, row, wanted, explanation).ok_or(NoEndpoint)?;
        place.runs_at(choice.slot);
        Ok(self.grant(map, choice, wanted))
    }

    /// A place at the endpoint that [`first_back`] finds.
    ///
    /// Errors: none of the model's endpoints is ready.
    pub fn last_resort(&mut self, map: Map<'_>, wanted: &Wanted<'_>) -> Result<Grant, NoEndpoint> {
        let choice = first_back(&self.share.board, map.table, wanted)?;
        Ok(self.grant(map, choice, wanted))
    }

    /// Whether anybody in the pool may get the request. Cost: one pass over its members at most.
    pub fn has_candidate(&self, map: Map<'_>, row: PoolIdx, wanted: &Wanted<'_>) -> bool {
        let view = View { board: &self.share.board, core: self.share.core, map };
        self.decider.has_candidate(view, row, wanted)
    }

    /// What decisions went through since this was asked last.
    pub fn take_tally(&mut self) -> Tally {
        self.decider.take_tally()
    }

    fn grant(&mut self, map: Map<'_>, choice: Choice, wanted: &Wanted<'_>) -> Grant {
        let Choice { pool, endpoint, member, slot, seat, reuse } = choice;
        let (share, tokens) = (&self.share, wanted.tokens);
        share.board.raise(share.core, slot, tokens);
        let view = View { board: &share.board, core: share.core, map };
        let prefilling = self.decider.placed(view, &choice, wanted);
        let place = Place { share: share.clone(), slot, tokens };
        Grant { pool, endpoint, member, slot, seat, reuse, place, prefilling }
    }
}

#[cfg(test)]
mod tests;
