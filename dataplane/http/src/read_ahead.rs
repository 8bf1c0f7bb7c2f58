//! A connection's receiving side: what has come and was not taken, and how the peer ended.
//!
//! Both halves read through it. What is pending stays with the connection, so a wait may be given up (a race, a
//! timeout) and taken up later without losing a byte; while nothing is asked of it, the pending read is also what
//! notices that the peer has left. Never interprets bytes.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker, ready};

use llmgw_runtime::io::Io;

use crate::chunk_buf::ChunkBuf;
use crate::limits::IDLE_BUF_BYTES;
use crate::spare::{self, Buffer};

/// How the peer's side of a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In order.
    Eof,
    /// Reset and the like.
    Failed(io::ErrorKind),
}

/// What a connection has received.
///
/// Dropping it closes the connection at once.
pub(crate) struct ReadAhead<I: Io> {
    io: I,
    /// Without room while nothing is held.
    held: Vec<u8>,
    start: usize,
    end: Option<End>,
}

impl<I: Io> ReadAhead<I> {
    pub(crate) fn new(io: I) -> Self {
        Self { io, held: Vec::new(), start: 0, end: None }
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

    /// Gives up the first `len` held bytes, which the caller has used.
    pub(crate) fn take(&mut self, len: usize) {
        self.start = self.start.saturating_add(len).min(self.held.len());
        if self.start == self.held.len() {
            self.start = 0;
            spare::give(std::mem::take(&mut self.held));
        }
    }

    /// Gives all that is held as it lies, when that is exactly `len` bytes.
    pub(crate) fn take_all(&mut self, len: usize) -> Option<Buffer> {
        if len == 0 || self.held().len() != len {
            return None;
        }
        let start = std::mem::take(&mut self.start);
        Some(Buffer::from_start(std::mem::take(&mut self.held), start))
    }

    /// Puts back bytes that were read beyond what the caller wanted. They come before anything still to be read.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.held.splice(..self.start, bytes.iter().copied());
        self.start = 0;
    }

    /// Takes in what has come, at most one buffer, waking nobody; what comes next is noticed from here on.
    pub(crate) fn poke(&mut self) {
        let _ = self.poll_more(&mut Context::from_waker(Waker::noop()), IDLE_BUF_BYTES);
    }

    /// Ready when more is held than before, or the peer has ended. Reads at most `room` bytes.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<()> {
        if self.end.is_some() {
            return Poll::Ready(());
        }
        if self.held.capacity() == 0 {
            self.held = spare::take();
        } else if self.start > 0 {
            self.held.drain(..self.start);
            self.start = 0;
        }
        let polled = self.io.poll_read(cx, &mut self.held, room);
        if self.held.is_empty() {
            spare::give(std::mem::take(&mut self.held));
        }
        let result = ready!(polled);
        self.note_end(&result);
        Poll::Ready(())
    }

    /// Waits until more is held than before, or the peer has ended. Reads at most `room` bytes.
    ///
    /// May be dropped and called again without losing bytes.
    pub(crate) async fn fill(&mut self, room: usize) {
        poll_fn(|cx| self.poll_more(cx, room)).await;
    }

    /// Reads straight into `buf`, behind what it holds, at most `room` bytes. Nothing may be held.
    ///
    /// May be dropped and called again without losing bytes.
    pub(crate) async fn read_into(&mut self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        debug_assert!(self.held().is_empty());
        let result = poll_fn(|cx| self.io.poll_read(cx, buf, room)).await;
        self.note_end(&result);
        result
    }

    /// As [`Self::read_into`], into a buffer that holds nothing and rests while it waits.
    pub(crate) async fn read_piece(&mut self, buf: &mut ChunkBuf) -> io::Result<usize> {
        debug_assert!(self.held().is_empty());
        let room = buf.room();
        let result = poll_fn(|cx| {
            let polled = self.io.poll_read(cx, buf.read_buf(), room);
            if polled.is_pending() {
                buf.rest();
            }
            polled
        })
        .await;
        self.note_end(&result);
        result
    }

    fn note_end(&mut self, result: &io::Result<usize>) {
        match result {
            Ok(0) => self.end = Some(End::Eof),
            Ok(_) => {}
            Err(error) => self.end = Some(End::Failed(error.kind())),
        }
    }
}

impl<I: Io> Drop for ReadAhead<I> {
    fn drop(&mut self) {
        self.io.close_now();
        spare::give(std::mem::take(&mut self.held));
    }
}
