//! Where a request is sent, and where it is sent next: the rules of the gateway's own `retry`, with a lock around each
//! decision.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::identity::Withheld;
use llmgw_gateway::intake::Intake;
use llmgw_kit::clock::Mono;
use llmgw_router::dispatcher::first_back;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::{Choice, NoEndpoint, View, Wanted};
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedEndpoint, ArchivedRouteTable};

use crate::prompt::{self, Placed};
use crate::state::{CORE, Deciding, Gateway, Trial};
use crate::tables::Tables;

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
    pub(crate) fn of_error(reason: Reason) -> Option<Self> {
        match reason {
            Reason::EngineUnreachable | Reason::EngineTls | Reason::ConnectTimeout => Some(Self::Connect),
            Reason::EngineClosed => Some(Self::Closed),
            _ => None,
        }
    }

    pub(crate) fn of_status(status: u16) -> Option<Self> {
        match status {
            503 => Some(Self::Unavailable),
            429 => Some(Self::Busy),
            _ => None,
        }
    }
}

/// A place for an attempt; the request counts there until this is dropped.
pub(crate) struct Granted {
    pub(crate) choice: Choice,
    /// Row of the model it is served as.
    pub(crate) model: u32,
    /// For its connection.
    pub(crate) connect: Duration,
    #[expect(dead_code, reason = "held while the request decides over a half-open endpoint")]
    trial: Option<Trial>,
    /// Its prompt, for whoever sees the answer.
    pub(crate) prompt: Placed,
    tokens: u32,
    gateway: Arc<Gateway>,
}

impl Drop for Granted {
    fn drop(&mut self) {
        let Self { gateway, choice, tokens, prompt, .. } = self;
        gateway.decide(|_| {
            gateway.board.lower(CORE, choice.slot, *tokens);
            prompt.prefilling = None;
        });
    }
}

/// What its caller's key makes of where a request may go.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// Of its model's fallbacks.
    pub(crate) withheld: Withheld,
    /// The endpoint it is pinned to was named by its client: where that cannot take it, another may.
    pub(crate) leaves_pin: bool,
}

/// A request's attempts.
pub(crate) struct Tries<'a> {
    gateway: &'a Arc<Gateway>,
    tables: &'a Tables,
    wanted: Wanted<'a>,
    bounds: Bounds,
    /// Whose prompt is looked for; none where the route has none.
    prompt: Option<&'a Intake>,
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
        gateway: &'a Arc<Gateway>,
        tables: &'a Tables,
        (wanted, bounds): (Wanted<'a>, Bounds),
        prompt: Option<&'a Intake>,
    ) -> Self {
        Self {
            gateway,
            tables,
            wanted,
            bounds,
            prompt,
            excluded: Vec::new(),
            retries_made: 0,
            is_last_resort: false,
            connect_left: tables.settings().timeouts.connect,
            said: String::new(),
            had_connection: false,
        }
    }

    /// The first place.
    ///
    /// Errors: nobody can take the request; the message says of each why.
    pub(crate) fn first(&mut self, explanation: Option<&mut Explanation>) -> Result<Granted, ApiError> {
        let now = self.wanted.now;
        if let Some(granted) = self.place(now, explanation, Budget::Counts) {
            return Ok(granted);
        }
        for model in self.models() {
            let wanted = Wanted { model, excluded: &self.excluded, ..self.wanted };
            let board = &self.gateway.board;
            let chosen = self.choose(wanted, |_, wanted| first_back(board, self.tables.routes(), wanted));
            if let Ok(chosen) = chosen {
                self.gateway.count(|cells| cells.last_resorts.increment());
                self.is_last_resort = true;
                return Ok(self.granted(chosen, model, None, self.connect_left));
            }
        }
        self.gateway.decided_nobody(self.tables.routes(), self.wanted.model);
        Err(self.nobody())
    }

    /// The next place after an attempt at `slot` that came to nothing, if there is to be one.
    pub(crate) fn next(&mut self, slot: BoardSlot, why: Why, now: Mono) -> Option<Granted> {
        if self.is_last_resort || self.retries_made >= self.tables.settings().retries {
            return None;
        }
        self.excluded.push(slot);
        self.retries_made += 1;
        let granted = self.place(now, None, Budget::Waits)?;
        if !self.gateway.decide(|deciding| deciding.budget.take(now)) {
            self.gateway.count(|cells| cells.retries_refused.increment());
            return None;
        }
        self.gateway.count(|cells| cells.retries.get(why as usize).map(|count| count.increment()));
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
        ApiError::new(Reason::NoEndpoint, format!("no endpoint can take this request ({})", self.said))
    }

    /// The request's model and those that may stand in for it.
    fn models(&self) -> impl Iterator<Item = u32> + use<'a> {
        let model = self.wanted.model;
        let route = self.tables.routes().models.get(model as usize);
        let withheld = self.bounds.withheld;
        let fallbacks = route.map(|route| route.fallbacks.iter()).into_iter().flatten().enumerate();
        let allowed = fallbacks.filter(move |(at, _)| !withheld.has(*at)).map(|(_, row)| row.to_native());
        std::iter::once(model).chain(allowed)
    }

    fn place(&mut self, now: Mono, mut explanation: Option<&mut Explanation>, budget: Budget) -> Option<Granted> {
        if let Some(granted) = self.place_as_wanted(now, explanation.as_deref_mut(), budget) {
            return Some(granted);
        }
        if !self.bounds.leaves_pin || self.wanted.pinned.take().is_none() {
            return None;
        }
        self.place_as_wanted(now, explanation, Budget::Waits)
    }

    fn place_as_wanted(
        &mut self,
        now: Mono,
        mut explanation: Option<&mut Explanation>,
        mut budget: Budget,
    ) -> Option<Granted> {
        let (gateway, tables) = (self.gateway, self.tables);
        let view = View { board: &gateway.board, core: CORE, map: tables.map() };
        for model in self.models() {
            loop {
                let wanted = Wanted { model, excluded: &self.excluded, now, ..self.wanted };
                let chosen = self.choose(wanted, |deciding, wanted| {
                    if std::mem::replace(&mut budget, Budget::Waits) == Budget::Counts {
                        deciding.budget.request(now);
                    }
                    deciding.decider.choose(view, wanted, explanation.as_deref_mut())
                });
                let Ok(chosen) = chosen else { break };
                let slot = chosen.choice.slot;
                let connect = self.connect_share(slot, now);
                match gateway.trial(slot, now) {
                    Ok(trial) => return Some(self.granted(chosen, model, trial, connect)),
                    // Another request took it in between.
                    Err(()) => {
                        drop(self.granted(chosen, model, None, connect));
                        self.excluded.push(slot);
                    }
                }
            }
        }
        None
    }

    /// Chooses by the request's prompt and counts what was chosen, under one lock.
    fn choose(
        &self,
        wanted: Wanted<'_>,
        choose: impl FnOnce(&mut Deciding, &Wanted<'_>) -> Result<Choice, NoEndpoint>,
    ) -> Result<Chosen, NoEndpoint> {
        let (gateway, tables) = (self.gateway, self.tables);
        let view = View { board: &gateway.board, core: CORE, map: tables.map() };
        prompt::with(gateway, self.prompt, tables.routes(), wanted.model, |found| {
            let (fingerprint, sent) = found.unzip();
            gateway.decide(|deciding| {
                let tokens = sent.and_then(|sent| sent.tokens(deciding)).unwrap_or(wanted.tokens);
                let wanted = Wanted { prompt: fingerprint, tokens, ..wanted };
                let choice = choose(deciding, &wanted)?;
                gateway.board.raise(CORE, choice.slot, tokens);
                let prefilling = deciding.decider.placed(view, &choice, &wanted);
                gateway.decided(tables.routes(), &choice);
                Ok(Chosen { choice, tokens, prompt: Placed { sent, reuse: choice.reuse, prefilling } })
            })
        })
    }

    /// What was counted up goes down with this.
    fn granted(&self, chosen: Chosen, model: u32, trial: Option<Trial>, connect: Duration) -> Granted {
        let Chosen { choice, tokens, prompt } = chosen;
        Granted { choice, model, connect, trial, prompt, tokens, gateway: self.gateway.clone() }
    }

    /// Each connection of a request gets an equal share of what is left of the time for one; one that has no
    /// alternative gets all.
    fn connect_share(&self, slot: BoardSlot, now: Mono) -> Duration {
        let retries_left = usize::from(self.tables.settings().retries.saturating_sub(self.retries_made));
        let others = self
            .models()
            .flat_map(|model| members(self.tables.routes(), model))
            .filter(|endpoint| {
                let other = BoardSlot(endpoint.slot.to_native());
                let cells = self.gateway.board.endpoint(other);
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
            let cells = self.gateway.board.endpoint(BoardSlot(endpoint.slot.to_native()));
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

/// What was chosen, and counted.
struct Chosen {
    choice: Choice,
    tokens: u32,
    prompt: Placed,
}

/// Whether a decision adds to the requests that pay for retries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Budget {
    Counts,
    Waits,
}

fn members(table: &ArchivedRouteTable, model: u32) -> impl Iterator<Item = &ArchivedEndpoint> {
    let pools = table.models.get(model as usize).map(|model| model.pools.iter()).into_iter().flatten();
    let pools = pools.filter_map(|pool| table.pools.get(pool.to_native() as usize));
    let members = pools.flat_map(|pool| pool.members.iter());
    members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize))
}
