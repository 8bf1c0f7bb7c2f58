//! Requests about a stored response: they go to the engine that holds it, for which no other one can answer.

use std::rc::Rc;

use llmgw_http::head::{RequestHead, ResponseHead};
use llmgw_http::server::ServerConn;
use llmgw_kit::clock::Mono;
use llmgw_openai::tap::Withhold;
use llmgw_router::session::key_hash;
use llmgw_router::{Grant, Wanted};
use llmgw_runtime::tcp::Tcp;
use llmgw_runtime::timer::timeout;
use llmgw_runtime::{Either, race};
use llmgw_types::BoardSlot;

use crate::attempt::{self, Request};
use crate::core::Core;
use crate::cut::parting;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::relay::{self, Answer, Broken};
use crate::route::{Act, Stored};
use crate::serve::{is_event_stream, served, total_timeout};
use crate::snapshot::Tables;
use crate::whole;

/// The endpoint that holds a response, as far as it is known.
pub(crate) fn holder(core: &Core, id: Option<&str>) -> Option<BoardSlot> {
    core.board.stored().find(key_hash(id?.as_bytes()))
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
    conn: &mut ServerConn<Tcp>,
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let Stored { id, act } = stored;
    let began = Mono::now();
    let deadline = began + core.settings.timeouts.total;
    let unknown = || ApiError::new(Reason::ResponseNotFound, format!("response `{id}` is not known here"));
    let slot = holder(core, Some(id)).ok_or_else(unknown)?;
    let (model, grant) = place(core, tables, slot, began).ok_or_else(unknown)?;
    let table = tables.routes();
    let served = served(table, model, &grant);
    if grant.slot != slot {
        return Err(ApiError::new(Reason::NoEndpoint, format!("the replica that holds response `{id}` is not ready")));
    }
    let metric_row = table.pools.get(grant.pool.idx()).map_or(0, |pool| pool.metric_row.to_native());
    finish.attempt(metric_row, grant.slot);

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
    };
    let mut answer = ResponseHead::default();
    let sending = Mono::now();
    let connect = core.settings.timeouts.connect;
    let sent = attempt::send(core, table, &grant, &request, &mut answer, connect);
    let sent = timeout(deadline.since(sending), sent);
    let mut upstream = match race(sent, parting(&core.cut, &mut conn.reader)).await {
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
    let told = |opened| Answer { head: &answer, served: &served, slot, overhead, sent_at: sending, arrived, opened };
    if answer.status() >= 300 {
        let body = whole::collect(core, &mut upstream, deadline);
        let body = match race(body, parting(&core.cut, &mut conn.reader)).await {
            Either::Left(body) => body,
            Either::Right(Either::Left(())) => return Ok(()),
            Either::Right(Either::Right(())) => return Err(ApiError::shutting_down()),
        };
        upstream.release(Mono::now());
        return whole::send_error(conn, &told(arrived), &body, finish).await;
    }
    if act == Act::Delete {
        core.board.stored().forget(key_hash(id.as_bytes()));
    }
    let broken = if is_event_stream(&answer) {
        match relay::open(&mut upstream).await {
            Ok(first) => {
                let answer = told(Mono::now());
                relay::stream(core, conn, upstream, &answer, first, Withhold::Nothing, deadline, finish).await;
                return Ok(());
            }
            Err(broken) => broken,
        }
    } else {
        match whole::open(core, conn, &mut upstream, &answer, deadline).await {
            Ok(opening) => {
                whole::relay(core, conn, upstream, &told(Mono::now()), opening, deadline, finish).await;
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

/// A place at the endpoint by way of a model it serves, which is also what its answer is headed with.
fn place(core: &Core, tables: &Tables, slot: BoardSlot, now: Mono) -> Option<(u32, Grant)> {
    let table = tables.routes();
    let serves = |pool: u32| {
        let members = table.pools.get(pool as usize).map(|pool| pool.members.iter()).into_iter().flatten();
        let mut rows = members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize));
        rows.any(|endpoint| endpoint.slot.to_native() == slot.0)
    };
    let mut models = (0u32..).zip(table.models.iter());
    let (model, _) = models.find(|(_, route)| route.pools.iter().any(|pool| serves(pool.to_native())))?;
    let wanted = Wanted { model, pinned: Some(slot), now, ..Wanted::default() };
    let grant = core.dispatcher.borrow_mut().dispatch(tables.map(), &wanted, None).ok()?;
    Some((model, grant))
}
