//! One exchange with an engine over hyper's client: connect or reuse, send, await the head, then the body piece by
//! piece.
//!
//! hyper's half of a connection is usually a task of its own. Here whoever holds the connection drives it, so that a
//! request crosses from task to task nowhere. A reused connection that turns out to be closed before it answered costs
//! one silent second try on a fresh one. An exchange that is dropped closes its connection.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use llmgw_gateway::error::Reason;
use llmgw_http::error::{ExchangeError, Malformed};
use llmgw_http::limits::RESPONSE_HEAD_BYTES_MAX;
use llmgw_http::tls::TlsFault;
use llmgw_kit::clock::Mono;
use tokio::time::timeout;

use crate::engine_io::{EngineIo, Place, Target};
use crate::pieces::Pieces;
use crate::pool::Pool;
use crate::turn::Turn;

/// A connection with the half of hyper that runs it.
pub(crate) struct Wire {
    sender: SendRequest<Pieces>,
    connection: Connection<TokioIo<EngineIo>, Pieces>,
    has_heard: Arc<AtomicBool>,
    is_done: bool,
}

impl Wire {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.is_done && Pin::new(&mut self.connection).poll(cx).is_ready() {
            // Whoever waits for an answer or a body hears of an error there.
            self.is_done = true;
        }
    }

    /// Whether it can take a request, once whatever has come was looked at.
    pub(crate) fn is_healthy(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        !self.is_done && self.sender.is_ready()
    }
}

/// What is sent, as often as it takes.
pub(crate) trait Outgoing {
    fn request(&self) -> Request<Pieces>;
}

/// How long an exchange may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    /// For the whole request.
    pub(crate) deadline: Mono,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Exchange(ExchangeError),
    /// The time for the whole request is up.
    Total,
    /// This gateway waits no longer.
    Cut,
}

/// Sends a request and waits for the head of its answer.
///
/// Errors: see [`ExchangeError`]; the connection is closed. Dropping the future closes it too.
pub(crate) async fn exchange(
    pool: &Pool,
    turn: &Turn,
    target: &Target<'_>,
    outgoing: &impl Outgoing,
    limits: Limits,
) -> Result<(hyper::http::response::Parts, Upstream), Fault> {
    let mut idle = poll_fn(|cx| Poll::Ready(pool.checkout(&target.place, cx))).await;
    let mut connect_time = None;
    loop {
        let is_reused = idle.is_some();
        let mut wire = match idle.take() {
            Some(wire) => wire,
            None => {
                let began = Mono::now();
                let wire = connect(pool, target, limits).await?;
                connect_time = Some(Mono::now().since(began));
                wire
            }
        };
        match ask(&mut wire, turn, outgoing.request(), limits).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let idle_limit = Duration::from_millis(target.idle_limit_ms().into());
                let place = target.place.clone();
                return Ok((head, Upstream { wire: Some(wire), body, place, idle_limit, connect_time }));
            }
            Err(Fault::Exchange(ExchangeError::ClosedBeforeHead)) if is_reused => pool.counts().retried(),
            Err(fault) => return Err(fault),
        }
    }
}

async fn connect(pool: &Pool, target: &Target<'_>, limits: Limits) -> Result<Box<Wire>, Fault> {
    let left = limits.deadline.since(Mono::now());
    let stream = timeout(limits.connect.min(left), target.connect())
        .await
        .map_err(|_| if left < limits.connect { Fault::Total } else { Fault::Exchange(ExchangeError::ConnectTimeout) })?
        .map_err(|error| Fault::Exchange(connect_error(&error)))?;
    pool.counts().opened();
    let has_heard = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(EngineIo::new(stream, has_heard.clone()));
    // A hundred header lines: for more, hyper would make its tables on the heap for each head.
    let (sender, mut connection) = Builder::new()
        .writev(true)
        .max_header_size(RESPONSE_HEAD_BYTES_MAX)
        .max_buf_size(RESPONSE_HEAD_BYTES_MAX)
        .handshake(io)
        .await
        .map_err(|_| Fault::Exchange(ExchangeError::ClosedBeforeHead))?;
    // A fresh connection takes a request once it has run.
    let is_done = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx).is_ready())).await;
    Ok(Box::new(Wire { sender, connection, has_heard, is_done }))
}

async fn ask(
    wire: &mut Wire,
    turn: &Turn,
    request: Request<Pieces>,
    limits: Limits,
) -> Result<Response<Incoming>, Fault> {
    let began = Mono::now();
    wire.has_heard.store(false, Relaxed);
    let until = (began + limits.first_byte).min(limits.deadline);
    let mut answer = pin!(wire.sender.try_send_request(request));
    poll_fn(|cx| {
        wire.drive(cx);
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            let has_heard = wire.has_heard.load(Relaxed);
            return Poll::Ready(answer.map_err(|error| Fault::Exchange(answer_error(&error, has_heard))));
        }
        let is_late = turn.poll_until(cx, until);
        is_late.map(|()| {
            Err(match until == limits.deadline {
                _ if turn.is_cut() => Fault::Cut,
                true => Fault::Total,
                false => Fault::Exchange(ExchangeError::FirstByteTimeout),
            })
        })
    })
    .await
}

fn connect_error(error: &io::Error) -> ExchangeError {
    let within = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match within {
        Some(error) => ExchangeError::Tls(tls_fault(error)),
        None => ExchangeError::Connect(error.kind()),
    }
}

fn tls_fault(error: &rustls::Error) -> TlsFault {
    use rustls::CertificateError as Why;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            Why::UnknownIssuer | Why::BadSignature => TlsFault::UnknownAuthority,
            Why::NotValidForName | Why::NotValidForNameContext { .. } => TlsFault::WrongName,
            Why::Expired | Why::ExpiredContext { .. } => TlsFault::Expired,
            Why::NotValidYet | Why::NotValidYetContext { .. } => TlsFault::NotYetValid,
            _ => TlsFault::BadCertificate,
        },
        _ => TlsFault::Handshake,
    }
}

fn answer_error(error: &TrySendError<Request<Pieces>>, has_heard: bool) -> ExchangeError {
    let error = error.error();
    if error.is_parse_too_large() {
        ExchangeError::Malformed(Malformed("the head is too large"))
    } else if error.is_parse() {
        ExchangeError::Malformed(Malformed("not a head of HTTP/1.1"))
    } else if has_heard {
        ExchangeError::ClosedInHead
    } else {
        ExchangeError::ClosedBeforeHead
    }
}

/// An engine's answer whose head has come.
pub(crate) struct Upstream {
    /// None once it was given back.
    wire: Option<Box<Wire>>,
    body: Incoming,
    place: Place,
    /// What connecting took; none on a connection used before.
    pub(crate) connect_time: Option<Duration>,
    idle_limit: Duration,
}

/// Why an answer ended badly: the reason and a sentence.
pub(crate) type Broken = (Reason, &'static str);

impl Upstream {
    /// The next piece of the body; nothing at its end.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        // Once for what is there, and once for what the connection has brought.
        let mut has_driven = false;
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => return Poll::Ready(Some(Ok(piece))),
                    // Trailers stay here.
                    _ => continue,
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(broken(&error)))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if has_driven => return Poll::Pending,
                Poll::Pending => {}
            }
            let Some(wire) = &mut self.wire else { return Poll::Ready(None) };
            wire.drive(cx);
            has_driven = true;
        }
    }

    /// Nothing follows what was taken.
    pub(crate) fn is_at_end(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The body's length, where its head said it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Gives the connection back for the next request, if it is of use for one. Answer: whether it was still here.
    pub(crate) fn release(&mut self, pool: &Pool, now: Mono) -> bool {
        let Some(mut wire) = self.wire.take() else { return false };
        // Nobody waits here: the next one to use it looks at it for itself.
        let is_ready = wire.sender.is_ready() || wire.is_healthy(&mut Context::from_waker(Waker::noop()));
        if is_ready && !wire.is_done && self.body.is_end_stream() {
            pool.put(&self.place, wire, self.idle_limit, now);
        }
        true
    }
}

fn broken(error: &hyper::Error) -> Broken {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>()
            && matches!(io.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
        {
            return (Reason::EngineMalformed, "malformed body: the chunks are not to the letter");
        }
        source = inner.source();
    }
    if error.is_parse() {
        return (Reason::EngineMalformed, "malformed body: the chunks are not to the letter");
    }
    (Reason::EngineClosed, "connection closed before the body's end")
}
