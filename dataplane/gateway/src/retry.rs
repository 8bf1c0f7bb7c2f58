//! Where a request is sent, and where it is sent next: its model, its model's fallbacks, and when nobody is in order
//! the one that comes back first.
//!
//! A request is tried again only before anything of an answer went to its client, only when no connection held or the
//! engine said 503 or 429, never at the same endpoint, and only as the core's retry budget allows. One that was sent as
//! a last resort is not tried again.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_router::admission::{Attempt, Cells, PoolGate};
use llmgw_router::dispatcher::{AtGate, Held};
use llmgw_router::message::Refusal;
use llmgw_router::scheduler::explain::{AdmissionLook, Explanation, GateLook};
use llmgw_router::scheduler::run::Seat;
use llmgw_router::session_table::Subject;
use llmgw_router::{Board, Grant, Wanted};
use llmgw_runtime::owner::owner_of;
use llmgw_types::snapshot::{ArchivedEndpoint, ArchivedRouteTable};
use llmgw_types::{BandRank, BoardSlot, PoolSlot};

use crate::admission::{Asking, NoPlace, Place, Waiting};
use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::evidence::Trial;
use crate::snapshot::Tables;

/// Endpoints that a refusal names; there may be hundreds.
const NAMED_MAX: usize = 16;
/// Gates that an explanation shows.
const GATES_SHOWN: usize = 8;

/// Why a request is tried again: places in [`llmgw_router::metrics::RETRY_REASONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Connect = 0,
    Closed = 1,
    Unavailable = 2,
    Busy = 3,
}

impl Why {
    /// Whether an attempt that ended with this error may be followed by another.
    pub(crate) fn of_error(reason: Reason) -> Option<Self> {
        match reason {
            Reason::EngineUnreachable | Reason::EngineTls | Reason::ConnectTimeout => Some(Self::Connect),
            Reason::EngineClosed => Some(Self::Closed),
            _ => None,
        }
    }

    /// Whether an answer of this status may be followed by another attempt.
    pub(crate) fn of_status(status: u16) -> Option<Self> {
        match status {
            503 => Some(Self::Unavailable),
            429 => Some(Self::Busy),
            _ => None,
        }
    }
}

/// A place for an attempt.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    /// Row of the model it is served as.
    pub(crate) model: u32,
    /// Held while the request decides over a half-open endpoint.
    #[expect(dead_code, reason = "given back when it is dropped")]
    pub(crate) trial: Option<Trial>,
    /// For its connection.
    pub(crate) connect: Duration,
    /// Its place in the pool; none for what takes none.
    pub(crate) place: Option<Place>,
}

/// What comes of looking for a place.
pub(crate) enum Step<'a> {
    Go(Granted),
    /// Those who could serve it have no room: it waits.
    Wait(Waiting<'a>),
}

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

/// A request's attempts.
pub(crate) struct Tries<'a> {
    core: &'a Core,
    tables: &'a Tables,
    wanted: Wanted<'a>,
    at_gates: AtGates,
    /// Its session, where that may be away from its own engine.
    session: Option<Subject>,
    excluded: Vec<BoardSlot>,
    retries_made: u16,
    is_last_resort: bool,
    /// What is left of the time for connections.
    connect_left: Duration,
    /// What came of the attempts that ended without an answer.
    said: String,
    had_connection: bool,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(
        core: &'a Core,
        tables: &'a Tables,
        wanted: Wanted<'a>,
        at_gates: AtGates,
        session: Option<Subject>,
    ) -> Self {
        core.evidence.budget.borrow_mut().request(wanted.now);
        Self {
            core,
            tables,
            wanted,
            at_gates,
            session,
            excluded: Vec::new(),
            retries_made: 0,
            is_last_resort: false,
            connect_left: core.settings.timeouts.connect,
            said: String::new(),
            had_connection: false,
        }
    }

    /// The first place, or the wait for it. A request that has waited brings the place that it got in a pool of that
    /// model.
    ///
    /// Errors: nobody can take the request, and the message says of each why; or it may not even wait.
    pub(crate) fn first(
        &mut self,
        now: Mono,
        held: Option<(Place, u32)>,
        explanation: Option<&mut Explanation>,
    ) -> Result<Step<'a>, ApiError> {
        let mut explanation = explanation;
        if let Some(step) = self.place(now, held, explanation.as_deref_mut())? {
            return Ok(step);
        }
        let mut dispatcher = self.core.dispatcher.borrow_mut();
        for model in self.models() {
            let wanted = Wanted { model, excluded: &self.excluded, ..self.wanted };
            if let Ok(grant) = dispatcher.last_resort(self.tables.map(), &wanted) {
                self.core.cells.last_resorts.increment();
                self.is_last_resort = true;
                if let Some(explanation) = explanation {
                    explanation.last_resort = Some((model, grant.endpoint));
                }
                let place = self.unasked(&grant);
                let connect = self.connect_left;
                return Ok(Step::Go(Granted { grant, model, trial: None, connect, place }));
            }
        }
        drop(dispatcher);
        Err(self.nobody())
    }

    /// A place past the gate, so that the request counts there.
    fn unasked(&self, grant: &Grant) -> Option<Place> {
        let pool = self.tables.routes().pools.get(grant.pool.idx()).filter(|_| self.at_gates.takes_places)?;
        let owner = owner_of(pool.gate.to_native(), self.core.board.core_count());
        let place = self.core.admission.gate.unasked(PoolGate { slot: PoolSlot(pool.slot.to_native()), owner });
        place.runs_at(grant.slot);
        Some(place)
    }

    /// The next place after an attempt that came to nothing, if there is to be one, or the wait for it. `failed` is
    /// where it was made, with its place in a pool of that model: it keeps that for another endpoint of the same pool.
    ///
    /// Errors: it may not even wait.
    pub(crate) fn next(
        &mut self,
        failed: (BoardSlot, Option<Place>, u32),
        why: Why,
        now: Mono,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<Option<Step<'a>>, ApiError> {
        let (slot, place, model) = failed;
        // What only one endpoint can serve has no other place.
        let has_others = !self.is_last_resort && self.wanted.pinned.is_none();
        if !has_others || self.retries_made >= self.core.settings.retries {
            return Ok(None);
        }
        self.excluded.push(slot);
        self.retries_made += 1;
        let held = place.map(|place| (place, model));
        let Some(step) = self.place(now, held, explanation.as_deref_mut())? else { return Ok(None) };
        if !self.core.evidence.budget.borrow_mut().take(now) {
            self.core.cells.retries_refused.increment();
            if let Some(explanation) = explanation {
                explanation.is_over_budget = true;
            }
            return Ok(None);
        }
        if let Some(count) = self.core.cells.retries.get(why as usize) {
            count.increment();
        }
        Ok(Some(step))
    }

    /// Notes how an attempt ended that brought no answer.
    pub(crate) fn note(&mut self, error: &ApiError, connect: Duration) {
        match error.reason {
            Reason::ConnectTimeout => self.connect_left = self.connect_left.saturating_sub(connect),
            Reason::EngineUnreachable => {}
            _ => self.had_connection = true,
        }
        self.said.push_str(if self.said.is_empty() { "" } else { ", " });
        self.said.push_str(error.message.strip_prefix("replica ").unwrap_or(&error.message));
    }

    /// What the client is told when no attempt brought an answer and this was the last one.
    pub(crate) fn failed(self, error: ApiError) -> ApiError {
        let is_alone = self.retries_made == 0;
        if self.had_connection || is_alone && error.reason == Reason::ConnectTimeout {
            return error;
        }
        if self.wanted.pinned.is_some() {
            let message = format!("the replica that holds the response cannot be reached ({})", self.said);
            return ApiError::new(Reason::ResponseUnavailable, message);
        }
        ApiError::new(Reason::NoEndpoint, format!("no endpoint can take this request ({})", self.said))
    }

    /// The request's model and those that may stand in for it.
    fn models(&self) -> impl Iterator<Item = u32> + use<'a> {
        let model = self.wanted.model;
        let route = self.tables.routes().models.get(model as usize);
        let fallbacks = route.map(|route| route.fallbacks.iter().map(|row| row.to_native())).into_iter().flatten();
        std::iter::once(model).chain(fallbacks)
    }

    fn place(
        &mut self,
        now: Mono,
        mut held: Option<(Place, u32)>,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<Option<Step<'a>>, ApiError> {
        let core = self.core;
        if let Some(explanation) = explanation.as_deref_mut() {
            explanation.attempt = u32::from(self.retries_made) + 1;
        }
        for model in self.models() {
            loop {
                let wanted = Wanted { model, excluded: &self.excluded, now, ..self.wanted };
                let own = held.take_if(|(_, of_model)| *of_model == model).map(|(place, _)| place);
                let admitted = self.admit(&wanted, own, explanation.as_deref_mut());
                if let Some(explanation) = explanation.as_deref_mut().filter(|_| self.at_gates.takes_places) {
                    self.look(model, explanation);
                }
                let (grant, place) = match admitted {
                    Ok(admitted) => admitted,
                    Err(Held::NoEndpoint) => break,
                    Err(Held::Shut(attempt)) => {
                        return self.wait(attempt, model, now).map(|wait| Some(Step::Wait(wait)));
                    }
                };
                match core.evidence.trial(grant.slot, now) {
                    Ok(trial) => {
                        self.remember(model, &grant);
                        let connect = self.connect_share(grant.slot, now);
                        return Ok(Some(Step::Go(Granted { grant, model, trial, connect, place })));
                    }
                    // Another core took it in between.
                    Err(()) if self.wanted.pinned.is_some() => break,
                    Err(()) => {
                        self.excluded.push(grant.slot);
                        held = place.map(|place| (place, model));
                    }
                }
            }
        }
        Ok(None)
    }

    /// An endpoint in the pool in which the request holds a place, else in the first whose gate it passes.
    fn admit(
        &self,
        wanted: &Wanted<'_>,
        own: Option<Place>,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<(Grant, Option<Place>), Held<Arc<Board>>> {
        let (core, map) = (self.core, self.tables.map());
        let mut dispatcher = core.dispatcher.borrow_mut();
        let in_own = own.and_then(|place| {
            let grant = dispatcher.dispatch_in(map, wanted, &place, explanation.as_deref_mut());
            grant.ok().map(|grant| (grant, Some(place)))
        });
        let admitted = match in_own {
            Some(admitted) => Ok(admitted),
            None if self.at_gates.takes_places => {
                let (band, row) = self.band(wanted.model);
                let at = AtGate { gate: &core.admission.gate, band, owner_of };
                let looks = explanation.as_ref().map_or(0, |explanation| explanation.pools.len());
                let admitted = dispatcher.admit(map, wanted, at, explanation.as_deref_mut());
                if let Some(explanation) = explanation.filter(|explanation| explanation.pools.len() == looks)
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
                dispatcher.dispatch(map, wanted, explanation).map(|grant| (grant, None)).map_err(|_| Held::NoEndpoint)
            }
        };
        core.cells.decisions.count(&dispatcher.take_tally());
        admitted
    }

    /// The rank of the request's band at a model, which may stand in for its own, and where that is counted.
    fn band(&self, model: u32) -> (BandRank, RowIdx) {
        let Some(route) = self.tables.routes().models.get(model as usize) else { return (BandRank(1), RowIdx::OTHER) };
        let bands = &route.admission.bands;
        let at = self.at_gates.band.min(bands.len().saturating_sub(1));
        let row = bands.get(at).map_or(RowIdx::OTHER, |band| RowIdx(band.metric_row.to_native()));
        // Bands are few: the table is refused where they are not.
        (BandRank(u8::try_from(at + 1).unwrap_or(u8::MAX)), row)
    }

    fn wait(&self, attempt: Attempt<Arc<Board>>, model: u32, now: Mono) -> Result<Waiting<'a>, ApiError> {
        let table = self.tables.routes();
        let shut = attempt.shut().first().map(|pool| pool.slot);
        let gate = table.pools.iter().find(|pool| Some(PoolSlot(pool.slot.to_native())) == shut);
        let ttl = table.models.get(model as usize).map_or(0, |route| route.admission.queue_ttl_ms.to_native());
        let AtGates { tenant, cost, bytes, deadline, .. } = self.at_gates;
        let deadline = deadline.min(now + Duration::from_millis(ttl.into()));
        let (_, row) = self.band(model);
        let asking = Asking { row, tenant, cost, bytes, deadline };
        let gate = (gate.map_or(0, |pool| pool.gate.to_native()), table.generation.to_native());
        self.core.admission.wait(attempt, gate, model, &asking, now).map_err(|why| self.no_place(why, model))
    }

    /// What a request is told that waited in vain, or may not wait.
    pub(crate) fn no_place(&self, why: NoPlace, model: u32) -> ApiError {
        let admission = self.tables.routes().models.get(model as usize).map(|route| &route.admission);
        let band = admission.and_then(|admission| admission.bands.get(self.at_gates.band));
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

    /// Notes what stands at the gates of a model's pools.
    fn look(&self, model: u32, explanation: &mut Explanation) {
        let (rank, _) = self.band(model);
        let table = self.tables.routes();
        let look = explanation.admission.get_or_insert_with(AdmissionLook::default);
        (look.model, look.band) = (model, rank.idx().saturating_sub(1));
        look.gates.clear();
        let rows = table.models.get(model as usize).map(|route| route.pools.iter()).into_iter().flatten();
        for row in rows.map(|row| row.to_native()).take(GATES_SHOWN) {
            let Some(pool) = table.pools.get(row as usize) else { continue };
            let (board, slot) = (&self.core.board, PoolSlot(pool.slot.to_native()));
            let (load, room, waiting) = (board.pool_load(slot), board.room(slot, rank), board.waiting(slot));
            look.gates.push(GateLook { pool: row, load, room, waiting });
        }
    }

    /// Tells the session's owner where it is, when that is another endpoint than was known.
    fn remember(&mut self, model: u32, grant: &Grant) {
        let Some(session) = self.session.filter(|_| model == self.wanted.model) else { return };
        let away = match grant.seat {
            Seat::Unasked => return,
            Seat::Own => None,
            Seat::Away => Some(grant.slot),
        };
        if std::mem::replace(&mut self.wanted.away, away) != away {
            self.core.sessions.tell(session, away);
        }
    }

    /// All connections of a request together get the time for one, so that it is known in that time that nobody can be
    /// reached. Each gets an equal share of what is left; one that has no alternative gets all.
    fn connect_share(&self, slot: BoardSlot, now: Mono) -> Duration {
        let retries_left = usize::from(self.core.settings.retries.saturating_sub(self.retries_made));
        let others = self
            .models()
            .flat_map(|model| members(self.tables.routes(), model))
            .filter(|endpoint| {
                let other = BoardSlot(endpoint.slot.to_native());
                let cells = self.core.board.endpoint(other);
                let is_usable = cells.is_ready() && !cells.is_draining() && now >= cells.out_until();
                is_usable && other != slot && !self.excluded.contains(&other)
            })
            .take(retries_left)
            .count();
        self.connect_left / u32::try_from(others + 1).unwrap_or(1)
    }

    /// Names who cannot serve and why; addresses stay in the log.
    fn nobody(&self) -> ApiError {
        let now = Mono::now();
        let mut who = String::new();
        for endpoint in self.models().flat_map(|model| members(self.tables.routes(), model)).take(NAMED_MAX) {
            let cells = self.core.board.endpoint(BoardSlot(endpoint.slot.to_native()));
            let why = if endpoint.addr.is_none() {
                "name not resolved"
            } else if !cells.is_ready() {
                "not ready"
            } else if cells.is_draining() {
                "draining"
            } else if now < cells.out_until() {
                "failed a moment ago"
            } else {
                "ready now"
            };
            let comma = if who.is_empty() { "" } else { ", " };
            // A String takes everything.
            let _ = write!(who, "{comma}{}: {why}", endpoint.name.as_str());
        }
        ApiError::new(Reason::NoEndpoint, format!("no endpoint can take this request ({who})"))
    }
}

fn members(table: &ArchivedRouteTable, model: u32) -> impl Iterator<Item = &ArchivedEndpoint> {
    let pools = table.models.get(model as usize).map(|model| model.pools.iter()).into_iter().flatten();
    let pools = pools.filter_map(|pool| table.pools.get(pool.to_native() as usize));
    let members = pools.flat_map(|pool| pool.members.iter());
    members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize))
}
