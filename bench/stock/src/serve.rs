//! The request path, top to bottom: head → body → model → limits → endpoint → engine → answer.
//!
//! The steps are those of the gateway's own `serve`. A client that leaves ends the request wherever it stands, since
//! hyper drops this future then, and with it the engine's connection.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, Uri};
use llmgw_gateway::account::Recorded;
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::explain;
use llmgw_gateway::identity::scope;
use llmgw_gateway::intake::Intake;
use llmgw_gateway::me;
use llmgw_gateway::quota::LimitAsk;
use llmgw_gateway::route::{Inference, Route, Streams, error_style, route};
use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_openai::stored::IdTap;
use llmgw_openai::tap::Withhold;
use llmgw_router::breaker::{Failure, FailureKind};
use llmgw_router::session::key_hash;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::Units;
use llmgw_types::tenants::Caller;

use crate::answer::Answer;
use crate::arrived::{Arrived, Resolved};
use crate::attempt::{self, Asked};
use crate::callers::{identify, with_rights};
use crate::check::check;
use crate::finish::Finish;
use crate::lists::{list, one, ready};
use crate::relay::{Course, Streaming};
use crate::respond::{self, Served};
use crate::retry::{Granted, Tries, Why};
use crate::state::Gateway;
use crate::tables::Tables;
use crate::turn::{Phase, Turn};
use crate::upstream::Upstream;
use crate::whole::{self, Passing};
use crate::{body, reserve, stored};

/// What a request is served with.
pub(crate) struct Client {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) turn: Arc<Turn>,
}

/// Serves one request whose head has arrived, up to the head of its answer.
pub(crate) async fn serve(client: &Client, request: Request<Incoming>) -> Response<Answer> {
    let Client { gateway, turn } = client;
    turn.enter(Phase::Busy);
    let (head, incoming) = request.into_parts();
    let mut finish = Finish::begin(gateway, turn, Some(&head.method));
    let tables = gateway.tables();
    if let Some(tables) = &tables {
        turn.set_busy_until(Mono::now() + tables.settings().timeouts.total + tables.settings().timeouts.client_idle);
    }
    let mut response = match check(&head) {
        Err(reject) => Err((ApiError::from(reject), finish)),
        Ok((path, query)) => {
            let route = route(head.method.as_str().as_bytes(), path.as_bytes());
            finish.route(&route);
            finish.errors = error_style(path.as_bytes());
            match identify(gateway, &route, &head, &mut finish) {
                Err(error) => Err((error, finish)),
                Ok(()) => answer(client, tables, &head, route, query, incoming, finish).await,
            }
        }
    }
    .unwrap_or_else(|(error, finish)| {
        if matches!(error.reason, Reason::BadHttp(_)) {
            turn.linger();
        }
        respond::error(&error, finish)
    });
    if gateway.is_closing() {
        response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    }
    response
}

/// Answers a request by its route.
async fn answer(
    client: &Client,
    tables: Option<Arc<Tables>>,
    head: &Parts,
    route: Route<'_>,
    query: &str,
    incoming: Incoming,
    finish: Box<Finish>,
) -> Outcome {
    let gateway = &client.gateway;
    let own = match (route, tables) {
        (Route::Inference(route), Some(tables)) => {
            return infer(client, &tables, head, route, query, incoming, finish).await;
        }
        (Route::Stored(asked), Some(tables)) => {
            return stored::serve(client, &tables, head, asked, query, finish).await;
        }
        (Route::WrongMethod { allow }, _) => return Ok(respond::wrong_method(allow, finish)),
        (Route::Models, Some(tables)) => {
            with_rights(gateway, finish.caller(), |rights| Ok((200, list(&tables, rights))))
        }
        (Route::Model(name), Some(tables)) => {
            with_rights(gateway, finish.caller(), |rights| Ok((200, one(&tables, rights, &name)?)))
        }
        (Route::Health, _) => Ok((200, b"{\"status\":\"ok\"}\n".to_vec())),
        (Route::Ready, _) => Ok(ready(gateway)),
        (Route::Me, _) => {
            let caller = finish.caller();
            let limits = gateway.keys.as_ref().map(|keys| &keys.limits);
            let standings = limits.zip(caller).map(|(limits, caller)| limits.standings(caller.key)).unwrap_or_default();
            with_rights(gateway, caller, |rights| Ok((200, me::show(rights, &standings)?)))
        }
        (Route::Unknown, _) => Err(ApiError::new(Reason::UnknownRoute, "this path is not served here")),
        (_, None) => Err(ApiError::new(Reason::NoEndpoint, "no route table has arrived yet")),
    };
    match own {
        Ok((status, body)) => Ok(respond::own(status, body, finish)),
        Err(error) => Err((error, finish)),
    }
}

/// What a request came to: an answer, or the error to answer with.
pub(crate) type Outcome = Result<Response<Answer>, (ApiError, Box<Finish>)>;

/// Serves a request that an engine answers.
async fn infer(
    client: &Client,
    tables: &Arc<Tables>,
    head: &Parts,
    route: &'static Inference,
    query: &str,
    incoming: Incoming,
    mut finish: Box<Finish>,
) -> Outcome {
    match try_infer(client, tables, head, route, query, incoming, &mut finish).await {
        Ok(reply) => reply.respond(client, tables, finish).await,
        Err(error) => Err((error, finish)),
    }
}

async fn try_infer(
    client: &Client,
    tables: &Arc<Tables>,
    head: &Parts,
    route: &'static Inference,
    query: &str,
    incoming: Incoming,
    finish: &mut Finish,
) -> Result<Reply, ApiError> {
    let Client { gateway, turn } = client;
    let settings = tables.settings();
    let body = body::read(incoming, turn, settings).await?;
    let types = head.headers.get_all(header::CONTENT_TYPE).iter().map(header::HeaderValue::as_bytes);
    let intake = Intake::of(body, route.body, types)?;
    let received = Mono::now();
    finish.received = Some(received);
    let deadline = received + settings.timeouts.total;
    let caller = finish.caller();
    let mut arrived = Arrived { head, caller, intake: &intake, instead: None, received };
    let mut resolved = arrived.resolve(gateway, tables)?;
    if let Some(caller) = caller {
        let ask = LimitAsk::of(route, caller, &intake);
        reserve::admit(gateway, tables, &ask, &mut arrived, &mut resolved, finish)?;
    }
    let Resolved { mut routing, wanted, bounds } = resolved;
    let asked_row = first_row(tables, wanted.model);
    finish.account.asked = Some(Recorded::on(route, asked_row, wanted.tokens).at_most(intake.answer_limit()));
    let prompt = Some(&intake).filter(|_| route.waits);
    let mut tries = Tries::new(gateway, tables, (wanted, bounds), prompt);
    let first = tries.first(routing.explanation.as_deref_mut());
    finish.explanation = routing.explanation.map(|explanation| explain::text(&explanation, tables.routes()));
    let mut at = first?;
    let is_streaming = route.streams == Streams::OnRequest && intake.is_streaming();
    let wants_usage = settings.inject_usage && route.injects_usage && is_streaming && !intake.asks_for_usage();
    let id = finish.id();
    let target = target(route.path.into(), query)?;
    let (told, granted) = loop {
        let slot = at.choice.slot;
        finish.attempt(metric_row(tables, &at), slot, units(tables, at.model));
        finish.placed(std::mem::take(&mut at.prompt));
        let asked = Asked {
            headers: &head.headers,
            method: &Method::POST,
            target: &target,
            intake: Some(&intake),
            id: &id,
            is_streaming,
            adds_usage: wants_usage && !gateway.refuses_usage(slot),
        };
        let (why, error) = match ask(client, tables, &at, asked, deadline).await {
            Ok(told) => {
                judge(gateway, tables, slot, &told.head);
                match Why::of_status(told.head.status.as_u16()) {
                    None => break (told, at),
                    Some(why) => match tries.next(slot, why, Mono::now()) {
                        None => break (told, at),
                        Some(next) => {
                            at = next;
                            continue;
                        }
                    },
                }
            }
            Err(error) => {
                let why = Why::of_error(error.reason);
                if why == Some(Why::Connect) {
                    finish.was_not_heard();
                }
                gateway.broke(slot, error.reason, settings);
                tries.note(&error, at.connect);
                (why, error)
            }
        };
        match why.and_then(|why| tries.next(slot, why, Mono::now())) {
            Some(next) => at = next,
            None => return Err(tries.failed(error)),
        }
    };
    // The request as a whole is over by then, its answer taken in.
    turn.set_busy_until(deadline + settings.timeouts.client_idle.min(std::time::Duration::from_secs(1)));
    if route.stores {
        match told.body {
            Body::Stream(_) => finish.watch(IdTap::streamed(), granted.choice.slot),
            Body::Whole(_) => finish.watch(IdTap::whole(), granted.choice.slot),
            Body::Unread | Body::Refusal(_) => {}
        }
    }
    let withhold = if told.adds_usage { Withhold::UsageEvent } else { Withhold::Nothing };
    Ok(Reply { told, granted, received, deadline, withhold })
}

/// An engine's answer, before anything of it was sent to the client.
pub(crate) struct Reply {
    pub(crate) told: Told,
    pub(crate) granted: Granted,
    pub(crate) received: Mono,
    pub(crate) deadline: Mono,
    pub(crate) withhold: Withhold,
}

impl Reply {
    /// The answer as the client gets it.
    pub(crate) async fn respond(self, client: &Client, tables: &Arc<Tables>, mut finish: Box<Finish>) -> Outcome {
        let Self { told, granted, received, deadline, withhold } = self;
        let Told { head, mut upstream, sent_at, arrived, body, .. } = told;
        finish.connect_time = upstream.connect_time;
        let Client { gateway, turn } = client;
        let settings = tables.settings();
        let opened = Mono::now();
        let served = Served { tables, granted: &granted, received, sent_at, arrived, opened };
        let status = head.status.as_u16();
        let replica = served.replica().to_owned();
        let course = |granted, finish| Course {
            gateway: gateway.clone(),
            tables: tables.clone(),
            turn: turn.clone(),
            granted,
            finish,
            replica,
            deadline,
        };
        let refusal = match body {
            Body::Stream(first) => {
                let mut headers = respond::engine_headers(head, &served, &mut finish);
                respond::add_stream_headers(&mut headers);
                finish.answer(status);
                let stream = Streaming::new(course(granted, finish), upstream, first, withhold, sent_at);
                return Ok(respond::response(status, headers, Answer::Streaming(Box::new(stream))));
            }
            Body::Whole(opening) => {
                let (left, is_plain) = (upstream.length(), whole::is_plain(&head.headers));
                let headers = respond::engine_headers(head, &served, &mut finish);
                finish.answer(status);
                finish.account.answering();
                if upstream.is_at_end() {
                    // The common case: the usage is known and the connection free before the answer leaves.
                    finish.passing(&opening);
                    whole::usage_of(&opening, is_plain, &mut finish);
                    finish.account.seen(None, true);
                    gateway.answered(granted.choice.slot);
                    upstream.release(&gateway.pool, Mono::now());
                    return Ok(respond::full(status, headers, opening, finish, Some(granted)));
                }
                let length = left.map(|left| left + opening.len() as u64);
                let passing = Passing::new(course(granted, finish), upstream, opening, length, is_plain);
                return Ok(respond::response(status, headers, Answer::Passing(Box::new(passing))));
            }
            Body::Refusal(body) => body,
            Body::Unread => whole::collect(turn, settings, &mut upstream, deadline).await,
        };
        upstream.release(&gateway.pool, Mono::now());
        match whole::refusal(head, refusal, &served, &mut finish) {
            Ok((status, headers, body)) => Ok(respond::full(status, headers, body, finish, Some(granted))),
            Err(error) => Err((error, finish)),
        }
    }
}

/// What an endpoint answered.
pub(crate) struct Told {
    pub(crate) head: hyper::http::response::Parts,
    pub(crate) upstream: Upstream,
    /// When the request that it answers was sent.
    pub(crate) sent_at: Mono,
    /// When its head came.
    pub(crate) arrived: Mono,
    /// That request asked for usage where the client did not.
    pub(crate) adds_usage: bool,
    pub(crate) body: Body,
}

/// What of an answer's body is at hand before anything of the answer goes to the client.
pub(crate) enum Body {
    /// Of a refusal, nothing yet.
    Unread,
    /// Of a refusal that had to be read.
    Refusal(Bytes),
    /// What came together with the head of a stream.
    Stream(Option<Bytes>),
    /// What [`whole::open`] waits for.
    Whole(Bytes),
}

/// Waits for what leaves together with an answer's head.
///
/// Errors: the engine failed before anything was sent to the client.
pub(crate) async fn open(
    turn: &Turn,
    tables: &Tables,
    at: &Granted,
    upstream: &mut Upstream,
    streams: bool,
    deadline: Mono,
) -> Result<Body, ApiError> {
    let endpoint = tables.routes().endpoints.get(at.choice.endpoint.idx());
    let replica = endpoint.map_or("", |endpoint| endpoint.name.as_str());
    if !streams {
        return whole::open(upstream, turn, tables.settings(), deadline, replica).await.map(Body::Whole);
    }
    // Without a wait: else the head leaves at once.
    match poll_fn(|cx| Poll::Ready(upstream.poll_piece(cx))).await {
        Poll::Ready(Some(Ok(piece))) => Ok(Body::Stream(Some(piece))),
        Poll::Ready(Some(Err((reason, why)))) => Err(ApiError::new(reason, format!("replica {replica}: {why}"))),
        Poll::Ready(None) | Poll::Pending => Ok(Body::Stream(None)),
    }
}

/// Asks one endpoint: once, or a second time without the option that we added and it refuses.
async fn ask(
    client: &Client,
    tables: &Tables,
    at: &Granted,
    mut asked: Asked<'_>,
    deadline: Mono,
) -> Result<Told, ApiError> {
    let Client { gateway, turn } = client;
    let mut was_refused = false;
    loop {
        let sent_at = Mono::now();
        let (head, mut upstream) = attempt::send(gateway, tables, turn, at, &asked, deadline).await?;
        let (adds_usage, arrived) = (asked.adds_usage, Mono::now());
        let status = head.status.as_u16();
        if status < 300 {
            // An engine that takes the request without the option refused the option.
            if was_refused {
                gateway.remember_refusal(at.choice.slot);
            }
            let streams = asked.is_streaming && is_event_stream(&head.headers);
            let body = open(turn, tables, at, &mut upstream, streams, deadline).await?;
            return Ok(Told { head, upstream, sent_at, arrived, adds_usage, body });
        }
        if !(adds_usage && status == 400) {
            return Ok(Told { head, upstream, sent_at, arrived, adds_usage, body: Body::Unread });
        }
        // Some engines refuse the option we added. The client must not hear of it: ask once more without.
        let body = whole::collect(turn, tables.settings(), &mut upstream, deadline).await;
        if memchr::memmem::find(&body, b"stream_options").is_none() {
            return Ok(Told { head, upstream, sent_at, arrived, adds_usage, body: Body::Refusal(body) });
        }
        (asked.adds_usage, was_refused) = (false, true);
    }
}

/// What the status of an answer says of its engine. Answers below 300 count when they are whole.
fn judge(gateway: &Gateway, tables: &Tables, slot: BoardSlot, head: &hyper::http::response::Parts) {
    let kind = match head.status.as_u16() {
        429 => FailureKind::Busy,
        502..=504 => FailureKind::Failed,
        500.. => FailureKind::Faulty,
        300.. => return gateway.answered(slot),
        _ => return,
    };
    let asked = head.headers.get(header::RETRY_AFTER).filter(|_| kind != FailureKind::Faulty);
    let retry_after_seconds = asked.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    gateway.failed(Failure { slot, kind, retry_after_seconds }, tables.settings());
}

/// A path of ours with the client's query.
pub(crate) fn target(path: Cow<'static, str>, query: &str) -> Result<Uri, ApiError> {
    let fault = |_| ApiError::new(Reason::BadRequest, "the target's query is no part of a target");
    match path {
        Cow::Borrowed(path) if query.is_empty() => Ok(Uri::from_static(path)),
        path => Uri::try_from(format!("{path}{query}")).map_err(fault),
    }
}

/// The endpoint that holds a response, as far as it is known: to callers of one project, where there are keys.
pub(crate) fn holder(gateway: &Gateway, caller: Option<&Caller>, id: Option<&str>) -> Option<BoardSlot> {
    gateway.find_response(key_hash(id?.as_bytes()).wrapping_add(scope(caller)))
}

/// Metric row of the first pool of a model.
fn first_row(tables: &Tables, model: u32) -> u32 {
    let table = tables.routes();
    let pool = table.models.get(model as usize).and_then(|model| model.pools.first());
    let pool = pool.and_then(|row| table.pools.get(row.to_native() as usize));
    pool.map_or(RowIdx::OTHER.0, |pool| pool.metric_row.to_native())
}

/// What the use of that model costs.
pub(crate) fn units(tables: &Tables, model: u32) -> Units {
    tables.routes().models.get(model as usize).map_or_else(Units::default, |model| model.units.to_units())
}

pub(crate) fn metric_row(tables: &Tables, at: &Granted) -> u32 {
    tables.routes().pools.get(at.choice.pool.idx()).map_or(0, |pool| pool.metric_row.to_native())
}

/// A stream of events that can be read here.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let start = headers.get(header::CONTENT_TYPE).and_then(|value| value.as_bytes().get(..17));
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream")) && whole::is_plain(headers)
}
