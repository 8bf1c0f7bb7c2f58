//! The receiving half of a client connection: heads, bodies, and the news that the client has left.
//!
//! Called by the gateway's request loop. The read that will bring the next request is pending while this one is
//! answered; it is how we notice a client that leaves, and costs nothing extra. Never writes but for an interim 100
//! through the writer.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, ready};

use llmgw_runtime::io::Io;
use llmgw_runtime::timer::timeout;

use crate::body::Framing;
use crate::error::Reject;
use crate::head::{HeadScan, RequestHead};
use crate::limits::{IDLE_BUF_BYTES, LEADING_LINES_MAX, LINGER_BYTES_MAX, LINGER_TIME, ServerLimits};
use crate::read_ahead::ReadAhead;
use crate::server::{ResponseWriter, Turn};
use crate::spare::Buffer;

/// What waiting for a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A head was read.
    Request,
    /// The connection is over: the client left, was idle too long, or the last answer ended it. Nothing is to be
    /// answered.
    Closed,
}

/// Reads requests, one after the other. Every wait may be given up and taken up again without losing a byte.
pub struct RequestReader<I: Io> {
    pub(super) ahead: ReadAhead<I>,
    pub(super) limits: Rc<ServerLimits>,
    pub(super) turn: Rc<Turn>,
    scan: HeadScan,
    leading_lines: usize,
}

impl<I: Io> RequestReader<I> {
    pub(super) fn new(io: I, limits: Rc<ServerLimits>, turn: Rc<Turn>) -> Self {
        Self { ahead: ReadAhead::new(io), limits, turn, scan: HeadScan::default(), leading_lines: 0 }
    }

    /// Holds the client to these bounds from here on: the body in hand to their times, the next request to all of them.
    pub fn keep_to(&mut self, limits: &Rc<ServerLimits>) {
        if !Rc::ptr_eq(&self.limits, limits) {
            self.limits = limits.clone();
            self.turn.taking_in.set(limits.client_idle);
        }
    }

    /// Waits for the next request head.
    ///
    /// Ends the connection when the last answer asked for it; when the body before was not read, bytes still coming are
    /// thrown away for a moment first, so that the client gets to read the answer.
    /// Errors: the refusal to answer with, after which this returns `Closed`.
    pub async fn next(&mut self, head: &mut RequestHead) -> Result<Next, Reject> {
        if !self.turn.may_go_on() {
            self.linger().await;
            return Ok(Next::Closed);
        }
        head.release();
        let result = self.wait_for_head(head).await;
        match &result {
            Ok(Next::Request) => self.turn.begin(head),
            Ok(Next::Closed) => self.turn.closes.set(true),
            Err(_) => self.turn.refuse(),
        }
        result
    }

    /// Whatever this client has sent or sends is not understood: the connection ends with the answer that comes next.
    pub fn refuse(&self) {
        self.turn.refuse();
    }

    async fn wait_for_head(&mut self, head: &mut RequestHead) -> Result<Next, Reject> {
        loop {
            if self.take_head(head)? {
                return Ok(Next::Request);
            }
            if self.ahead.end().is_some() {
                return Ok(Next::Closed);
            }
            if self.ahead.held().is_empty() && !self.scan.has_begun() {
                if timeout(self.limits.client_idle, self.ahead.fill(IDLE_BUF_BYTES)).await.is_err() {
                    self.ahead.io().say_goodbye();
                    return Ok(Next::Closed);
                }
                continue;
            }
            let limit = self.limits.client_header;
            return match timeout(limit, self.rest_of_head(head)).await {
                Ok(result) => result,
                Err(_) => Err(Reject::new(408, "head not received in time")),
            };
        }
    }

    async fn rest_of_head(&mut self, head: &mut RequestHead) -> Result<Next, Reject> {
        loop {
            let room = self.ahead.held().len().max(IDLE_BUF_BYTES);
            self.ahead.fill(room).await;
            if self.take_head(head)? {
                return Ok(Next::Request);
            }
            if self.ahead.end().is_some() {
                return Ok(Next::Closed);
            }
        }
    }

    /// Parses a head from what is held, if it is there.
    fn take_head(&mut self, head: &mut RequestHead) -> Result<bool, Reject> {
        while !self.scan.has_begun() && self.ahead.held().starts_with(b"\r\n") {
            self.ahead.take(2);
            self.leading_lines += 1;
            if self.leading_lines > LEADING_LINES_MAX {
                return Err(Reject::bad("empty lines before the request"));
            }
        }
        if matches!(self.ahead.held(), b"" | b"\r") {
            return Ok(false);
        }
        let Some(head_bytes) = head.resume(self.ahead.held(), &mut self.scan, &self.limits.head())? else {
            return Ok(false);
        };
        self.ahead.take(head_bytes);
        (self.scan, self.leading_lines) = (HeadScan::default(), 0);
        Ok(true)
    }

    /// Reads the body of the request whose head `next` gave. Nothing when the client left before it was complete.
    ///
    /// A length over the limit is refused before anything is read; an interim 100 is sent when the client waits for one
    /// and has not begun. When this is not called, or fails, the connection ends after the answer. Errors: 413, 400 for
    /// broken chunks, 408 when a part of `BODY_PROGRESS_BYTES` takes longer than `client_body`. Cost: no allocation
    /// where it is small, one of exactly the length up to 1 MiB, few and growing ones above; bytes are read into place.
    pub async fn body(&mut self, head: &RequestHead, writer: &mut ResponseWriter<I>) -> Result<Option<Buffer>, Reject> {
        if !self.turn.has_unread_body.get() {
            return Ok(Some(Buffer::default()));
        }
        let too_large = matches!(head.framing(), Framing::Length(len) if len > self.limits.body_bytes);
        if too_large {
            return Err(Reject::new(413, "the body is larger than this gateway accepts"));
        }
        if head.expects_continue() && self.ahead.held().is_empty() && writer.send_continue().await.is_err() {
            return Ok(None);
        }
        let body = match head.framing() {
            Framing::Length(len) => self.read_length(usize::try_from(len).unwrap_or(usize::MAX)).await?,
            _ => self.read_chunks().await?,
        };
        if body.is_some() {
            self.turn.has_unread_body.set(false);
        }
        Ok(body)
    }

    /// Resolves when the client has left. To be raced with producing the answer.
    ///
    /// Requests that come early are kept for `next`, up to one head's bound; beyond it nothing is read and a client
    /// that leaves is noticed by the writer alone.
    pub async fn gone(&mut self) {
        poll_fn(|cx| {
            while self.ahead.end().is_none() {
                if self.ahead.held().len() >= self.limits.header_bytes {
                    return Poll::Pending;
                }
                ready!(self.ahead.poll_more(cx, IDLE_BUF_BYTES));
            }
            Poll::Ready(())
        })
        .await;
    }

    /// No byte of another request has come, as far as the pending read has noticed: closing now loses nothing.
    pub fn is_idle(&self) -> bool {
        self.ahead.held().is_empty() && !self.scan.has_begun()
    }

    /// The client has left, as far as the pending read has noticed.
    pub fn is_gone(&self) -> bool {
        self.ahead.end().is_some()
    }

    /// Throws away what an unread body still brings, within bounds, so that our close does not reset the answer away.
    async fn linger(&mut self) {
        if self.turn.has_ended_in_order() {
            self.ahead.io().say_goodbye();
        }
        if self.turn.has_unread_body.get() {
            let _ = timeout(LINGER_TIME, self.drain()).await;
        }
        self.ahead.io().close_now();
    }

    async fn drain(&mut self) {
        let mut drained_bytes = 0;
        while self.ahead.end().is_none() && drained_bytes < LINGER_BYTES_MAX {
            drained_bytes += self.ahead.held().len();
            self.ahead.take(usize::MAX);
            self.ahead.fill(4 * IDLE_BUF_BYTES).await;
        }
    }
}
