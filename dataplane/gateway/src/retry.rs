//! Where a request is sent, and where it is sent next: its model, its model's fallbacks, and when nobody is in order
//! the one that comes back first.
//!
//! A request is tried again only before anything of an answer went to its client, only when no connection held or the
//! engine said 503 or 429, never at the same endpoint, and only as the core's retry budget allows. One that was sent as
//! a last resort is not tried again.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_router::dispatcher::Held;
use llmgw_router::prefix::Decision;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::scheduler::run::Seat;
use llmgw_router::session_table::Subject;
use llmgw_router::{Grant, Wanted};
use llmgw_types::snapshot::{ArchivedEndpoint, ArchivedRouteTable};
use llmgw_types::{BoardSlot, PoolIdx, PoolSlot};

use crate::admission::{NoPlace, Place, Waiting};
use crate::arrived::Resolved;
use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::evidence::Trial;
use crate::gates::AtGates;
use crate::identity::Withheld;
use crate::intake::Intake;
use crate::prompt::{Read, Sent, model_row};
use crate::snapshot::Tables;

/// Endpoints that a refusal names; there may be hundreds.
const NAMED_MAX: usize = 16;
/// How often a request that waits is decided anew, because those it waited for are gone.
const ANEW_MAX: u16 = 3;

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
    /// Its prompt, where somebody looked for it.
    pub(crate) sent: Option<Sent>,
}

/// What its caller's key makes of where a request may go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// Of its model's fallbacks.
    pub(crate) withheld: Withheld,
    /// The endpoint it is pinned to was named by its client: where that cannot take it, another may.
    pub(crate) leaves_pin: bool,
}

/// What comes of looking for a place.
pub(crate) enum Step<'a> {
    Go(Granted),
    /// Those who could serve it have no room: it waits.
    Wait(Waiting<'a>),
}

/// A request's attempts.
pub(crate) struct Tries<'a> {
    core: &'a Core,
    tables: Rc<Tables>,
    wanted: Wanted<'a>,
    bounds: Bounds,
    /// Whose prompt is looked for; none where the route has none.
    prompt: Option<&'a Intake>,
    at_gates: AtGates,
    /// Its session, where that may be away from its own engine.
    session: Option<Subject>,
    excluded: Vec<BoardSlot>,
    retries_made: u16,
    /// How often it was decided anew while it waited.
    anew_count: u16,
    is_last_resort: bool,
    /// What is left of the time for connections.
    connect_left: Duration,
    /// What came of the attempts that ended without an answer.
    said: String,
    had_connection: bool,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(core: &'a Core, tables: Rc<Tables>, resolved: &Resolved, intake: &'a Intake) -> Self {
        let Resolved { wanted, at_gates, bounds, .. } = *resolved;
        let session = resolved.routing.subject();
        core.evidence.budget.borrow_mut().request(wanted.now);
        Self {
            core,
            tables,
            wanted,
            bounds,
            // What takes no place in a batch has no prompt to prefill.
            prompt: Some(intake).filter(|_| at_gates.takes_places),
            at_gates,
            session,
            excluded: Vec::new(),
            retries_made: 0,
            anew_count: 0,
            is_last_resort: false,
            connect_left: core.settings.timeouts.connect,
            said: String::new(),
            had_connection: false,
        }
    }

    /// The core that it is on.
    pub(crate) fn core(&self) -> &'a Core {
        self.core
    }

    /// The tables by which it goes.
    pub(crate) fn tables(&self) -> &Rc<Tables> {
        &self.tables
    }

    /// Whether it may be decided anew while it waits, once more.
    pub(crate) fn goes_anew(&mut self) -> bool {
        let goes = self.anew_count < ANEW_MAX;
        self.anew_count += u16::from(goes);
        goes
    }

    /// Goes by newer tables. Where it was tried it still was.
    pub(crate) fn keep_to(&mut self, tables: Rc<Tables>, resolved: &Resolved) {
        (self.tables, self.wanted) = (tables, resolved.wanted);
        (self.at_gates, self.bounds) = (resolved.at_gates, resolved.bounds);
    }

    /// The rows of its model and of those that may stand in for it.
    fn models<'t>(&self, table: &'t ArchivedRouteTable) -> impl Iterator<Item = u32> + use<'t> {
        models(table, self.wanted.model, self.bounds.withheld)
    }

    /// Lets it go elsewhere than to the endpoint that its client named. Answer: whether it was bound to that.
    fn leave_pin(&mut self) -> bool {
        self.bounds.leaves_pin && self.wanted.pinned.take().is_some()
    }

    /// Whether only one endpoint can serve it.
    fn is_bound(&self) -> bool {
        self.wanted.pinned.is_some() && !self.bounds.leaves_pin
    }

    /// Whether nobody is left of those it waits for, and somebody else could serve it. Cost: a pass over the members of
    /// all pools that could.
    pub(crate) fn is_stranded(&self, waiting: &Waiting<'_>, now: Mono) -> bool {
        let table = self.tables.routes();
        let dispatcher = self.core.dispatcher.borrow();
        let mut has_others = false;
        let pinned = self.wanted.pinned.filter(|_| self.is_bound());
        for model in self.models(table) {
            let wanted = Wanted { model, excluded: &self.excluded, pinned, now, ..self.wanted };
            for row in table.models.get(model as usize).map(|route| route.pools.iter()).into_iter().flatten() {
                let row = PoolIdx(row.to_native());
                let Some(pool) = table.pools.get(row.idx()) else { continue };
                if !dispatcher.has_candidate(self.tables.map(), row, &wanted) {
                    continue;
                }
                if waiting.is_for(PoolSlot(pool.slot.to_native())) {
                    return false;
                }
                has_others = true;
            }
        }
        has_others
    }

    /// What it is told that waited in vain.
    pub(crate) fn no_place(&self, why: NoPlace, model: u32) -> ApiError {
        self.at_gates.no_place(&self.tables, why, model)
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
        if self.leave_pin()
            && let Some(step) = self.place(now, None, explanation.as_deref_mut())?
        {
            return Ok(step);
        }
        let tables = self.tables.clone();
        let mut dispatcher = self.core.dispatcher.borrow_mut();
        for model in self.models(tables.routes()) {
            let prompt = self.prompt(model);
            let wanted = Wanted { model, excluded: &self.excluded, ..self.wanted };
            let wanted = prompt.as_ref().map_or(wanted, |prompt| prompt.wanted(wanted));
            if let Ok(grant) = dispatcher.last_resort(tables.map(), &wanted) {
                self.core.cells.last_resorts.increment();
                self.is_last_resort = true;
                if let Some(explanation) = explanation {
                    explanation.last_resort = Some((model, grant.endpoint));
                }
                let place = self.at_gates.unasked(self.core, &tables, &grant);
                let (connect, sent) = (self.connect_left, prompt.map(|prompt| prompt.sent));
                return Ok(Step::Go(Granted { grant, model, trial: None, connect, place, sent }));
            }
        }
        drop(dispatcher);
        let row = model_row(self.tables.routes(), self.wanted.model).map_or(RowIdx::OTHER, RowIdx);
        self.core.cells.pools.at(row).count_decision(Decision::NoHealthyWorker);
        Err(self.nobody())
    }

    /// The request's prompt, as one of row `model`.
    fn prompt(&self, model: u32) -> Option<Read<'a>> {
        self.core.prompts.read(self.prompt?, self.tables.routes(), model)
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
        let has_others = !self.is_last_resort && !self.is_bound();
        if !has_others || self.retries_made >= self.core.settings.retries {
            return Ok(None);
        }
        self.leave_pin();
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
        if self.is_bound() {
            let message = format!("the replica that holds the response cannot be reached ({})", self.said);
            return ApiError::new(Reason::ResponseUnavailable, message);
        }
        ApiError::new(Reason::NoEndpoint, format!("no endpoint can take this request ({})", self.said))
    }

    fn place(
        &mut self,
        now: Mono,
        mut held: Option<(Place, u32)>,
        mut explanation: Option<&mut Explanation>,
    ) -> Result<Option<Step<'a>>, ApiError> {
        let (core, tables) = (self.core, self.tables.clone());
        if let Some(explanation) = explanation.as_deref_mut() {
            explanation.attempt = u32::from(self.retries_made) + 1;
        }
        for model in self.models(tables.routes()) {
            let prompt = self.prompt(model);
            loop {
                let wanted = Wanted { model, excluded: &self.excluded, now, ..self.wanted };
                let wanted = prompt.as_ref().map_or(wanted, |prompt| prompt.wanted(wanted));
                let own = held.take_if(|(_, of_model)| *of_model == model).map(|(place, _)| place);
                let admitted = self.at_gates.admit(core, &tables, &wanted, own, explanation.as_deref_mut());
                let (grant, place) = match admitted {
                    Ok(admitted) => admitted,
                    Err(Held::NoEndpoint) => break,
                    Err(Held::Shut(attempt)) => {
                        let wait = self.at_gates.wait(core, &tables, attempt, model, now);
                        return wait.map(|wait| Some(Step::Wait(wait)));
                    }
                };
                match core.evidence.trial(grant.slot, now) {
                    Ok(trial) => {
                        self.remember(model, &grant);
                        let connect = self.connect_share(grant.slot, now);
                        let sent = prompt.map(|prompt| prompt.sent);
                        return Ok(Some(Step::Go(Granted { grant, model, trial, connect, place, sent })));
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
        let table = self.tables.routes();
        let others = self
            .models(table)
            .flat_map(|model| members(table, model))
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
        let table = self.tables.routes();
        let all = self.models(table).flat_map(|model| members(table, model));
        for endpoint in all.take(NAMED_MAX) {
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

/// A model and those that may stand in for it.
fn models(table: &ArchivedRouteTable, model: u32, withheld: Withheld) -> impl Iterator<Item = u32> + use<'_> {
    let route = table.models.get(model as usize);
    let fallbacks = route.map(|route| route.fallbacks.iter().enumerate()).into_iter().flatten();
    let allowed = fallbacks.filter(move |(at, _)| !withheld.has(*at)).map(|(_, row)| row.to_native());
    std::iter::once(model).chain(allowed)
}

fn members(table: &ArchivedRouteTable, model: u32) -> impl Iterator<Item = &ArchivedEndpoint> {
    let pools = table.models.get(model as usize).map(|model| model.pools.iter()).into_iter().flatten();
    let pools = pools.filter_map(|pool| table.pools.get(pool.to_native() as usize));
    let members = pools.flat_map(|pool| pool.members.iter());
    members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize))
}
