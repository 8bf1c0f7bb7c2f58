//! One client connection: hyper's server, watched over by one timer.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use llmgw_gateway::error::ApiError;
use llmgw_router::settings::Settings;
use llmgw_runtime::catch::without_panic;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client_io::ClientIo;
use crate::finish::Finish;
use crate::patience::Patience;
use crate::serve::{Client, serve};
use crate::state::Gateway;
use crate::turn::{Phase, Turn};
use crate::{bare, refusal, respond};

/// What hyper holds of one connection in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// Header lines that hyper has room for on the stack; for a larger limit it would make its tables on the heap for each
/// head, so none is set.
const HEADERS_WITHOUT_HEAP: usize = 100;
/// How long a client may take to read a last word.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub(crate) async fn run(gateway: Arc<Gateway>, stream: TcpStream, settings: Arc<Settings>) {
    let _open = Open::new(&gateway);
    let turn = Arc::new(Turn::new());
    let io = TokioIo::new(ClientIo::new(stream, turn.clone(), gateway.clone()));
    let client = Arc::new(Client { gateway: gateway.clone(), turn: turn.clone() });
    let service = service_fn(move |request: Request<Incoming>| {
        let client = client.clone();
        async move {
            if client.gateway.is_bare {
                return Ok::<_, Infallible>(bare::serve(client, request).await);
            }
            Ok(match without_panic(serve(&client, request)).await {
                Ok(response) => response,
                Err(_) => {
                    let Client { gateway, turn } = &*client;
                    gateway.count(|cells| cells.panics.increment());
                    respond::error(&ApiError::internal(), Finish::begin(gateway, turn, None))
                }
            })
        }
    });
    let limits = &settings.limits;
    let mut builder = Builder::new();
    if limits.headers < HEADERS_WITHOUT_HEAP {
        builder.max_headers(limits.headers);
    }
    let mut connection = builder
        .writev(true)
        .auto_date_header(false)
        .max_header_size(limits.header_bytes)
        .max_buf_size(BUFFER_BYTES.max(limits.header_bytes + (8 << 10)))
        .serve_connection(io, service);
    let mut watch = Patience::default();
    let mut drains = pin!(gateway.drains.notified());
    let (mut has_asked, mut has_drained) = (false, false);
    let is_late = poll_fn(|cx| {
        if gateway.is_cut.load(Relaxed) {
            turn.cut();
        }
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        let is_draining = gateway.is_draining.load(Relaxed);
        if is_draining || !std::mem::replace(&mut has_asked, true) {
            // Once for the drain, and once more for the cut that may follow.
            while drains.as_mut().poll(cx).is_ready() {
                drains.set(gateway.drains.notified());
            }
        }
        if is_draining && !std::mem::replace(&mut has_drained, true) {
            Pin::new(&mut connection).graceful_shutdown();
            if Pin::new(&mut connection).poll(cx).is_ready() {
                return Poll::Ready(false);
            }
        }
        let until = match turn.phase() {
            Phase::Idle | Phase::Answered => turn.since() + settings.timeouts.client_idle,
            Phase::Head => turn.since() + settings.timeouts.client_header,
            Phase::Busy => turn.busy_until(),
        };
        watch.poll(cx, until).map(|()| true)
    })
    .await;
    if !is_late {
        return;
    }
    match turn.phase() {
        Phase::Head => {
            let bytes = refusal::of_head(&gateway, &turn, 408);
            let mut io = connection.into_parts().io.into_inner();
            // A client that is gone by then is nobody's trouble.
            let _ = timeout(LAST_WORD, io.stream().write_all(&bytes)).await;
            let _ = timeout(LAST_WORD, io.stream().shutdown()).await;
        }
        Phase::Busy => turn.set_overdue(),
        Phase::Idle | Phase::Answered => {}
    }
}

/// Counts an open connection, also when its task is dropped.
struct Open(Arc<Gateway>);

impl Open {
    fn new(gateway: &Arc<Gateway>) -> Self {
        gateway.count(|cells| cells.connections_open.increment());
        Self(gateway.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count(|cells| cells.connections_open.decrement());
    }
}
