//! A request without a gateway's work: the same server, connections and upstreams, endpoints one after the other.
//!
//! For measuring what those cost by themselves; see the README. Called by `connection` when the program was started
//! with `--bare`. Nothing is read out of a body, decided, counted or logged, and no second endpoint is tried.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use llmgw_kit::clock::Mono;
use llmgw_types::BoardSlot;

use crate::answer::{Aborted, Answer};
use crate::body;
use crate::engine_io::Target;
use crate::headers::{X_REPLICA, X_REQUEST_ID};
use crate::pieces::Pieces;
use crate::serve::Client;
use crate::turn::Phase;
use crate::upstream::{Limits, Outgoing, Upstream, exchange};

/// Nobody looks for a request by it here.
const ID: HeaderValue = HeaderValue::from_static("0123456789abcdef0123456789abcdef");

/// Passes one request on. Whatever goes wrong is a 502 without a body.
pub(crate) async fn serve(client: Arc<Client>, request: Request<Incoming>) -> Response<Answer> {
    client.turn.enter(Phase::Busy);
    let passed = pass(&client, request).await;
    let (head, upstream) = match passed {
        Some((head, upstream)) => (Some(head), Some(upstream)),
        None => (None, None),
    };
    let body = Answer::Bare(Bare { upstream, client });
    match head {
        Some(head) => Response::from_parts(head, body),
        None => {
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

async fn pass(client: &Client, request: Request<Incoming>) -> Option<(hyper::http::response::Parts, Upstream)> {
    let Client { gateway, turn } = client;
    let tables = gateway.tables()?;
    let timeouts = &tables.settings().timeouts;
    let deadline = Mono::now() + timeouts.total;
    turn.set_busy_until(deadline + timeouts.client_idle);
    let (mut head, incoming) = request.into_parts();
    let body = body::read(incoming, turn, tables.settings()).await.ok()?;
    head.headers.remove(header::CONNECTION);
    head.headers.insert(X_REQUEST_ID, ID);
    let endpoints = &tables.routes().endpoints;
    let row = gateway.next.fetch_add(1, Relaxed).checked_rem(endpoints.len())?;
    let (endpoint, texts) = (endpoints.get(row)?, tables.endpoints.get(row)?);
    let target = Target::of(BoardSlot(endpoint.slot.to_native()), endpoint, texts.tls.as_ref())?;
    let mut once = Once(Some(Request::from_parts(head, Pieces::one(body))));
    let limits = Limits { connect: timeouts.connect, first_byte: timeouts.first_token, deadline };
    let (mut head, upstream) = exchange(&gateway.pool, turn, &target, &mut once, limits).await.ok()?;
    head.headers.insert(X_REPLICA, texts.name.clone());
    Some((head, upstream))
}

/// A request that is sent once.
struct Once(Option<Request<Pieces>>);

impl Outgoing for Once {
    fn request(&mut self) -> Option<Request<Pieces>> {
        self.0.take()
    }
}

/// An answer on its way to the client.
pub(crate) struct Bare {
    /// None once it is over.
    upstream: Option<Upstream>,
    client: Arc<Client>,
}

impl Bare {
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
        let piece = std::task::ready!(upstream.poll_piece(cx));
        if piece.is_none() || upstream.is_at_end() {
            upstream.release(&self.client.gateway.pool, Mono::now());
            self.upstream = None;
        }
        Poll::Ready(piece.map(|piece| piece.map_err(|_| Aborted)))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.upstream.is_none()
    }

    /// Its length, where the engine said it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.upstream.as_ref().map_or(Some(0), Upstream::length)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.client.turn.enter(Phase::Answered);
    }
}
