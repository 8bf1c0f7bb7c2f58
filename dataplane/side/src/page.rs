//! The admin address: what operators and load balancers ask, over HTTP/1.1.
//!
//! `/metrics`, `/healthz` and `/readyz` need no token on any address; `api` is what is below `/api/v1`, for whoever
//! `token` lets in, and `desk` passes on what somebody else answers. Bounded in connections, time and sizes. Never asks
//! a core: reads cells.

mod api;
pub(crate) mod desk;
mod guests;
mod text;
mod token;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use llmgw_kit::clock::Mono;
use llmgw_router::readiness::Standing;
use tokio::net::{TcpListener, TcpStream};

use self::guests::{Guests, Turn};
pub(crate) use self::text::Sources;

/// Connections served at once; at the bound a further one takes the place of the one that is silent longest.
const CONNECTIONS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;
const HEADER_COUNT_MAX: usize = 64;
/// For a request's head to arrive, the wait for the next request on a kept connection included.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// After this long a connection is closed at the next chance, and soon after in any case.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
const CLOSING_TIME: Duration = Duration::from_secs(5);
/// The wait after an accept that failed, mostly for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const JSON: &str = "application/json";

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, sources: Arc<Sources>) {
    let mut guests = Guests::<CONNECTIONS_MAX>::default();
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                is_failing = false;
                guests.make_room().await;
                let sources = sources.clone();
                guests.seat(|turn| serve_one(stream, sources, turn));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "admin address accepts no connection");
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn serve_one(stream: TcpStream, sources: Arc<Sources>, turn: Arc<Turn>) {
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().map(|peer| peer.ip());
    let service = service_fn(move |request: Request<Incoming>| {
        let (sources, turn, peer) = (sources.clone(), turn.clone(), peer.as_ref().ok().copied());
        async move {
            let path = request.uri().path().to_owned();
            let response = async {
                match path.strip_prefix(api::PREFIX) {
                    Some(below) => api::answer(request, below, peer, &sources).await,
                    None => answer(request.method(), &path, &sources),
                }
            };
            Ok::<_, Infallible>(turn.answer(response).await)
        }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_COUNT_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A peer that goes away or does not speak HTTP is its own affair.
    if tokio::time::timeout(CONNECTION_TIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(CLOSING_TIME, connection).await;
    }
}

/// The whole table of what is here.
fn answer(method: &Method, path: &str, sources: &Sources) -> Response<Full<Bytes>> {
    if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
        return refusal(StatusCode::NOT_FOUND, "not_found", "there is /metrics, /healthz, /readyz and /api/v1 here");
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return wrong_method("use GET", "GET, HEAD");
    }
    match path {
        "/metrics" => respond(StatusCode::OK, llmgw_obs::expose::CONTENT_TYPE, text::metrics(sources)),
        "/readyz" => {
            let slots = sources.view.borrow().replicas.iter().map(|(_, slot)| *slot).collect::<Vec<_>>();
            let standing = Standing::of(&sources.board, slots.into_iter(), Mono::now());
            let (is_ready, word) = sources.readiness.judge(&standing);
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let body = serde_json::json!({
                "is_ready": is_ready,
                "status": word,
                "endpoints_ready": standing.ready,
                "endpoints_draining": standing.draining,
                "endpoints_out": standing.out,
                "endpoints_known": standing.known,
                "is_settling": sources.readiness.is_settling(),
            });
            respond(status, JSON, body.to_string())
        }
        _ => respond(StatusCode::OK, JSON, r#"{"is_alive":true}"#.to_owned()),
    }
}

fn wrong_method(message: &str, allow: &'static str) -> Response<Full<Bytes>> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// The shape of errors on the client side of the gateway. Nothing a peer sent is shown.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Full<Bytes>> {
    let error = serde_json::json!({ "message": message, "type": "invalid_request_error", "param": null, "code": code });
    respond(status, JSON, serde_json::json!({ "error": error }).to_string())
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
