//! A request whose body is at hand, and what the tables of the moment make of it: its model, its wishes, who holds what
//! it follows.
//!
//! Called by `serve` when the body has come, and by `submit` once more where those a request waited for are gone. Sends
//! nothing to clients or engines.

use std::borrow::Cow;

use llmgw_http::head::RequestHead;
use llmgw_kit::clock::Mono;
use llmgw_router::Wanted;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::tenants::Caller;

use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::gates::AtGates;
use crate::handlers::stored;
use crate::identity::{Rights, Withheld};
use crate::intake::Intake;
use crate::resolve;
use crate::retry::Bounds;
use crate::routing::Routing;
use crate::snapshot::Tables;

/// Names the replica that is to answer, for keys that may.
const REPLICA: &str = "x-llmgw-replica";

/// What a request is, whatever the tables say.
pub(crate) struct Arrived<'a> {
    pub(crate) head: &'a RequestHead,
    /// Who sends it; none where nobody is asked for a key.
    pub(crate) caller: Option<Caller>,
    pub(crate) intake: &'a Intake,
    /// Public name of the model that stands in for its own, whose budget is spent.
    pub(crate) instead: Option<String>,
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
    pub(crate) bounds: Bounds,
}

impl Arrived<'_> {
    /// What the request is by these tables.
    ///
    /// Errors: its model, its band or its profile is not there, or not for its caller; the response that it follows is
    /// held by an endpoint that cannot take it.
    pub(crate) async fn resolve(&self, core: &Core, tables: &Tables) -> Result<Resolved, ApiError> {
        let mut resolved = core.with_rights(self.caller.as_ref(), |rights| self.decide(core, tables, rights))?;
        self.locate(core, tables, &mut resolved).await?;
        Ok(resolved)
    }

    fn decide(&self, core: &Core, tables: &Tables, rights: Option<Rights<'_>>) -> Result<Resolved, ApiError> {
        let (table, intake) = (tables.routes(), self.intake);
        let name = self.instead.as_deref().map_or_else(|| intake.model(), Cow::Borrowed);
        let model = resolve::model(table, rights, &name)?;
        let route = table.models.get(model as usize);
        let withheld = route.map(|route| Withheld::of(rights, table, route)).unwrap_or_default();
        let tokens = u32::try_from(intake.prompt_tokens_estimate()).unwrap_or(u32::MAX);
        let routing = Routing::of(self.head, intake, table, model, rights.zip(self.caller.as_ref()))?;
        let pinned = route.zip(rights).map(|(route, rights)| pinned(core, self, table, route, rights)).transpose()?;
        let pinned = pinned.flatten();
        let wanted = Wanted { pinned, ..routing.wanted(model, tokens, self.received) };
        let at_gates = routing.at_gates(intake, self.caller.as_ref(), tokens, self.takes_places, self.deadline);
        let bounds = Bounds { withheld, leaves_pin: pinned.is_some() };
        Ok(Resolved { routing, wanted, at_gates, bounds })
    }

    /// Completes what a request wants by what the owner of its stored response, or of its session, knows.
    ///
    /// Errors: the response that it follows is held by an endpoint that cannot take it.
    async fn locate(&self, core: &Core, tables: &Tables, resolved: &mut Resolved) -> Result<(), ApiError> {
        let Resolved { routing, wanted, bounds, .. } = resolved;
        if let Some(id) = self.intake.previous_response() {
            if let Some(holder) = stored::holder(core, self.caller.as_ref(), &id).await {
                let slot = stored::reach(core, tables, holder, &id, Some(wanted.model));
                wanted.pinned = Some(slot.map_err(|error| error.about("previous_response_id"))?);
                bounds.leaves_pin = false;
            }
            return Ok(());
        }
        if let Some(session) = routing.subject() {
            let away = core.sessions.locate(session).await.filter(|holder| core.board.is_current(*holder));
            wanted.away = away.map(|holder| holder.slot);
        }
        Ok(())
    }
}

/// The endpoint that the client names, where it may and that one serves the model and takes requests at this moment.
///
/// Errors: it may not name any.
fn pinned(
    core: &Core,
    arrived: &Arrived<'_>,
    table: &ArchivedRouteTable,
    route: &ArchivedModelRoute,
    rights: Rights<'_>,
) -> Result<Option<BoardSlot>, ApiError> {
    let Some(name) = arrived.head.header(REPLICA) else { return Ok(None) };
    if !rights.may_pin_replica() {
        let message = format!("this key may not name the replica that is to answer ({REPLICA})");
        return Err(ApiError::new(Reason::ReplicaNotAllowed, message));
    }
    let named = table.endpoints.iter().find(|endpoint| endpoint.name.as_bytes() == name);
    Ok(named.map(|endpoint| BoardSlot(endpoint.slot.to_native())).filter(|slot| {
        let cells = core.board.endpoint(*slot);
        let takes = cells.is_ready() && !cells.is_draining() && arrived.received >= cells.out_until();
        takes && stored::serves(table, route, *slot)
    }))
}
