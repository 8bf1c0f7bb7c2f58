//! A request whose body is at hand, and what the tables of the moment make of it: its model, its wishes, who holds what
//! it follows.
//!
//! Called by `serve` when the body has come, and by `submit` once more where those a request waited for are gone. Sends
//! nothing to clients or engines.

use llmgw_http::head::RequestHead;
use llmgw_kit::clock::Mono;
use llmgw_router::Wanted;

use crate::core::Core;
use crate::error::ApiError;
use crate::gates::AtGates;
use crate::handlers::stored;
use crate::intake::Intake;
use crate::resolve;
use crate::routing::Routing;
use crate::snapshot::Tables;

/// What a request is, whatever the tables say.
pub(crate) struct Arrived<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) intake: &'a Intake,
    /// Whether its route takes places in batches.
    pub(crate) takes_places: bool,
    /// The client asked for a stream of events and the route has them.
    pub(crate) is_streaming: bool,
    /// When its body had come.
    pub(crate) received: Mono,
    /// When the whole request is over.
    pub(crate) deadline: Mono,
}

/// What it is by one set of tables.
pub(crate) struct Resolved {
    pub(crate) routing: Routing,
    pub(crate) wanted: Wanted<'static>,
    pub(crate) at_gates: AtGates,
}

impl Arrived<'_> {
    /// What the request is by these tables.
    ///
    /// Errors: its model, its band or its profile is not there; the response that it follows is held by an endpoint
    /// that cannot take it.
    pub(crate) async fn resolve(&self, core: &Core, tables: &Tables) -> Result<Resolved, ApiError> {
        let (table, intake) = (tables.routes(), self.intake);
        let model = resolve::model(table, &intake.model())?;
        let tokens = u32::try_from(intake.prompt_tokens_estimate()).unwrap_or(u32::MAX);
        let routing = Routing::of(self.head, intake, table, model)?;
        let wanted = routing.wanted(model, tokens, self.received);
        let at_gates = routing.at_gates(intake, tokens, self.takes_places, self.deadline);
        let wanted = locate(core, tables, intake, &routing, wanted).await?;
        Ok(Resolved { routing, wanted, at_gates })
    }
}

/// Completes what a request wants by what the owner of its stored response, or of its session, knows.
///
/// Errors: the response that it follows is held by an endpoint that cannot take it.
async fn locate(
    core: &Core,
    tables: &Tables,
    intake: &Intake,
    routing: &Routing,
    wanted: Wanted<'static>,
) -> Result<Wanted<'static>, ApiError> {
    if let Some(id) = intake.previous_response() {
        let Some(holder) = stored::holder(core, &id).await else { return Ok(wanted) };
        let slot = stored::reach(core, tables, holder, &id, Some(wanted.model));
        return Ok(Wanted { pinned: Some(slot.map_err(|error| error.about("previous_response_id"))?), ..wanted });
    }
    let Some(session) = routing.subject() else { return Ok(wanted) };
    let away = core.sessions.locate(session).await.filter(|holder| core.board.is_current(*holder));
    Ok(Wanted { away: away.map(|holder| holder.slot), ..wanted })
}
