//! The sending half of a client connection: whole responses and streams.
//!
//! Called by the gateway. Decides framing and persistence for every response, from what the request allows: chunks, a
//! length, or the connection's end. One write a response where it is small, one write a chunk. Never reads.

use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::Bytes;
use llmgw_runtime::io::{Io, write_parts};
use llmgw_runtime::late::{Side, late};
use llmgw_runtime::timer::{Elapsed, timeout};

use crate::chunk_buf::ChunkBuf;
use crate::draft::{ResponseDraft, SaidFraming};
use crate::limits::IDLE_BUF_BYTES;
use crate::server::{Phase, Turn};

/// What is known about a streamed body's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes; the writer holds the caller to it.
    Known(u64),
    /// Chunked, or up to the connection's end for HTTP/1.0.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Chunked,
    /// Payload bytes still to come.
    Length(u64),
    UntilClose,
    /// A body that is not sent: HEAD, 204, 304.
    Withheld,
}

/// Sends responses, one after the other.
///
/// After an I/O error nothing more can be sent and `next` of the reader ends the connection.
pub struct ResponseWriter<I: Io> {
    io: I,
    turn: Rc<Turn>,
    mode: Mode,
    spare: Vec<u8>,
}

impl<I: Io> ResponseWriter<I> {
    pub(super) fn new(io: I, turn: Rc<Turn>) -> Self {
        Self { io, turn, mode: Mode::Withheld, spare: Vec::new() }
    }

    /// Begins a response head in the writer's own buffer.
    pub fn draft(&mut self, status: u16) -> ResponseDraft {
        ResponseDraft::new(std::mem::take(&mut self.spare), status)
    }

    /// Ends the connection after the response that comes next (a drain, for instance).
    pub fn close_after(&mut self) {
        self.turn.closes.set(true);
    }

    /// Says whether an answer to the request in hand has begun: if so, errors can only be told within it.
    pub fn has_begun(&self) -> bool {
        self.turn.phase.get() == Phase::Answering
    }

    /// Sends a whole response. Cost: one write.
    ///
    /// Errors: also when the client does not take it in within `client_idle`; the connection is closed then.
    pub async fn send(&mut self, draft: ResponseDraft, body: impl Into<Bytes>) -> io::Result<()> {
        match timeout(self.turn.taking_in.get(), self.send_whole(draft, body.into())).await {
            Ok(sent) => sent,
            Err(Elapsed) => Err(self.give_up()),
        }
    }

    async fn send_whole(&mut self, draft: ResponseDraft, body: Bytes) -> io::Result<()> {
        let withholds = self.turn.is_head_request.get() || draft.is_bodiless();
        let framing = if draft.is_bodiless() { SaidFraming::Nothing } else { SaidFraming::Length(body.len() as u64) };
        let head = draft.end(framing, self.settle_close());
        self.turn.phase.set(Phase::Answering);
        self.write_after(head, if withholds { &[] } else { &body }).await?;
        self.turn.phase.set(Phase::Between);
        Ok(())
    }

    /// Sends a streamed response's head.
    pub async fn start(&mut self, draft: ResponseDraft, length: BodyLength) -> io::Result<()> {
        let head = self.begin_stream(draft, length);
        self.write_after(head, &[]).await
    }

    /// Sends a streamed response's head and its first payload, in one write.
    pub async fn start_with(
        &mut self,
        draft: ResponseDraft,
        length: BodyLength,
        first: ChunkBuf,
    ) -> (io::Result<()>, ChunkBuf) {
        let mut first = first;
        let head = self.begin_stream(draft, length);
        let sent = match self.framed(&mut first, b"\r\n") {
            Ok(start) => {
                let frame = start.and_then(|start| first.bytes().get(start..)).unwrap_or_default();
                self.write_after(head, frame).await
            }
            Err(error) => Err(error),
        };
        first.clear();
        (sent, first)
    }

    /// As [`Self::start_with`] for an answer that came whole: its end goes out in the same write.
    ///
    /// Errors: also when it is not as long as announced; the connection is closed then.
    pub async fn send_all(
        &mut self,
        draft: ResponseDraft,
        length: BodyLength,
        whole: ChunkBuf,
    ) -> (io::Result<()>, ChunkBuf) {
        let mut whole = whole;
        let head = self.begin_stream(draft, length);
        let is_chunked = self.mode == Mode::Chunked;
        let start = match self.framed(&mut whole, if is_chunked { b"\r\n0\r\n\r\n" } else { b"" }) {
            Ok(start) => start,
            Err(error) => return (Err(error), whole),
        };
        let frame = start.and_then(|start| whole.bytes().get(start..)).unwrap_or_default();
        let mut sent = self.write_after(head, frame).await;
        if sent.is_ok() && is_chunked && start.is_some() {
            self.turn.phase.set(Phase::Between);
        } else if sent.is_ok() {
            sent = self.finish().await;
        }
        whole.clear();
        (sent, whole)
    }

    /// Sends one payload as it is: one chunk, one write, no copy. The buffer comes back empty.
    pub async fn chunk(&mut self, buf: ChunkBuf) -> (io::Result<()>, ChunkBuf) {
        self.write_framed(buf, b"\r\n").await
    }

    /// Sends the last payload and ends the response, in one write.
    pub async fn finish_with(&mut self, last: ChunkBuf) -> (io::Result<()>, ChunkBuf) {
        if self.mode != Mode::Chunked || last.is_empty() {
            let (sent, last) = self.write_framed(last, b"").await;
            let ended = if sent.is_ok() { self.finish().await } else { sent };
            return (ended, last);
        }
        let (sent, last) = self.write_framed(last, b"\r\n0\r\n\r\n").await;
        if sent.is_ok() {
            self.turn.phase.set(Phase::Between);
        }
        (sent, last)
    }

    /// Ends a streamed response properly.
    ///
    /// Errors: also when fewer bytes were sent than announced; the connection is closed then.
    pub async fn finish(&mut self) -> io::Result<()> {
        match self.mode {
            Mode::Chunked => self.write(&mut [IoSlice::new(b"0\r\n\r\n")]).await?,
            Mode::Length(1..) => {
                self.abort();
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Mode::Length(0) | Mode::UntilClose | Mode::Withheld => {}
        }
        self.turn.phase.set(Phase::Between);
        Ok(())
    }

    /// Closes the connection at once, so that a client cannot take what it has for a whole response.
    pub fn abort(&mut self) {
        self.turn.closes.set(true);
        self.io.close_now();
    }

    pub(super) async fn send_continue(&mut self) -> io::Result<()> {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        match timeout(self.turn.taking_in.get(), self.write(&mut [IoSlice::new(interim)])).await {
            Ok(sent) => sent,
            Err(Elapsed) => Err(self.give_up()),
        }
    }

    /// The client has not read for too long: what is left of its answers would only be kept for nobody.
    fn give_up(&mut self) -> io::Error {
        self.abort();
        io::ErrorKind::TimedOut.into()
    }

    fn begin_stream(&mut self, draft: ResponseDraft, length: BodyLength) -> Vec<u8> {
        let (framing, mode) = match length {
            _ if draft.is_bodiless() => (SaidFraming::Nothing, Mode::Withheld),
            BodyLength::Known(len) => (SaidFraming::Length(len), Mode::Length(len)),
            BodyLength::Unknown if self.turn.is_http10.get() => (SaidFraming::Nothing, Mode::UntilClose),
            BodyLength::Unknown => (SaidFraming::Chunked, Mode::Chunked),
        };
        self.mode = if self.turn.is_head_request.get() { Mode::Withheld } else { mode };
        self.turn.phase.set(Phase::Answering);
        draft.end(framing, self.settle_close())
    }

    /// Decides whether the connection ends after this response.
    fn settle_close(&self) -> bool {
        let closes = self.turn.closes.get() || self.turn.has_unread_body.get() || self.turn.is_http10.get();
        self.turn.closes.set(closes);
        closes
    }

    /// Frames a payload in place; gives where it begins, or nothing when there is nothing to send.
    fn framed(&mut self, buf: &mut ChunkBuf, tail: &[u8]) -> io::Result<Option<usize>> {
        let len = buf.len() as u64;
        match &mut self.mode {
            _ if len == 0 => Ok(None),
            Mode::Withheld => Ok(None),
            Mode::Chunked => Ok(Some(buf.frame(tail))),
            Mode::UntilClose => Ok(Some(ChunkBuf::HEADROOM)),
            Mode::Length(left) if *left >= len => {
                *left -= len;
                Ok(Some(ChunkBuf::HEADROOM))
            }
            Mode::Length(_) => {
                self.abort();
                Err(io::Error::new(io::ErrorKind::InvalidData, "more body than announced"))
            }
        }
    }

    async fn write_framed(&mut self, mut buf: ChunkBuf, tail: &[u8]) -> (io::Result<()>, ChunkBuf) {
        let sent = match self.framed(&mut buf, tail) {
            Ok(Some(start)) => self.write(&mut [IoSlice::new(buf.bytes().get(start..).unwrap_or_default())]).await,
            Ok(None) => Ok(()),
            Err(error) => return (Err(error), buf),
        };
        buf.clear();
        (sent, buf)
    }

    /// Sends a head and what belongs behind it, in one write.
    async fn write_after(&mut self, head: Vec<u8>, body: &[u8]) -> io::Result<()> {
        let mut head = head;
        late(Side::Clients).await;
        let sent = self.write(&mut [IoSlice::new(&head), IoSlice::new(body)]).await;
        head.clear();
        head.shrink_to(IDLE_BUF_BYTES.max(1024));
        self.spare = head;
        sent
    }

    async fn write(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let sent = write_parts(&self.io, parts).await;
        if sent.is_err() {
            self.turn.closes.set(true);
        }
        sent
    }
}
