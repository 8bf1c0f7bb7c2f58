//! Requests about a stored response: they go to the engine that holds it, for which no other one can answer.

use std::pin::pin;
use std::rc::Rc;

use llmgw_http::head::{RequestHead, ResponseHead};
use llmgw_http::server::ServerConn;
use llmgw_kit::clock::Mono;
use llmgw_openai::tap::Withhold;
use llmgw_router::session::key_hash;
use llmgw_router::session_table::{Holder, Subject};
use llmgw_router::{Grant, Wanted};
use llmgw_runtime::timer::timeout_at;
use llmgw_runtime::{Either, race};
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::tenants::Caller;

use crate::attempt::{self, Request};
use crate::core::Core;
use crate::cut::parting;
use crate::door::ClientIo;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::identity::{Rights, scope};
use crate::piece::Broken;
use crate::relay::{self, Answer};
use crate::route::{Act, Stored};
use crate::serve::{is_event_stream, served, total_timeout, units};
use crate::snapshot::Tables;
use crate::whole;

/// Characters of an id that a message repeats.
const ID_SHOWN_MAX: usize = 64;

/// The endpoint that holds a response, as far as it is known.
pub(crate) async fn holder(core: &Core, caller: Option<&Caller>, id: &str) -> Option<Holder> {
    core.sessions.locate(subject(caller, id.as_bytes())).await
}

/// What a response is known by: to callers of one project, where there are keys.
pub(crate) fn subject(caller: Option<&Caller>, id: &[u8]) -> Subject {
    Subject::Response(key_hash(id).wrapping_add(scope(caller)))
}

/// The slot of the endpoint that holds a response, for a request that no other one can serve. One that failed a moment
/// ago is asked all the same.
///
/// Errors: it is gone, and the response with it; it takes no requests; it does not serve the model that is asked for.
pub(crate) fn reach(
    core: &Core,
    tables: &Tables,
    holder: Holder,
    id: &str,
    model: Option<u32>,
) -> Result<BoardSlot, ApiError> {
    let (table, slot) = (tables.routes(), holder.slot);
    let found = table.endpoints.iter().find(|endpoint| endpoint.slot.to_native() == slot.0);
    let Some(endpoint) = found.filter(|_| core.board.is_current(holder)) else {
        let message = format!("response `{}` is gone: the replica that held it was removed", shown(id));
        return Err(ApiError::new(Reason::ResponseNotFound, message));
    };
    let model = model.and_then(|model| table.models.get(model as usize));
    if let Some(model) = model.filter(|model| !serves(table, model, slot)) {
        let (id, name, replica) = (shown(id), model.name.as_str(), endpoint.name.as_str());
        let message = format!("response `{id}` is held by replica {replica}, which does not serve `{name}`");
        return Err(ApiError::new(Reason::ResponseNotFound, message));
    }
    let cells = core.board.endpoint(slot);
    let why = match endpoint.addr.is_some() && cells.is_ready() {
        false => "not ready",
        true if cells.is_draining() => "draining",
        true => return Ok(slot),
    };
    let message = format!("replica {}, which holds response `{}`, is {why}", endpoint.name.as_str(), shown(id));
    Err(ApiError::new(Reason::ResponseUnavailable, message))
}

/// An id as it is repeated to the client that sent it: it may be anything.
fn shown(id: &str) -> String {
    id.chars().take(ID_SHOWN_MAX).collect()
}

/// Whether the endpoint is in one of the model's pools.
pub(crate) fn serves(table: &ArchivedRouteTable, model: &ArchivedModelRoute, slot: BoardSlot) -> bool {
    let pools = model.pools.iter().filter_map(|pool| table.pools.get(pool.to_native() as usize));
    let members = pools.flat_map(|pool| pool.members.iter());
    let mut rows = members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize));
    rows.any(|endpoint| endpoint.slot.to_native() == slot.0)
}

/// Reads, deletes or cancels a stored response at its engine.
///
/// Errors: nobody is known to hold it, or its engine does not answer; nothing was sent to the client then.
pub(crate) async fn serve(
    core: &Rc<Core>,
    tables: &Rc<Tables>,
    head: &RequestHead,
    stored: Stored<'_>,
    query: &[u8],
    conn: &mut ServerConn<ClientIo>,
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let Stored { id, act } = stored;
    let began = Mono::now();
    let deadline = began + core.settings.timeouts.total;
    let unknown = || ApiError::new(Reason::ResponseNotFound, format!("response `{id}` is not known here"));
    let caller = finish.caller().copied();
    let holder = match race(holder(core, caller.as_ref(), id), conn.reader.gone()).await {
        Either::Left(holder) => holder.ok_or_else(unknown)?,
        Either::Right(()) => return Ok(()),
    };
    let slot = reach(core, tables, holder, id, None)?;
    let placed = core.with_rights(caller.as_ref(), |rights| Ok(place(core, tables, rights, slot, began)));
    let (model, grant) = placed?.ok_or_else(unknown)?;
    let table = tables.routes();
    let served = served(table, model, &grant);
    let metric_row = table.pools.get(grant.pool.idx()).map_or(0, |pool| pool.metric_row.to_native());
    finish.attempt(metric_row, grant.slot, units(table, model), Mono::now());

    let (method, end): (&[u8], &str) = match act {
        Act::Read => (b"GET", ""),
        Act::Delete => (b"DELETE", ""),
        Act::Cancel => (b"POST", "/cancel"),
    };
    let path = format!("/v1/responses/{id}{end}");
    let request_id = finish.id().text();
    let request = Request {
        head,
        method,
        path: path.as_bytes(),
        query,
        intake: None,
        id: request_id.as_str(),
        is_streaming: false,
        adds_usage: false,
        priority: None,
    };
    let mut answer = ResponseHead::default();
    let sending = Mono::now();
    let connect = core.settings.timeouts.connect;
    let sent = {
        let sent = pin!(attempt::send(core, table, &grant, &request, &mut answer, connect, sending));
        race(timeout_at(deadline, sent), parting(&core.cut, &mut conn.reader)).await
    };
    let mut upstream = match sent {
        Either::Left(Ok(Ok(upstream))) => upstream,
        Either::Left(Ok(Err(error))) => {
            core.evidence.broke(slot, error.reason, core.settings.cooldown);
            return Err(error);
        }
        Either::Left(Err(_)) => return Err(total_timeout(core, &served)),
        Either::Right(Either::Left(())) => return Ok(()),
        Either::Right(Either::Right(())) => return Err(ApiError::shutting_down()),
    };
    let (arrived, overhead) = (Mono::now(), sending.since(began));
    finish.connected(upstream.connect_time());
    let told = |head, opened| Answer { head, served: &served, slot, overhead, sent_at: sending, arrived, opened };
    if answer.status() >= 300 {
        let body = whole::collect(core, &mut upstream, deadline);
        let body = match race(body, parting(&core.cut, &mut conn.reader)).await {
            Either::Left(body) => body,
            Either::Right(Either::Left(())) => return Ok(()),
            Either::Right(Either::Right(())) => return Err(ApiError::shutting_down()),
        };
        upstream.release(Mono::now());
        return whole::send_error(conn, &told(answer, arrived), &body, finish).await;
    }
    if act == Act::Delete {
        core.sessions.tell(subject(caller.as_ref(), id.as_bytes()), None);
    }
    let broken = if is_event_stream(&answer) {
        match relay::open(&mut upstream).await {
            Ok(first) => {
                let answer = told(answer, Mono::now());
                relay::stream(core, conn, upstream, answer, first, Withhold::Nothing, deadline, finish).await;
                return Ok(());
            }
            Err(broken) => broken,
        }
    } else {
        match whole::open(core, conn, &mut upstream, &answer, arrived, deadline).await {
            Ok(opening) => {
                whole::relay(core, conn, upstream, &told(answer, Mono::now()), opening, deadline, finish).await;
                return Ok(());
            }
            Err(broken) => broken,
        }
    };
    match broken {
        Broken::ClientGone => Ok(()),
        Broken::ShuttingDown => Err(ApiError::shutting_down()),
        Broken::Engine(reason, why) => {
            core.evidence.broke(slot, reason, core.settings.cooldown);
            Err(ApiError::new(reason, format!("replica {}: {why}", served.replica)))
        }
    }
}

/// A place at the endpoint by way of a model it serves and the caller may use, which is also what its answer is headed
/// with.
fn place(core: &Core, tables: &Tables, rights: Option<Rights<'_>>, slot: BoardSlot, now: Mono) -> Option<(u32, Grant)> {
    let table = tables.routes();
    let mut models = (0u32..).zip(table.models.iter());
    let is_allowed = |route: &ArchivedModelRoute| rights.is_none_or(|rights| rights.allows(&route.name));
    let (model, _) = models.find(|(_, route)| is_allowed(route) && serves(table, route, slot))?;
    let wanted = Wanted { model, pinned: Some(slot), now, ..Wanted::default() };
    let mut dispatcher = core.dispatcher.borrow_mut();
    let grant = dispatcher.dispatch(tables.map(), &wanted, None);
    let grant = grant.or_else(|_| dispatcher.last_resort(tables.map(), &wanted)).ok()?;
    Some((model, grant))
}
