//! The request path, top to bottom.
//!
//! Head → body → model → limits → endpoint → engine → answer. Every way out answers once and leaves through [`Finish`];
//! a client that leaves ends the request wherever it stands, and with it the engine's connection.

use std::pin::pin;
use std::rc::Rc;

use llmgw_http::client::{EngineIo, Piece, Upstream};
use llmgw_http::head::{RequestHead, ResponseHead};
use llmgw_http::server::ServerConn;
use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_openai::stored::IdTap;
use llmgw_openai::tap::Withhold;
use llmgw_router::Grant;
use llmgw_runtime::timer::timeout_at;
use llmgw_runtime::{Either, race};
use llmgw_types::ArchivedRouteTable;
use llmgw_types::snapshot::Units;

use crate::account::Recorded;
use crate::arrived::Arrived;
use crate::attempt::{self, Request};
use crate::core::{Added, Core};
use crate::cut::parting;
use crate::door::ClientIo;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::handlers::{health, models, stored};
use crate::identity::Stranger;
use crate::piece::Broken;
use crate::prompt::model_row;
use crate::quota::LimitAsk;
use crate::relay::{self, Answer};
use crate::respond::{self, Served};
use crate::retry::{Granted, Step, Tries, Why};
use crate::route::{Inference, Route, Streams, error_style, route, split_query};
use crate::snapshot::Tables;
use crate::submit::{self, Waited};
use crate::{intake, me, whole};

/// Serves one request whose head has arrived, to the end of its answer.
pub(crate) async fn serve(
    core: &Rc<Core>,
    head: &mut RequestHead,
    conn: &mut ServerConn<ClientIo>,
    finish: &mut Finish,
) {
    let (path, query) = split_query(head.target());
    let route = route(head.method(), path);
    finish.route(route.clone());
    finish.errors_as(error_style(path));
    if route.needs_key() {
        match core.identify(head, finish.began_wall()) {
            Ok(caller) => caller.into_iter().for_each(|caller| finish.is_of(caller)),
            Err(Stranger { error, caller }) => {
                caller.into_iter().for_each(|caller| finish.is_of(*caller));
                return respond::error(conn, &error, finish).await;
            }
        }
    }
    let tables = core.tables();
    if let (&Route::Inference(route), Some(tables)) = (&route, &tables) {
        if let Err(error) = infer(core, tables, head, route, conn, finish).await {
            respond::error(conn, &error, finish).await;
        }
        return;
    }
    let caller = finish.caller();
    let outcome = match (route, tables) {
        (Route::Stored(stored), Some(tables)) => {
            stored::serve(core, &tables, head, stored, query, conn, finish).await.map(|()| None)
        }
        (Route::Models, Some(tables)) => {
            core.with_rights(caller, |rights| Ok(Some((200, models::list(&tables, rights)))))
        }
        (Route::Model(name), Some(tables)) => {
            core.with_rights(caller, |rights| Ok(Some((200, models::one(&tables, rights, &name)?))))
        }
        (Route::Me, _) => {
            let standings = match caller {
                Some(caller) => core.limiter.standings(caller.key.0).await,
                None => Vec::new(),
            };
            core.with_rights(caller, |rights| Ok(Some((200, me::show(rights, &standings)?))))
        }
        (Route::Health, _) => Ok(Some((200, b"{\"status\":\"ok\"}\n".to_vec()))),
        (Route::Ready, _) => Ok(Some(health::ready(core))),
        (Route::WrongMethod { allow }, _) => return respond::wrong_method(conn, allow, finish).await,
        (Route::Unknown, _) => Err(ApiError::new(Reason::UnknownRoute, "this path is not served here")),
        (Route::Inference(_), _) | (_, None) => {
            Err(ApiError::new(Reason::NoEndpoint, "no route table has arrived yet"))
        }
    };
    match outcome {
        Ok(Some((status, body))) => respond::json(conn, status, body, finish).await,
        Ok(None) => {}
        Err(error) => respond::error(conn, &error, finish).await,
    }
}

/// Serves a request that an engine answers. When the answer begins, the head's memory is given up.
///
/// Errors: what to answer where nothing was sent yet.
async fn infer(
    core: &Rc<Core>,
    tables: &Rc<Tables>,
    head: &mut RequestHead,
    route: &'static Inference,
    conn: &mut ServerConn<ClientIo>,
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let (_, query) = split_query(head.target());
    let intake = match race(intake::read(head, route.body, conn), core.cut.wait()).await {
        Either::Left(intake) => intake?,
        Either::Right(()) => return Err(ApiError::shutting_down()),
    };
    let Some(intake) = intake else { return Ok(()) };
    let received = Mono::now();
    finish.received(received);
    let deadline = received + core.settings.timeouts.total;
    let is_streaming = route.streams == Streams::OnRequest && intake.is_streaming();
    let caller = finish.caller().copied();
    let instead = None;
    let takes_places = route.waits;
    let mut arrived =
        Arrived { head, caller, intake: &intake, instead, takes_places, is_streaming, received, deadline };
    let mut resolved = match race(arrived.resolve(core, tables), conn.reader.gone()).await {
        Either::Left(resolved) => resolved?,
        Either::Right(()) => return Ok(()),
    };
    if let Some(caller) = caller {
        let asked = LimitAsk::of(route, caller, &intake);
        match race(asked.admit(core, tables, &mut arrived, &mut resolved, finish), conn.reader.gone()).await {
            Either::Left(admitted) => admitted?,
            Either::Right(()) => return Ok(()),
        }
    }
    let asked_row = model_row(tables.routes(), resolved.wanted.model).unwrap_or(RowIdx::OTHER.0);
    finish.on_the_record(Recorded::on(route, asked_row, resolved.wanted.tokens).at_most(intake.answer_limit()));
    let mut tries = Tries::new(core, tables.clone(), &resolved, &intake);
    let mut routing = resolved.routing;
    let first = tries.first(received, None, routing.explanation());
    routing.tell(tables, finish);
    let mut at = match first? {
        Step::Go(at) => at,
        // Boxed, so that requests that pass carry nothing of it.
        Step::Wait(wait) => {
            match Box::pin(submit::wait(&arrived, wait, &mut tries, &mut routing, conn, finish)).await? {
                Waited::Go(at) => at,
                Waited::Gone => return Ok(()),
            }
        }
    };
    let wants_usage = core.settings.inject_usage && route.injects_usage && is_streaming && !intake.asks_for_usage();
    let id = finish.id().text();
    let mut answer = ResponseHead::default();
    let cooldown = core.settings.cooldown;
    let asked = loop {
        // The wait for a place may have moved it to newer ones.
        let tables = tries.tables().clone();
        let table = tables.routes();
        let (slot, served) = (at.grant.slot, served(table, at.model, &at.grant));
        let metric_row = table.pools.get(at.grant.pool.idx()).map_or(0, |pool| pool.metric_row.to_native());
        let sent_at = Mono::now();
        finish.attempt(metric_row, slot, units(table, at.model), sent_at);
        finish.placed(&mut at);
        let request = Request {
            head,
            method: b"POST",
            path: route.path.as_bytes(),
            query,
            intake: Some(&intake),
            id: id.as_str(),
            is_streaming,
            adds_usage: wants_usage && !core.refuses(slot, Added::Usage),
            priority: routing
                .priority(table, at.model)
                .filter(|_| !core.refuses(slot, Added::Priority))
                .map(|priority| (priority, route.priority)),
        };
        let (why, outcome) = match ask(core, table, &at, &request, &served, &mut answer, conn, sent_at, deadline).await
        {
            Ended::Gone => {
                finish.has_run();
                return Ok(());
            }
            Ended::Answered(asked) => {
                finish.has_run();
                core.evidence.status(slot, &answer, cooldown);
                (Why::of_status(answer.status()), Ok(asked))
            }
            Ended::Failed(error) => {
                if Why::of_error(error.reason) != Some(Why::Connect) {
                    finish.has_run();
                }
                core.evidence.broke(slot, error.reason, cooldown);
                tries.note(&error, at.connect);
                (Why::of_error(error.reason), Err(error))
            }
        };
        let Some(why) = why else {
            match outcome {
                Ok(asked) => break asked,
                Err(error) => return Err(tries.failed(error)),
            }
        };
        let failed = (slot, at.place.take(), at.model);
        let next = tries.next(failed, why, Mono::now(), routing.explanation());
        routing.tell(&tables, finish);
        match (next, outcome) {
            (Ok(Some(Step::Go(next))), _) => at = next,
            (Ok(Some(Step::Wait(wait))), _) => {
                // What the engine said is given up for a place elsewhere, and the connection with it.
                match Box::pin(submit::wait(&arrived, wait, &mut tries, &mut routing, conn, finish)).await? {
                    Waited::Go(next) => at = next,
                    Waited::Gone => return Ok(()),
                }
            }
            (Ok(None) | Err(_), Ok(asked)) => break asked,
            (Ok(None), Err(error)) => return Err(tries.failed(error)),
            (Err(refused), Err(_)) => return Err(refused),
        }
    };
    // Nobody will be asked again: a long answer must not keep a prompt in memory.
    let tables = tries.tables().clone();
    drop(intake);
    head.release();

    let served = served(tables.routes(), at.model, &at.grant);
    let Asked { mut upstream, sent_at, arrived, adds_usage, body } = asked;
    let (opened, slot) = (Mono::now(), at.grant.slot);
    finish.connected(upstream.connect_time());
    let overhead = sent_at.since(received).saturating_sub(finish.queue_time());
    let answer = Answer { head: answer, served: &served, slot, overhead, sent_at, arrived, opened };
    if route.stores {
        match body {
            Body::Stream(_) => finish.watch(IdTap::streamed(), slot),
            Body::Whole(_) => finish.watch(IdTap::whole(), slot),
            Body::Unread | Body::Refusal(_) => {}
        }
    }
    let refusal = match body {
        Body::Stream(first) => {
            let withhold = if adds_usage { Withhold::UsageEvent } else { Withhold::Nothing };
            relay::stream(core, conn, upstream, answer, first, withhold, deadline, finish).await;
            return Ok(());
        }
        // Its client reads a stream by now: a heartbeat was sent.
        Body::Whole(_) if conn.writer.has_begun() => {
            let message = format!("replica {}: the answer is no stream of events, which was asked for", served.replica);
            return Err(ApiError::new(Reason::EngineMalformed, message));
        }
        Body::Whole(first) => {
            whole::relay(core, conn, upstream, &answer, first, deadline, finish).await;
            return Ok(());
        }
        Body::Refusal(body) => body,
        Body::Unread => {
            let body = whole::collect(core, &mut upstream, deadline);
            match race(body, parting(&core.cut, &mut conn.reader)).await {
                Either::Left(body) => body,
                Either::Right(Either::Left(())) => return Ok(()),
                Either::Right(Either::Right(())) => return Err(ApiError::shutting_down()),
            }
        }
    };
    upstream.release(Mono::now());
    whole::send_error(conn, &answer, &refusal, finish).await
}

/// How an attempt ended.
enum Ended {
    /// The client left.
    Gone,
    /// No answer, or none in time.
    Failed(ApiError),
    Answered(Asked),
}

/// An engine whose answer has begun.
struct Asked {
    upstream: Upstream<EngineIo>,
    /// When the request that it answers was sent.
    sent_at: Mono,
    /// When the head arrived.
    arrived: Mono,
    /// That request asked for usage where the client did not.
    adds_usage: bool,
    body: Body,
}

/// What of an answer's body is at hand before anything of the answer goes to the client.
enum Body {
    /// Of a refusal, nothing yet.
    Unread,
    /// Of a refusal that had to be read.
    Refusal(Vec<u8>),
    /// What came together with the head of a stream.
    Stream(Option<Piece>),
    /// What [`whole::open`] waits for.
    Whole(Piece),
}

/// Asks one endpoint: once, and again without what we added and it refuses. An answer that breaks
/// before anything of it could go to the client has failed as one that never came.
#[expect(clippy::too_many_arguments, reason = "one step of the request path, with what the path has in hand")]
async fn ask(
    core: &Rc<Core>,
    table: &ArchivedRouteTable,
    at: &Granted,
    request: &Request<'_>,
    served: &Served<'_>,
    answer: &mut ResponseHead,
    conn: &mut ServerConn<ClientIo>,
    mut sent_at: Mono,
    deadline: Mono,
) -> Ended {
    let mut request = *request;
    let mut refused = [None; 2];
    loop {
        let sent = {
            // It is large, and stays where it was made.
            let sent = pin!(attempt::send(core, table, &at.grant, &request, answer, at.connect, sent_at));
            race(timeout_at(deadline, sent), parting(&core.cut, &mut conn.reader)).await
        };
        let mut upstream = match sent {
            Either::Left(Ok(Ok(upstream))) => upstream,
            Either::Left(Ok(Err(error))) => return Ended::Failed(error),
            Either::Left(Err(_)) => return Ended::Failed(total_timeout(core, served)),
            Either::Right(Either::Left(())) => return Ended::Gone,
            Either::Right(Either::Right(())) => return Ended::Failed(ApiError::shutting_down()),
        };
        let (arrived, adds_usage) = (Mono::now(), request.adds_usage);
        if answer.status() < 300 {
            // An engine that takes the request without the field refused the field. One that still says no may only
            // have quoted it, and a client could have put it there to be quoted.
            refused.into_iter().flatten().for_each(|added| core.remember_refusal(at.grant.slot, added));
            let body = if request.is_streaming && is_event_stream(answer) {
                relay::open(&mut upstream).await.map(Body::Stream)
            } else {
                whole::open(core, conn, &mut upstream, answer, arrived, deadline).await.map(Body::Whole)
            };
            return match body {
                Ok(body) => Ended::Answered(Asked { upstream, sent_at, arrived, adds_usage, body }),
                Err(Broken::ClientGone) => Ended::Gone,
                Err(Broken::ShuttingDown) => Ended::Failed(ApiError::shutting_down()),
                Err(Broken::Engine(reason, why)) => {
                    Ended::Failed(ApiError::new(reason, format!("replica {}: {why}", served.replica)))
                }
            };
        }
        let tells_priority = attempt::tells_priority(table, &at.grant, &request);
        if !((adds_usage || tells_priority) && answer.status() == 400) {
            return Ended::Answered(Asked { upstream, sent_at, arrived, adds_usage, body: Body::Unread });
        }
        // Some engines refuse what we added. The client must not hear of it: ask once more without.
        let body = whole::collect(core, &mut upstream, deadline);
        let body = match race(body, parting(&core.cut, &mut conn.reader)).await {
            Either::Left(body) => body,
            Either::Right(Either::Left(())) => return Ended::Gone,
            Either::Right(Either::Right(())) => return Ended::Failed(ApiError::shutting_down()),
        };
        let quotes = |added: Added| memchr::memmem::find(&body, added.field()).is_some();
        if adds_usage && quotes(Added::Usage) {
            (request.adds_usage, refused[0]) = (false, Some(Added::Usage));
        } else if tells_priority && quotes(Added::Priority) {
            (request.priority, refused[1]) = (None, Some(Added::Priority));
        } else {
            return Ended::Answered(Asked { upstream, sent_at, arrived, adds_usage, body: Body::Refusal(body) });
        }
        sent_at = Mono::now();
    }
}

pub(crate) fn total_timeout(core: &Core, served: &Served<'_>) -> ApiError {
    let (reason, limit) = (Reason::TotalTimeout, core.settings.timeouts.total);
    ApiError::new(reason, format!("replica {}: {} after {limit:?}", served.replica, reason.code()))
}

/// What the use of a model costs.
pub(crate) fn units(table: &ArchivedRouteTable, model: u32) -> Units {
    table.models.get(model as usize).map_or_else(Units::default, |model| model.units.to_units())
}

pub(crate) fn served<'t>(table: &'t ArchivedRouteTable, model: u32, grant: &Grant) -> Served<'t> {
    Served {
        replica: table.endpoints.get(grant.endpoint.idx()).map_or("", |endpoint| endpoint.name.as_str()),
        pool: table.pools.get(grant.pool.idx()).map_or("", |pool| pool.label.as_str()),
        model: table.models.get(model as usize).map_or("", |model| model.name.as_str()),
    }
}

/// A stream of events that can be read here. One that an engine compressed, although it was asked not to, is passed on
/// as it is: nothing may be added to it or taken out.
pub(crate) fn is_event_stream(head: &ResponseHead) -> bool {
    let is_events = head
        .header("content-type")
        .and_then(|value| value.get(..17))
        .is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"));
    is_events && head.header("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
}
