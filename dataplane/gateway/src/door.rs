//! The clients' door: a connection as it is, or within TLS where certificates are configured, and how it came to be.
//!
//! Called by `connection` for every connection that the listener gives. Counts each handshake by its outcome; says
//! nothing, since what clients do wrong is their affair, but for plain text where TLS is spoken, which the side runtime
//! reads off the counts. Never reads a request.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use llmgw_http::tls::{Accepted, NotAccepted, Taken, Tls, accept};
use llmgw_router::metrics::TlsOutcome;
use llmgw_runtime::io::Io;
use llmgw_runtime::tcp::Tcp;
use llmgw_runtime::timer::timeout;
use llmgw_runtime::{Either, race};

use crate::core::Core;

/// A connection of a client's.
#[derive(Clone)]
pub(crate) enum ClientIo {
    /// As it is.
    Plain(Tcp),
    /// Within TLS.
    Tls(Tls<Tcp>),
}

/// What came of a connection.
pub(crate) enum Entered {
    /// Requests may come.
    Ready(ClientIo),
    /// Within TLS they might; what came was plain text.
    SpeaksPlain(ClientIo),
    /// Nobody is there any more.
    Gone,
}

/// Lets a client in. The handshake has the time that a request's head has, and ends with this core's patience.
pub(crate) async fn enter(core: &Rc<Core>, tcp: Tcp) -> Entered {
    let Some(config) = core.client_tls() else { return Entered::Ready(ClientIo::Plain(tcp)) };
    let shaken = timeout(core.settings.timeouts.client_header, accept(tcp, &config));
    let (outcome, entered) = match race(shaken, core.cut.wait()).await {
        Either::Left(Ok(Ok(Accepted { io, taken }))) => {
            let outcome = if taken == Taken::Resumed { TlsOutcome::Resumed } else { TlsOutcome::Full };
            (outcome, Entered::Ready(ClientIo::Tls(io)))
        }
        Either::Left(Ok(Err(NotAccepted::Plain(tcp)))) => {
            (TlsOutcome::PlainText, Entered::SpeaksPlain(ClientIo::Plain(tcp)))
        }
        Either::Left(Ok(Err(NotAccepted::Failed(_)))) => (TlsOutcome::Failed, Entered::Gone),
        Either::Left(Err(_)) => (TlsOutcome::TooSlow, Entered::Gone),
        Either::Left(Ok(Err(NotAccepted::Left))) | Either::Right(()) => (TlsOutcome::Left, Entered::Gone),
    };
    core.cells.count_handshake(outcome);
    entered
}

impl Io for ClientIo {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_read(cx, buf, room),
            Self::Tls(tls) => tls.poll_read(cx, buf, room),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_write(cx, parts),
            Self::Tls(tls) => tls.poll_write(cx, parts),
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    fn say_goodbye(&self) {
        if let Self::Tls(tls) = self {
            tls.say_goodbye();
        }
    }

    fn close_now(&self) {
        match self {
            Self::Plain(tcp) => tcp.close_now(),
            Self::Tls(tls) => tls.close_now(),
        }
    }
}
