//! An upstream connection in use: the request going out, the head coming in, the body by pieces.
//!
//! Made by `exchange`, held by the gateway while it relays. Dropped at any moment it closes at once; released after a
//! clean end it goes back to the pool. Never looks at payload.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_runtime::io::{Io, poll_write_parts};
use llmgw_runtime::late::{Side, late};

use crate::body::{BodyDecoder, Framing};
use crate::chunk_buf::ChunkBuf;
use crate::error::{BodyError, ExchangeError, Malformed};
use crate::head::{AnswerTo, HeadScan, ResponseHead};
use crate::limits::{IDLE_BUF_BYTES, INTERIM_HEADS_MAX, RESPONSE_HEAD_BYTES_MAX};
use crate::pool::{Pool, Shelf, Target};
use crate::read_ahead::{End, ReadAhead};

/// Pieces of a request in one write.
const PARTS_MAX: usize = 16;

/// What one read of a response body brought.
#[derive(Debug)]
pub struct Piece {
    /// Decoded payload; may be empty when only the end came.
    pub buf: ChunkBuf,
    /// The body has ended, in order.
    pub is_last: bool,
}

/// A connection to an engine that is answering.
pub struct Upstream<I: Io> {
    ahead: ReadAhead<I>,
    pool: Pool<I>,
    shelf: Shelf,
    body: BodyDecoder,
    may_be_kept: bool,
    /// What is wrong with the body, found behind a piece that was still good.
    fault: Option<Malformed>,
    /// What connecting took; none on a connection used before.
    connect_time: Option<Duration>,
}

impl<I: Io> Upstream<I> {
    pub(super) fn reused(ahead: ReadAhead<I>, pool: &Pool<I>, target: &Target<'_>) -> Self {
        let body = BodyDecoder::new(Framing::None);
        let (pool, shelf) = (pool.clone(), target.shelf());
        Self { ahead, pool, shelf, body, may_be_kept: false, fault: None, connect_time: None }
    }

    pub(super) fn fresh(io: I, pool: &Pool<I>, target: &Target<'_>, connect_time: Duration) -> Self {
        Self { connect_time: Some(connect_time), ..Self::reused(ReadAhead::new(io), pool, target) }
    }

    /// The connection had served a request before this one.
    pub fn is_reused(&self) -> bool {
        self.connect_time.is_none()
    }

    /// What connecting took, TLS included; none on a connection used before.
    pub fn connect_time(&self) -> Option<Duration> {
        self.connect_time
    }

    /// Sends the request and awaits the final response head.
    pub(super) async fn ask(
        &mut self,
        head: &[u8],
        body: &[&[u8]],
        answer: &mut ResponseHead,
        to: AnswerTo,
    ) -> Result<(), ExchangeError> {
        let mut is_sent = true;
        let mut first = Some(head);
        let mut rest = body;
        while is_sent && (first.is_some() || !rest.is_empty()) {
            let (now, later) = rest.split_at(rest.len().min(PARTS_MAX - 1));
            let mut parts = [IoSlice::new(&[]); PARTS_MAX];
            let sources = first.take().into_iter().chain(now.iter().copied());
            parts.iter_mut().zip(sources).for_each(|(part, bytes)| *part = IoSlice::new(bytes));
            rest = later;
            is_sent = self.write_watching(&mut parts).await;
        }
        self.read_head(answer, to).await?;
        self.body = BodyDecoder::new(answer.framing());
        self.may_be_kept = is_sent && answer.keeps_alive();
        Ok(())
    }

    /// Writes while the read is pending, so that an engine that answers or closes early is heard. Sending stops then:
    /// what an engine says before it has the whole request is a refusal. False when not all was sent.
    async fn write_watching(&mut self, parts: &mut [IoSlice<'_>]) -> bool {
        let Self { ahead, .. } = self;
        let mut parts = parts;
        let mut late = late(Side::Engines);
        poll_fn(|cx| {
            if late.poll_now().is_pending() {
                return Poll::Pending;
            }
            if let Poll::Ready(sent) = poll_write_parts(ahead.io(), cx, &mut parts) {
                return Poll::Ready(sent.is_ok());
            }
            let has_news = hears_answer(ahead, cx);
            if has_news || ahead.end().is_some() { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }

    async fn read_head(&mut self, answer: &mut ResponseHead, to: AnswerTo) -> Result<(), ExchangeError> {
        let (mut scan, mut interim_heads) = (HeadScan::default(), 0);
        loop {
            match answer.resume(self.ahead.held(), &mut scan, to).map_err(ExchangeError::Malformed)? {
                Some(head_bytes) => {
                    self.ahead.take(head_bytes);
                    if answer.status() >= 200 {
                        return Ok(());
                    }
                    (scan, interim_heads) = (HeadScan::default(), interim_heads + 1);
                    if interim_heads > INTERIM_HEADS_MAX {
                        return Err(ExchangeError::Malformed(Malformed("too many interim answers")));
                    }
                }
                None if self.ahead.end().is_none() => {
                    self.ahead.fill(self.ahead.held().len().max(IDLE_BUF_BYTES)).await;
                }
                None if interim_heads == 0 && self.ahead.held().is_empty() => {
                    return Err(ExchangeError::ClosedBeforeHead);
                }
                None => return Err(ExchangeError::ClosedInHead),
            }
        }
    }

    /// Waits for the next piece of the body, decoded in place. `buf` is used for it; what it held is forgotten, and it
    /// holds no memory while nothing comes.
    ///
    /// May be dropped while waiting (a race, a timeout) and called again: no byte is lost, only the buffer.
    /// Errors: the body cannot be completed; the connection will not be reused.
    /// Cost: one read, no copy but of what came together with the head.
    pub async fn next_piece(&mut self, mut buf: ChunkBuf) -> Result<Piece, BodyError> {
        loop {
            buf.clear();
            if let Some(why) = self.fault {
                return Err(BodyError::Malformed(why));
            }
            if self.body.is_finished() {
                return Ok(Piece { buf, is_last: true });
            }
            if !self.ahead.held().is_empty() {
                self.copy_held(&mut buf);
            } else if let Some(end) = self.ahead.end() {
                return self.end_of_connection(buf, end);
            } else {
                let Ok(read_bytes @ 1..) = self.ahead.read_piece(&mut buf).await else { continue };
                buf.adapt(read_bytes);
            }
            let raw_bytes = buf.len();
            let found = match self.body.decode(buf.payload_mut()) {
                Ok(found) => found,
                Err(why) => {
                    self.may_be_kept = false;
                    self.fault = Some(why);
                    buf.truncate(self.body.payload_before_fault());
                    if buf.is_empty() {
                        continue;
                    }
                    return Ok(Piece { buf, is_last: false });
                }
            };
            // Bytes beyond the body belong to no request of ours.
            self.may_be_kept &= found.consumed_bytes == raw_bytes;
            buf.truncate(found.payload_bytes);
            if found.payload_bytes > 0 || found.is_finished {
                return Ok(Piece { buf, is_last: found.is_finished });
            }
        }
    }

    fn copy_held(&mut self, buf: &mut ChunkBuf) {
        let held = self.ahead.held();
        let taken = held.len().min(buf.room());
        buf.extend(held.get(..taken).unwrap_or_default());
        self.ahead.take(taken);
    }

    fn end_of_connection(&mut self, buf: ChunkBuf, end: End) -> Result<Piece, BodyError> {
        self.may_be_kept = false;
        match end {
            End::Eof if self.body.may_end() => Ok(Piece { buf, is_last: true }),
            // TLS that ends without its goodbye is known as that: somebody may have cut it.
            End::Eof | End::Failed(io::ErrorKind::UnexpectedEof) => Err(BodyError::Truncated),
            End::Failed(kind) => Err(BodyError::Io(kind)),
        }
    }

    /// Gives the connection back. It is kept for another request when the body has ended, the engine keeps it alive
    /// and no byte came beyond; otherwise it is closed. Dropping instead of releasing always closes.
    pub fn release(self, now: Mono) {
        let is_clean = self.may_be_kept && self.body.is_finished() && self.ahead.held().is_empty();
        if is_clean && self.ahead.end().is_none() {
            let Self { ahead, pool, shelf, .. } = self;
            pool.put(&shelf, ahead, now);
        }
    }
}

/// Takes in what the engine says while it is written to; true once it has begun a final answer or ended. An interim
/// answer is kept for later and the read goes on.
fn hears_answer<I: Io>(ahead: &mut ReadAhead<I>, cx: &mut Context<'_>) -> bool {
    loop {
        let held = ahead.held();
        let is_final = !held.is_empty() && !b"HTTP/1.1 1".starts_with(held) && !held.starts_with(b"HTTP/1.1 1");
        if ahead.end().is_some() || is_final {
            return true;
        }
        if held.len() >= RESPONSE_HEAD_BYTES_MAX {
            return false;
        }
        if ahead.poll_more(cx, IDLE_BUF_BYTES).is_pending() {
            return false;
        }
    }
}
