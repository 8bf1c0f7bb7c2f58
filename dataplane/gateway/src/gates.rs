//! A request's way through the gates of its pools: into the first that has room, else into their queue, and what it is
//! told when that was in vain.
//!
//! Called by `retry` for each of the models that may serve a request, and by `submit` for what comes of the wait. Never
//! decides which model is next, nor whether a request is tried again.

use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_router::admission::{Attempt, Cells, PoolGate};
use llmgw_router::dispatcher::{AtGate, Held};
use llmgw_router::message::Refusal;
use llmgw_router::scheduler::explain::{AdmissionLook, Explanation, GateLook};
use llmgw_router::{Board, Grant, Wanted};
use llmgw_runtime::owner::owner_of;
use llmgw_types::{BandRank, PoolSlot};

use crate::admission::{Asking, NoPlace, Place, Waiting};
use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::snapshot::Tables;

/// Gates that an explanation shows.
const GATES_SHOWN: usize = 8;

/// What a request is at the gates of its pools.
#[derive(Clone, Copy)]
pub(crate) struct AtGates {
    /// Position of its band among its model's.
    pub(crate) band: usize,
    /// Whether it takes places at all.
    pub(crate) takes_places: bool,
    /// Hash of who shares a turn.
    pub(crate) tenant: u32,
    /// Units: tokens.
    pub(crate) cost: u32,
    /// What it holds while it waits.
    pub(crate) bytes: u32,
    /// When the whole request is over.
    pub(crate) deadline: Mono,
}

impl AtGates {
    /// An endpoint in the pool in which the request holds a place, else in the first whose gate it passes.
    pub(crate) fn admit(
        &self,
        core: &Core,
        tables: &Tables,
        wanted: &Wanted<'_>,
        own: Option<Place>,
        explanation: Option<&mut Explanation>,
    ) -> Result<(Grant, Option<Place>), Held<Arc<Board>>> {
        let mut explanation = explanation;
        let map = tables.map();
        let mut dispatcher = core.dispatcher.borrow_mut();
        let in_own = own.and_then(|place| {
            let grant = dispatcher.dispatch_in(map, wanted, &place, explanation.as_deref_mut());
            grant.ok().map(|grant| (grant, Some(place)))
        });
        let admitted = match in_own {
            Some(admitted) => Ok(admitted),
            None if self.takes_places => {
                let (band, row) = self.band(tables, wanted.model);
                let at = AtGate { gate: &core.admission.gate, band, owner_of };
                let looks = explanation.as_ref().map_or(0, |explanation| explanation.pools.len());
                let admitted = dispatcher.admit(map, wanted, at, explanation.as_deref_mut());
                if let Some(explanation) =
                    explanation.as_deref_mut().filter(|explanation| explanation.pools.len() == looks)
                    && matches!(admitted, Err(Held::NoEndpoint))
                {
                    // Behind a shut gate nobody was looked at: whoever asks why hears of each what keeps it.
                    drop(dispatcher.dispatch(map, wanted, Some(explanation)));
                }
                if admitted.is_ok()
                    && let Some(count) = core.cells.bands.at(row).admitted.first()
                {
                    count.increment();
                }
                admitted.map(|(grant, place)| (grant, Some(place)))
            }
            None => {
                let grant = dispatcher.dispatch(map, wanted, explanation.as_deref_mut());
                grant.map(|grant| (grant, None)).map_err(|_| Held::NoEndpoint)
            }
        };
        core.cells.decisions.count(&dispatcher.take_tally());
        if let Some(explanation) = explanation.filter(|_| self.takes_places) {
            self.look(core, tables, wanted.model, explanation);
        }
        admitted
    }

    /// A place past the gate, so that the request counts there.
    pub(crate) fn unasked(&self, core: &Core, tables: &Tables, grant: &Grant) -> Option<Place> {
        let pool = tables.routes().pools.get(grant.pool.idx()).filter(|_| self.takes_places)?;
        let owner = owner_of(pool.gate.to_native(), core.board.core_count());
        let place = core.admission.gate.unasked(PoolGate { slot: PoolSlot(pool.slot.to_native()), owner });
        place.runs_at(grant.slot);
        Some(place)
    }

    /// Has the request wait for the pools of a model that it found shut.
    ///
    /// Errors: it may not even wait.
    pub(crate) fn wait<'a>(
        &self,
        core: &'a Core,
        tables: &Tables,
        attempt: Attempt<Arc<Board>>,
        model: u32,
        now: Mono,
    ) -> Result<Waiting<'a>, ApiError> {
        let table = tables.routes();
        let shut = attempt.shut().first().map(|pool| pool.slot);
        let gate = table.pools.iter().find(|pool| Some(PoolSlot(pool.slot.to_native())) == shut);
        let admission = table.models.get(model as usize).map(|route| &route.admission);
        let ttl = admission.map_or(0, |admission| admission.queue_ttl_ms.to_native());
        let beat = admission.map_or(0, |admission| admission.heartbeat_ms.to_native());
        let asking = Asking {
            row: self.band(tables, model).1,
            tenant: self.tenant,
            cost: self.cost,
            bytes: self.bytes,
            deadline: self.deadline.min(now + Duration::from_millis(ttl.into())),
            heartbeat: (beat > 0).then(|| Duration::from_millis(beat.into())),
        };
        let gate = (gate.map_or(0, |pool| pool.gate.to_native()), table.generation.to_native());
        core.admission.wait(attempt, gate, model, &asking, now).map_err(|why| self.no_place(tables, why, model))
    }

    /// What a request is told that waited in vain, or may not wait.
    pub(crate) fn no_place(&self, tables: &Tables, why: NoPlace, model: u32) -> ApiError {
        let admission = tables.routes().models.get(model as usize).map(|route| &route.admission);
        let band = admission.and_then(|admission| admission.bands.get(self.band));
        let band = band.map_or("", |band| band.name.as_str());
        let (reason, message) = match why {
            NoPlace::ShuttingDown => return ApiError::shutting_down(),
            NoPlace::Refused(Refusal::Full) => {
                (Reason::Full, format!("the engines are full, and so is the queue of band {band}; try again later"))
            }
            NoPlace::Refused(Refusal::Ttl | Refusal::ClientGone) => {
                let ttl = admission.map_or(0, |admission| admission.queue_ttl_ms.to_native());
                let ttl = Duration::from_millis(ttl.into());
                (Reason::Ttl, format!("the engines had no room for band {band} within {ttl:?}; try again later"))
            }
            NoPlace::Refused(Refusal::Displaced) => {
                (Reason::Displaced, format!("band {band} made room in the queue for a higher one; try again later"))
            }
            NoPlace::Refused(Refusal::Overloaded) => {
                (Reason::Overloaded, "too many requests ask for a place at once; try again later".to_owned())
            }
            NoPlace::Refused(Refusal::NoEndpoint) => {
                (Reason::NoEndpoint, "the engines that it waited for were removed; send it again".to_owned())
            }
        };
        ApiError::new(reason, message)
    }

    /// The rank of the request's band at a model, which may stand in for its own, and where that is counted.
    fn band(&self, tables: &Tables, model: u32) -> (BandRank, RowIdx) {
        let Some(route) = tables.routes().models.get(model as usize) else { return (BandRank(1), RowIdx::OTHER) };
        let bands = &route.admission.bands;
        let at = self.band.min(bands.len().saturating_sub(1));
        let row = bands.get(at).map_or(RowIdx::OTHER, |band| RowIdx(band.metric_row.to_native()));
        // Bands are few: the table is refused where they are not.
        (BandRank(u8::try_from(at + 1).unwrap_or(u8::MAX)), row)
    }

    /// Notes what stands at the gates of a model's pools.
    fn look(&self, core: &Core, tables: &Tables, model: u32, explanation: &mut Explanation) {
        let (rank, _) = self.band(tables, model);
        let table = tables.routes();
        let look = explanation.admission.get_or_insert_with(AdmissionLook::default);
        (look.model, look.band) = (model, rank.idx().saturating_sub(1));
        look.gates.clear();
        let rows = table.models.get(model as usize).map(|route| route.pools.iter()).into_iter().flatten();
        for row in rows.map(|row| row.to_native()).take(GATES_SHOWN) {
            let Some(pool) = table.pools.get(row as usize) else { continue };
            let (board, slot) = (&core.board, PoolSlot(pool.slot.to_native()));
            let (load, room, waiting) = (board.pool_load(slot), board.room(slot, rank), board.waiting(slot));
            look.gates.push(GateLook { pool: row, load, room, waiting });
        }
    }
}
