//! What a request's key lets it do. Called by `serve` and `stored`; the rules are the gateway's own.

use hyper::http::request::Parts;
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::identity::{Rights, Stranger};
use llmgw_gateway::route::Route;
use llmgw_kit::clock::Mono;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::ArchivedModelRoute;
use llmgw_types::tenants::Caller;

use crate::finish::Finish;
use crate::headers::X_REPLICA;
use crate::keys::Pass;
use crate::state::Gateway;
use crate::stored;
use crate::tables::Tables;

/// Notes who asks, where that is asked for.
///
/// Errors: why it is not let in.
pub(crate) fn identify(
    gateway: &Gateway,
    route: &Route<'_>,
    head: &Parts,
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let Some(keys) = gateway.keys.as_ref().filter(|_| route.needs_key()) else { return Ok(()) };
    let (caller, refused) = match keys.identify(&head.headers, finish.began_wall()) {
        Ok(caller) => (Some(caller), Ok(())),
        Err(Stranger { error, caller }) => (caller.map(|caller| *caller), Err(error)),
    };
    finish.account.caller = caller;
    refused
}

/// Asks what a caller may by the table of this moment; all, where there is no caller.
///
/// Errors: its key works no more; what `ask` says.
pub(crate) fn with_rights<T>(
    gateway: &Gateway,
    caller: Option<Caller>,
    ask: impl FnOnce(Option<Rights<'_>>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let pass = gateway.pass(caller)?;
    ask(pass.as_ref().map(Pass::rights).transpose()?)
}

/// The endpoint that the client names, where it may and that one serves the model and takes requests at this moment.
///
/// Errors: it may not name any.
pub(crate) fn named(
    gateway: &Gateway,
    tables: &Tables,
    head: &Parts,
    model: &ArchivedModelRoute,
    rights: Rights<'_>,
) -> Result<Option<BoardSlot>, ApiError> {
    let Some(name) = head.headers.get(X_REPLICA) else { return Ok(None) };
    if !rights.may_pin_replica() {
        let message = format!("this key may not name the replica that is to answer ({X_REPLICA})");
        return Err(ApiError::new(Reason::ReplicaNotAllowed, message));
    }
    let table = tables.routes();
    let endpoint = table.endpoints.iter().find(|endpoint| endpoint.name.as_bytes() == name.as_bytes());
    Ok(endpoint.map(|endpoint| BoardSlot(endpoint.slot.to_native())).filter(|slot| {
        let cells = gateway.board.endpoint(*slot);
        let takes = cells.is_ready() && !cells.is_draining() && Mono::now() >= cells.out_until();
        takes && stored::serves(table, model, *slot)
    }))
}
