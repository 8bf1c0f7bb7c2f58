//! A client's socket as hyper sees it: notes what the connection's watch must know, says hyper's own refusals in the
//! shape of ours, and lingers where an abrupt end would take the answer away.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use llmgw_http::limits::{LINGER_BYTES_MAX, LINGER_TIME};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::refusal;
use crate::state::Gateway;
use crate::turn::{Phase, Turn};

/// See the module.
pub(crate) struct ClientIo {
    stream: TcpStream,
    turn: Arc<Turn>,
    gateway: Arc<Gateway>,
    refusal: Option<Refusal>,
    linger: Option<Linger>,
}

/// What goes out in place of what hyper writes.
struct Refusal {
    bytes: Vec<u8>,
    sent: usize,
}

struct Linger {
    sleep: Pin<Box<Sleep>>,
    left: usize,
}

impl ClientIo {
    pub(crate) fn new(stream: TcpStream, turn: Arc<Turn>, gateway: Arc<Gateway>) -> Self {
        Self { stream, turn, gateway, refusal: None, linger: None }
    }

    /// The socket alone, for a last word.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether `front` begins a refusal of hyper's, for a head that never became a request.
    fn is_hypers_refusal(&self, front: &[u8]) -> bool {
        matches!(self.turn.phase(), Phase::Idle | Phase::Head)
            && front.starts_with(b"HTTP/1.1 4")
            && memchr::memmem::find(front, b"x-request-id").is_none()
    }

    fn refuse(&mut self, front: &[u8]) {
        let status = front.get(9..12).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok()).unwrap_or(400);
        self.turn.linger();
        self.refusal = Some(Refusal { bytes: refusal::of_head(&self.gateway, &self.turn, status), sent: 0 });
    }

    /// Writes the refusal to its end; then `taken` bytes of hyper's count as written.
    fn poll_refusal(&mut self, cx: &mut Context<'_>, taken: usize) -> Poll<io::Result<usize>> {
        while let Some(Refusal { bytes, sent }) = &mut self.refusal {
            let rest = bytes.get(*sent..).unwrap_or_default();
            if rest.is_empty() {
                self.refusal = None;
                break;
            }
            *sent += ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
        }
        Poll::Ready(Ok(taken))
    }

    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.turn.set_write_blocked(written.is_pending());
        written
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.turn.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.refusal.is_none() && self.is_hypers_refusal(buf) {
            self.refuse(buf);
        }
        if self.refusal.is_some() {
            return self.poll_refusal(cx, buf.len());
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let front = bufs.first().map(|buf| &**buf).unwrap_or_default();
        if self.refusal.is_none() && self.is_hypers_refusal(front) {
            self.refuse(front);
        }
        if self.refusal.is_some() {
            let taken = bufs.iter().map(|buf| buf.len()).sum();
            return self.poll_refusal(cx, taken);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Ends our side; where the client may still be sending, reads on for a while, so that no reset overtakes the
    /// answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.turn.lingers() {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = this
            .linger
            .get_or_insert_with(|| Linger { sleep: Box::pin(tokio::time::sleep(LINGER_TIME)), left: LINGER_BYTES_MAX });
        let mut scrap = [0; 8 << 10];
        while linger.left > 0 && linger.sleep.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scrap);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => linger.left = linger.left.saturating_sub(buf.filled().len()),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
