//! The one read of a connection, stored so that nobody drops it.
//!
//! Both halves read through it. A pending read lives here and not in the future of whoever waits, so a wait may be
//! given up (a race, a timeout) and taken up later without losing a byte; while nothing is asked of it, the pending
//! read is also what notices that the peer has left. Changes with the rules of the ring. Never interprets bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use llmgw_runtime::io::Io;

use crate::limits::IDLE_BUF_BYTES;

type Reading = Pin<Box<dyn Future<Output = (io::Result<usize>, Vec<u8>)>>>;

/// How the peer's side of a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In order.
    Eof,
    /// Reset and the like.
    Failed(io::ErrorKind),
}

struct Armed {
    reading: Reading,
    /// Bytes in front of the buffer that were there for another purpose and are not the peer's.
    foreign_bytes: usize,
}

/// A connection's receiving side: its pending read, and what has come but was not taken.
///
/// Invariant: at most one read is outstanding. Dropping it closes the connection at once.
pub(crate) struct ReadAhead<I: Io> {
    io: I,
    armed: Option<Armed>,
    held: Vec<u8>,
    start: usize,
    end: Option<End>,
}

impl<I: Io> ReadAhead<I> {
    pub(crate) fn new(io: I) -> Self {
        Self { io, armed: None, held: Vec::new(), start: 0, end: None }
    }

    pub(crate) fn io(&self) -> &I {
        &self.io
    }

    /// Bytes that came and were not taken.
    pub(crate) fn held(&self) -> &[u8] {
        self.held.get(self.start..).unwrap_or_default()
    }

    /// How the peer ended, once it has and the read noticed.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Gives up the first `len` held bytes, which the caller has used.
    pub(crate) fn take(&mut self, len: usize) {
        self.start = self.start.saturating_add(len).min(self.held.len());
        if self.start == self.held.len() {
            self.held.clear();
            self.start = 0;
        }
    }

    /// Puts back bytes that were read beyond what the caller wanted. They come before anything still to be read.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.held.splice(..self.start, bytes.iter().copied());
        self.start = 0;
    }

    /// Makes sure a read is pending, into a small buffer of its own, leaving what is held where it is.
    ///
    /// Loss: nothing reaches the ring before the first poll ([`ReadAhead::poke`], or any wait).
    pub(crate) fn arm_idle(&mut self) {
        if self.armed.is_some() || self.end.is_some() {
            return;
        }
        let mut buf = if self.held().is_empty() { self.emptied() } else { Vec::new() };
        if buf.capacity() > 2 * IDLE_BUF_BYTES {
            buf = Vec::new();
        }
        buf.reserve_exact(IDLE_BUF_BYTES);
        self.arm(buf, 0);
    }

    /// Polls the pending read once, waking nobody: hands it to the ring, or takes in what it found.
    pub(crate) fn poke(&mut self) {
        let _ = self.poll_armed(&mut Context::from_waker(Waker::noop()));
    }

    /// Takes in the pending read's result; ready at once when none is pending.
    pub(crate) fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(armed) = &mut self.armed else { return Poll::Ready(()) };
        let (result, buf) = ready!(armed.reading.as_mut().poll(cx));
        let foreign_bytes = armed.foreign_bytes;
        self.armed = None;
        self.note_end(&result);
        if self.held().is_empty() && foreign_bytes == 0 {
            (self.held, self.start) = (buf, 0);
        } else {
            self.held.extend_from_slice(buf.get(foreign_bytes..).unwrap_or_default());
        }
        Poll::Ready(())
    }

    /// Waits until more is held than before, or the peer has ended. A new read gets room for at least `room` bytes.
    ///
    /// May be dropped and called again without losing bytes.
    pub(crate) async fn fill(&mut self, room: usize) {
        if self.end.is_some() {
            return;
        }
        if self.armed.is_none() {
            let mut buf = std::mem::take(&mut self.held);
            buf.drain(..self.start);
            self.start = 0;
            if buf.capacity() - buf.len() < room.div_ceil(2) {
                buf.reserve_exact(room);
            }
            self.arm(buf, 0);
        }
        poll_fn(|cx| self.poll_armed(cx)).await;
    }

    /// Reads straight into `buf`, behind what it holds. Nothing may be held or pending.
    ///
    /// When dropped while waiting, the read goes on, and what it finds is held; `buf` itself is lost.
    pub(crate) async fn read_into(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        debug_assert!(self.armed.is_none() && self.held().is_empty());
        let foreign_bytes = buf.len();
        self.arm(buf, foreign_bytes);
        let (result, buf) = poll_fn(|cx| match &mut self.armed {
            Some(armed) => armed.reading.as_mut().poll(cx),
            None => Poll::Ready((Ok(0), Vec::new())),
        })
        .await;
        self.armed = None;
        self.note_end(&result);
        (result, buf)
    }

    fn arm(&mut self, buf: Vec<u8>, foreign_bytes: usize) {
        self.armed = Some(Armed { reading: Box::pin(self.io.read(buf)), foreign_bytes });
    }

    fn note_end(&mut self, result: &io::Result<usize>) {
        match result {
            Ok(0) => self.end = Some(End::Eof),
            Ok(_) => {}
            Err(error) => self.end = Some(End::Failed(error.kind())),
        }
    }

    /// The holding buffer, empty, for use elsewhere.
    fn emptied(&mut self) -> Vec<u8> {
        self.start = 0;
        let mut buf = std::mem::take(&mut self.held);
        buf.clear();
        buf
    }
}

impl<I: Io> Drop for ReadAhead<I> {
    fn drop(&mut self) {
        self.io.close_now();
    }
}
