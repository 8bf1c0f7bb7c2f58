//! Requests about a stored response: they go to the engine that holds it, for which no other one can answer.

use std::sync::Arc;

use hyper::Method;
use hyper::http::request::Parts;
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::identity::{Rights, scope};
use llmgw_gateway::route::{Act, Stored};
use llmgw_kit::clock::Mono;
use llmgw_openai::tap::Withhold;
use llmgw_router::Wanted;
use llmgw_router::session::key_hash;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};

use crate::attempt::{self, Asked};
use crate::finish::Finish;
use crate::keys::Pass;
use crate::retry::{Bounds, Tries};
use crate::serve::{Body, Client, Outcome, Reply, Told, holder, is_event_stream, metric_row, open, target, units};
use crate::tables::Tables;

/// Reads, deletes or cancels a stored response at its engine.
pub(crate) async fn serve(
    client: &Client,
    tables: &Arc<Tables>,
    head: &Parts,
    stored: Stored<'_>,
    query: &str,
    mut finish: Box<Finish>,
) -> Outcome {
    match ask(client, tables, head, stored, query, &mut finish).await {
        Ok(reply) => reply.respond(client, tables, finish).await,
        Err(error) => Err((error, finish)),
    }
}

async fn ask(
    client: &Client,
    tables: &Arc<Tables>,
    head: &Parts,
    Stored { id, act }: Stored<'_>,
    query: &str,
    finish: &mut Finish,
) -> Result<Reply, ApiError> {
    let Client { gateway, turn } = client;
    let received = Mono::now();
    let deadline = received + tables.settings().timeouts.total;
    let unknown = || ApiError::new(Reason::ResponseNotFound, format!("response `{id}` is not known here"));
    let pass = gateway.pass(finish.caller())?;
    let rights = pass.as_ref().map(Pass::rights).transpose()?;
    let slot = holder(gateway, finish.caller().as_ref(), Some(id)).ok_or_else(unknown)?;
    let model = model_at(tables, rights, slot).ok_or_else(unknown)?;
    let wanted = Wanted { model, pinned: Some(slot), now: received, ..Wanted::default() };
    let granted = Tries::new(gateway, tables, (wanted, Bounds::default()), None).first(None).map_err(|_| unknown())?;
    if granted.choice.slot != slot {
        return Err(ApiError::new(Reason::NoEndpoint, format!("the replica that holds response `{id}` is not ready")));
    }
    finish.attempt(metric_row(tables, &granted), slot, units(tables, granted.model));
    let (method, end) = match act {
        Act::Read => (Method::GET, ""),
        Act::Delete => (Method::DELETE, ""),
        Act::Cancel => (Method::POST, "/cancel"),
    };
    let asked = Asked {
        headers: &head.headers,
        method: &method,
        target: &target(format!("/v1/responses/{id}{end}").into(), query)?,
        intake: None,
        id: &finish.id(),
        is_streaming: false,
        adds_usage: false,
    };
    let sent_at = Mono::now();
    let sent = attempt::send(gateway, tables, turn, &granted, &asked, deadline).await;
    let broke = |error: &ApiError| gateway.broke(slot, error.reason, tables.settings());
    let (head, mut upstream) = sent.inspect_err(broke)?;
    let arrived = Mono::now();
    if act == Act::Delete && head.status.as_u16() < 300 {
        let name = key_hash(id.as_bytes()).wrapping_add(scope(finish.caller().as_ref()));
        gateway.place_response(name, None);
    }
    let body = match head.status.as_u16() {
        ..300 => {
            let streams = is_event_stream(&head.headers);
            open(turn, tables, &granted, &mut upstream, streams, deadline).await.inspect_err(broke)?
        }
        _ => Body::Unread,
    };
    let told = Told { head, upstream, sent_at, arrived, adds_usage: false, body };
    Ok(Reply { told, granted, received, deadline, withhold: Withhold::Nothing })
}

/// A model that the endpoint serves and the caller may use.
fn model_at(tables: &Tables, rights: Option<Rights<'_>>, slot: BoardSlot) -> Option<u32> {
    let table = tables.routes();
    let is_allowed = |route: &ArchivedModelRoute| rights.is_none_or(|rights| rights.allows(&route.name));
    let mut models = (0u32..).zip(table.models.iter());
    models.find(|(_, route)| is_allowed(route) && serves(table, route, slot)).map(|(model, _)| model)
}

/// Whether the endpoint at `slot` serves that model.
pub(crate) fn serves(table: &ArchivedRouteTable, route: &ArchivedModelRoute, slot: BoardSlot) -> bool {
    route.pools.iter().any(|pool| {
        let members = table.pools.get(pool.to_native() as usize).map(|pool| pool.members.iter()).into_iter().flatten();
        let mut rows = members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize));
        rows.any(|endpoint| endpoint.slot.to_native() == slot.0)
    })
}
