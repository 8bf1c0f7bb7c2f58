//! Where a request is sent, and where it is sent next: its model, its model's fallbacks, and when nobody is in order
//! the one that comes back first.
//!
//! A request is tried again only before anything of an answer went to its client, only when no connection held or the
//! engine said 503 or 429, never at the same endpoint, and only as the core's retry budget allows. One that was sent as
//! a last resort is not tried again.

use std::fmt::Write as _;
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::scheduler::run::Seat;
use llmgw_router::session_table::Subject;
use llmgw_router::{Grant, Wanted};
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedEndpoint, ArchivedRouteTable};

use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::evidence::Trial;
use crate::snapshot::Tables;

/// Endpoints that a refusal names; there may be hundreds.
const NAMED_MAX: usize = 16;

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
}

/// A request's attempts.
pub(crate) struct Tries<'a> {
    core: &'a Core,
    tables: &'a Tables,
    wanted: Wanted<'a>,
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
    pub(crate) fn new(core: &'a Core, tables: &'a Tables, wanted: Wanted<'a>, session: Option<Subject>) -> Self {
        core.evidence.budget.borrow_mut().request(wanted.now);
        Self {
            core,
            tables,
            wanted,
            session,
            excluded: Vec::new(),
            retries_made: 0,
            is_last_resort: false,
            connect_left: core.settings.timeouts.connect,
            said: String::new(),
            had_connection: false,
        }
    }

    /// The first place.
    ///
    /// Errors: nobody can take the request; the message says of each why.
    pub(crate) fn first(&mut self, explanation: Option<&mut Explanation>) -> Result<Granted, ApiError> {
        let (now, mut explanation) = (self.wanted.now, explanation);
        if let Some(granted) = self.place(now, explanation.as_deref_mut()) {
            return Ok(granted);
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
                return Ok(Granted { grant, model, trial: None, connect: self.connect_left });
            }
        }
        drop(dispatcher);
        Err(self.nobody())
    }

    /// The next place after an attempt at `slot` that came to nothing, if there is to be one.
    pub(crate) fn next(
        &mut self,
        slot: BoardSlot,
        why: Why,
        now: Mono,
        mut explanation: Option<&mut Explanation>,
    ) -> Option<Granted> {
        // What only one endpoint can serve has no other place.
        let has_others = !self.is_last_resort && self.wanted.pinned.is_none();
        if !has_others || self.retries_made >= self.core.settings.retries {
            return None;
        }
        self.excluded.push(slot);
        self.retries_made += 1;
        let granted = self.place(now, explanation.as_deref_mut())?;
        if !self.core.evidence.budget.borrow_mut().take(now) {
            self.core.cells.retries_refused.increment();
            if let Some(explanation) = explanation {
                explanation.is_over_budget = true;
            }
            return None;
        }
        if let Some(count) = self.core.cells.retries.get(why as usize) {
            count.increment();
        }
        Some(granted)
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

    fn place(&mut self, now: Mono, mut explanation: Option<&mut Explanation>) -> Option<Granted> {
        let core = self.core;
        if let Some(explanation) = explanation.as_deref_mut() {
            explanation.attempt = u32::from(self.retries_made) + 1;
        }
        for model in self.models() {
            loop {
                let wanted = Wanted { model, excluded: &self.excluded, now, ..self.wanted };
                let mut dispatcher = core.dispatcher.borrow_mut();
                let grant = dispatcher.dispatch(self.tables.map(), &wanted, explanation.as_deref_mut());
                core.cells.decisions.count(&dispatcher.take_tally());
                drop(dispatcher);
                let Ok(grant) = grant else { break };
                match core.evidence.trial(grant.slot, now) {
                    Ok(trial) => {
                        self.remember(model, &grant);
                        let connect = self.connect_share(grant.slot, now);
                        return Some(Granted { grant, model, trial, connect });
                    }
                    // Another core took it in between.
                    Err(()) if self.wanted.pinned.is_some() => break,
                    Err(()) => self.excluded.push(grant.slot),
                }
            }
        }
        None
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
