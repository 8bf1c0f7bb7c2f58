//! The request path, top to bottom.
//!
//! Head → body → model → endpoint → engine → answer. Every way out answers once and leaves through [`Finish`]; a client
//! that leaves ends the request wherever it stands, and with it the engine's connection.

use std::rc::Rc;

use llmgw_http::head::{RequestHead, ResponseHead};
use llmgw_http::server::ServerConn;
use llmgw_kit::clock::Mono;
use llmgw_openai::tap::Withhold;
use llmgw_router::Wanted;
use llmgw_runtime::tcp::Tcp;
use llmgw_runtime::timer::timeout;
use llmgw_runtime::{Either, race};

use crate::attempt::{self, Request};
use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::handlers::{self, health, models};
use crate::relay::{self, Answer};
use crate::respond::{self, Served};
use crate::route::{Inference, Route, Streams, error_style, route, split_query};
use crate::snapshot::Tables;
use crate::{intake, resolve, whole};

/// Serves one request whose head has arrived, to the end of its answer.
pub(crate) async fn serve(core: &Rc<Core>, head: &RequestHead, conn: &mut ServerConn<Tcp>, finish: &mut Finish) {
    let (path, query) = split_query(head.target());
    let route = route(head.method(), path);
    finish.route(route.clone());
    finish.errors_as(error_style(path));
    let outcome = match (route, core.tables()) {
        (Route::Inference(route), Some(tables)) => {
            infer(core, &tables, head, route, query, conn, finish).await.map(|()| None)
        }
        (Route::Stored(stored), Some(_)) => Err(handlers::stored::unknown(stored.id)),
        (Route::Models, Some(tables)) => Ok(Some((200, models::list(&tables)))),
        (Route::Model(name), Some(tables)) => models::one(&tables, &name).map(|body| Some((200, body))),
        (Route::Health, _) => Ok(Some((200, b"{\"status\":\"ok\"}\n".to_vec()))),
        (Route::Ready, _) => Ok(Some(health::ready(core))),
        (Route::WrongMethod { allow }, _) => return respond::wrong_method(conn, allow, finish).await,
        (Route::Unknown, _) => Err(ApiError::new(Reason::UnknownRoute, "this path is not served here")),
        (_, None) => Err(ApiError::new(Reason::NoEndpoint, "no route table has arrived yet")),
    };
    match outcome {
        Ok(Some((status, body))) => respond::json(conn, status, body, finish).await,
        Ok(None) => {}
        Err(error) => respond::error(conn, &error, finish).await,
    }
}

/// Serves a request that an engine answers.
///
/// Errors: what to answer where nothing was sent yet.
async fn infer(
    core: &Rc<Core>,
    tables: &Rc<Tables>,
    head: &RequestHead,
    route: &'static Inference,
    query: &[u8],
    conn: &mut ServerConn<Tcp>,
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let Some(intake) = intake::read(head, route.body, conn).await? else { return Ok(()) };
    let received = Mono::now();
    let deadline = received + core.settings.timeouts.total;
    let table = tables.routes();
    let model = resolve::model(table, &intake.model())?;
    let tokens = u32::try_from(intake.prompt_tokens_estimate()).unwrap_or(u32::MAX);
    let grant = core
        .dispatcher
        .borrow_mut()
        .dispatch(tables.map(), &Wanted { model, tokens, now: received, ..Wanted::default() }, None)
        .map_err(|_| no_endpoint(core, table, model))?;
    let served = served(table, model, &grant);
    let metric_row = table.pools.get(grant.pool.idx()).map_or(0, |pool| pool.metric_row.to_native());

    let is_streaming = route.streams == Streams::OnRequest && intake.is_streaming();
    let wants_usage = core.settings.inject_usage && route.injects_usage && is_streaming && !intake.asks_for_usage();
    let mut adds_usage = wants_usage && !core.refuses_usage(grant.slot);
    let id = finish.id().text();
    let mut was_refused = false;
    let mut answer = ResponseHead::default();
    let (mut upstream, sent_after) = loop {
        finish.attempt(metric_row, grant.slot);
        let request = Request { head, route, query, intake: &intake, id: id.as_str(), adds_usage };
        let sending = Mono::now();
        let sent = attempt::send(core, table, &grant, &request, &mut answer);
        let sent = timeout(deadline.since(sending), sent);
        let mut upstream = match race(sent, conn.reader.gone()).await {
            Either::Left(Ok(upstream)) => upstream?,
            Either::Left(Err(_)) => return Err(total_timeout(core, &served)),
            Either::Right(()) => return Ok(()),
        };
        if !(adds_usage && answer.status() == 400) {
            break (upstream, sending.since(received));
        }
        // Some engines refuse the option we added. The client must not hear of it: ask once more without.
        let body = whole::collect(core, &mut upstream, deadline);
        let body = match race(body, conn.reader.gone()).await {
            Either::Left(body) => body,
            Either::Right(()) => return Ok(()),
        };
        if memchr::memmem::find(&body, b"stream_options").is_none() {
            let overhead = sending.since(received);
            let answer = Answer { head: &answer, served: &served, overhead, arrived: Mono::now() };
            return whole::send_error(conn, &answer, &body, finish).await;
        }
        (adds_usage, was_refused) = (false, true);
    };
    // An engine that takes the request without the option refused the option. One that still says no may only have quoted
    // it, and a client could have put it there to be quoted.
    if was_refused && answer.status() < 300 {
        core.remember_refusal(grant.slot);
    }
    // The engine has the body: a long answer must not keep a long prompt in memory.
    drop(intake);

    let arrived = Mono::now();
    let answer = Answer { head: &answer, served: &served, overhead: sent_after, arrived };
    if answer.head.status() >= 300 {
        let body = whole::collect(core, &mut upstream, deadline);
        let body = match race(body, conn.reader.gone()).await {
            Either::Left(body) => body,
            Either::Right(()) => return Ok(()),
        };
        upstream.release(Mono::now());
        return whole::send_error(conn, &answer, &body, finish).await;
    }
    if is_streaming && is_event_stream(answer.head) {
        let withhold = if adds_usage { Withhold::UsageEvent } else { Withhold::Nothing };
        return relay::stream(core, conn, upstream, &answer, withhold, deadline, finish).await;
    }
    whole::relay(core, conn, upstream, &answer, deadline, finish).await
}

fn total_timeout(core: &Core, served: &Served<'_>) -> ApiError {
    let (reason, limit) = (Reason::TotalTimeout, core.settings.timeouts.total);
    ApiError::new(reason, format!("replica {}: {} after {limit:?}", served.replica, reason.code()))
}

fn served<'t>(table: &'t llmgw_types::ArchivedRouteTable, model: u32, grant: &llmgw_router::Grant) -> Served<'t> {
    Served {
        replica: table.endpoints.get(grant.endpoint.idx()).map_or("", |endpoint| endpoint.name.as_str()),
        pool: table.pools.get(grant.pool.idx()).map_or("", |pool| pool.label.as_str()),
        model: table.models.get(model as usize).map_or("", |model| model.name.as_str()),
    }
}

/// Names who cannot serve and why; addresses stay in the log.
fn no_endpoint(core: &Core, table: &llmgw_types::ArchivedRouteTable, model: u32) -> ApiError {
    let mut who = String::new();
    let pools = table.models.get(model as usize).map(|model| model.pools.iter()).into_iter().flatten();
    let members =
        pools.filter_map(|pool| table.pools.get(pool.to_native() as usize)).flat_map(|pool| pool.members.iter());
    for endpoint in members.filter_map(|member| table.endpoints.get(member.endpoint.to_native() as usize)).take(16) {
        let why =
            match (endpoint.addr.is_some(), core.board.is_ready(llmgw_types::BoardSlot(endpoint.slot.to_native()))) {
                (false, _) => "name not resolved",
                (true, false) => "not ready",
                (true, true) => "ready now",
            };
        who.push_str(if who.is_empty() { "" } else { ", " });
        who.push_str(&endpoint.name);
        who.push_str(": ");
        who.push_str(why);
    }
    ApiError::new(Reason::NoEndpoint, format!("no endpoint can take this request ({who})"))
}

/// A stream of events that can be read here. One that an engine compressed, although it was asked not to, is passed on
/// as it is: nothing may be added to it or taken out.
fn is_event_stream(head: &ResponseHead) -> bool {
    let is_events = head
        .header("content-type")
        .and_then(|value| value.get(..17))
        .is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"));
    is_events && head.header("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
}
