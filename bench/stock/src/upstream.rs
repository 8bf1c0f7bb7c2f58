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

use crate::bell::Bell;
use crate::engine_io::{EngineIo, Place, Target};
use crate::pieces::Pieces;
use crate::pool::Pool;
use crate::turn::Turn;

/// A connection with the half of hyper that runs it.
pub(crate) struct Wire {
    sender: SendRequest<Pieces>,
    /// None once it is over; what it had not sent comes back from `sender` then.
    connection: Option<Connection<TokioIo<EngineIo>, Pieces>>,
    bell: Arc<Bell>,
    /// Rings it.
    waker: Waker,
    has_heard: Arc<AtomicBool>,
}

impl Wire {
    /// Takes what has come and sends what can be sent; `cx` is woken for more.
    fn drive(&mut self, cx: &Context<'_>) {
        self.bell.call(cx.waker());
        self.turn();
    }

    fn turn(&mut self) {
        let mut cx = Context::from_waker(&self.waker);
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(&mut cx).is_ready()
        {
            // Whoever waits for an answer or a body hears of an error there.
            self.connection = None;
        }
    }

    /// Whether it can take a request, once whatever has come was looked at. For one that nobody waits for.
    pub(crate) fn is_healthy(&mut self) -> bool {
        self.bell.mute();
        self.turn();
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// What is sent, as often as it takes; none when it cannot be said again.
pub(crate) trait Outgoing {
    fn request(&mut self) -> Option<Request<Pieces>>;
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
    outgoing: &mut impl Outgoing,
    limits: Limits,
) -> Result<(hyper::http::response::Parts, Upstream), Fault> {
    let mut connect_time = None;
    let now = Mono::now();
    let (mut unsent, mut is_tried) = (None, false);
    loop {
        let idle = if is_tried { None } else { pool.checkout(&target.place, now) };
        let is_reused = idle.is_some();
        let mut wire = match idle {
            Some(wire) => wire,
            None => {
                let began = Mono::now();
                let wire = connect(pool, target, limits).await?;
                connect_time = Some(Mono::now().since(began));
                wire
            }
        };
        let closed = Fault::Exchange(ExchangeError::ClosedBeforeHead);
        let request = unsent.take().or_else(|| outgoing.request()).ok_or(closed)?;
        match ask(&mut wire, turn, request, &mut unsent, limits).await {
            Ok(response) => {
                if is_reused {
                    pool.counts().reused();
                }
                let (head, body) = response.into_parts();
                let idle_limit = Duration::from_millis(target.idle_limit_ms().into());
                let place = target.place.clone();
                return Ok((head, Upstream { wire: Some(wire), body, place, idle_limit, connect_time }));
            }
            // It was closed while it was idle: another one will do.
            Err(Fault::Exchange(_)) if is_reused && unsent.is_some() => pool.counts().stale(),
            Err(Fault::Exchange(ExchangeError::ClosedBeforeHead)) if is_reused => {
                pool.counts().retried();
                is_tried = true;
            }
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
    let (sender, connection) = Builder::new()
        .writev(true)
        .max_header_size(RESPONSE_HEAD_BYTES_MAX)
        .max_buf_size(RESPONSE_HEAD_BYTES_MAX)
        .handshake(io)
        .await
        .map_err(|_| Fault::Exchange(ExchangeError::ClosedBeforeHead))?;
    let bell = Bell::new();
    let mut wire = Wire { sender, connection: Some(connection), waker: bell.clone().into(), bell, has_heard };
    // A fresh connection takes a request once it has run.
    wire.turn();
    Ok(Box::new(wire))
}

async fn ask(
    wire: &mut Wire,
    turn: &Turn,
    request: Request<Pieces>,
    unsent: &mut Option<Request<Pieces>>,
    limits: Limits,
) -> Result<Response<Incoming>, Fault> {
    let began = Mono::now();
    wire.has_heard.store(false, Relaxed);
    let until = (began + limits.first_byte).min(limits.deadline);
    let mut answer = pin!(wire.sender.try_send_request(request));
    after_the_others().await;
    let answer = poll_fn(|cx| {
        wire.drive(cx);
        // Nothing but a turn of the connection brings the answer.
        if let Poll::Ready(answer) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            let has_heard = wire.has_heard.load(Relaxed);
            return Poll::Ready(answer.map_err(|mut error| {
                *unsent = error.take_message();
                Fault::Exchange(answer_error(&error, has_heard))
            }));
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
    .await;
    after_the_others().await;
    answer
}

/// Lets the tasks go first that are ready now, once.
///
/// Everything that has come is read before anything is written: what goes to one peer leaves in one go, and wakes a
/// process on this machine once, where it would go to sleep and be woken for each write.
async fn after_the_others() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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
        // Once for what is there, and once for what the connection has brought: nothing but a turn of it brings more.
        // Before there is nothing to wait for, it has had that turn, so that it may be silent till then.
        let mut has_driven = false;
        if let Some(wire) = &self.wire {
            wire.bell.mute();
        }
        loop {
            match Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(Waker::noop())) {
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
        wire.bell.mute();
        let is_ready = wire.sender.is_ready() || wire.is_healthy();
        if is_ready && wire.connection.is_some() && self.body.is_end_stream() {
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
