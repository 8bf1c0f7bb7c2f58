//! Reading a whole request body into one buffer, in place.
//!
//! The long part of `RequestReader::body`. Memory follows what the client has really sent, never what it announces; the
//! result keeps at most a fifth more than the body. Never looks at payload.

use llmgw_runtime::io::Io;
use llmgw_runtime::timer::{Elapsed, timeout};

use crate::body::{BodyDecoder, Framing};
use crate::error::Reject;
use crate::limits::{BODY_FIRST_RESERVE_BYTES, BODY_PROGRESS_BYTES};
use crate::server::RequestReader;
use crate::spare::{self, Buffer, SPARE_BYTES};

/// Each later reservation is for at most this many times what has come.
const GROWTH: usize = 8;

const TOO_SLOW: Reject = Reject::new(408, "body not received in time");
const TOO_LARGE: Reject = Reject::new(413, "the body is larger than this gateway accepts");

impl<I: Io> RequestReader<I> {
    /// Reads a body of known length; nothing when the client left.
    pub(super) async fn read_length(&mut self, len: usize) -> Result<Option<Buffer>, Reject> {
        // The usual request has come whole: it stays where it lies.
        if let Some(whole) = self.ahead.take_all(len) {
            return Ok(Some(whole));
        }
        let mut body = if len <= SPARE_BYTES { spare::take() } else { Vec::new() };
        body.reserve_exact(len.min(BODY_FIRST_RESERVE_BYTES));
        self.move_held(&mut body, len);
        while body.len() < len {
            let goal = len.min(body.len() + BODY_PROGRESS_BYTES);
            match timeout(self.limits.client_body, self.read_up_to(&mut body, goal, len)).await {
                Ok(Some(())) => {}
                Ok(None) => return Ok(None),
                Err(Elapsed) => return Err(TOO_SLOW),
            }
        }
        Ok(Some(body.into()))
    }

    /// Reads until `goal` bytes are there; nothing when the client left.
    async fn read_up_to(&mut self, body: &mut Vec<u8>, goal: usize, len: usize) -> Option<()> {
        while body.len() < goal {
            if body.len() == body.capacity() {
                let target = len.min(body.len().saturating_mul(GROWTH));
                body.reserve_exact(target - body.len());
            }
            let room = body.capacity().min(len) - body.len();
            self.read_more(body, room).await?;
        }
        Some(())
    }

    /// Reads a chunked body; nothing when the client left.
    pub(super) async fn read_chunks(&mut self) -> Result<Option<Buffer>, Reject> {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        let mut body = Vec::new();
        loop {
            match timeout(self.limits.client_body, self.read_part(&mut body, &mut decoder)).await {
                Ok(Ok(Some(()))) => {}
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(reject)) => return Err(reject),
                Err(Elapsed) => return Err(TOO_SLOW),
            }
            if decoder.is_finished() {
                if body.capacity() - body.len() > body.len() / 5 {
                    body.shrink_to_fit();
                }
                return Ok(Some(body.into()));
            }
        }
    }

    /// Reads chunks until the body has grown by a step or ended.
    async fn read_part(&mut self, body: &mut Vec<u8>, decoder: &mut BodyDecoder) -> Result<Option<()>, Reject> {
        let goal = body.len() + BODY_PROGRESS_BYTES;
        while body.len() < goal && !decoder.is_finished() {
            let start = body.len();
            if self.ahead.held().is_empty() {
                let room = (body.len() / 8).max(16 * 1024);
                if body.capacity() - body.len() < 4 * 1024 {
                    body.reserve_exact(room);
                }
                let room = body.capacity() - body.len();
                if self.read_more(body, room).await.is_none() {
                    return Ok(None);
                }
            } else {
                self.move_held(body, usize::MAX);
            }
            let raw = body.get_mut(start..).unwrap_or_default();
            let found = decoder.decode(raw).map_err(|why| Reject::bad(why.0))?;
            if let Some(surplus) = body.get(start + found.consumed_bytes..) {
                self.ahead.put_back(surplus);
            }
            body.truncate(start + found.payload_bytes);
            if body.len() as u64 > self.limits.body_bytes {
                return Err(TOO_LARGE);
            }
        }
        Ok(Some(()))
    }

    /// One read straight into the body; nothing when the client left.
    async fn read_more(&mut self, body: &mut Vec<u8>, room: usize) -> Option<()> {
        if self.ahead.end().is_some() {
            return None;
        }
        matches!(self.ahead.read_into(body, room).await, Ok(1..)).then_some(())
    }

    /// Moves held bytes into the body, until it is `len` long.
    fn move_held(&mut self, body: &mut Vec<u8>, len: usize) {
        let held = self.ahead.held();
        let taken = held.len().min(len.saturating_sub(body.len()));
        body.extend_from_slice(held.get(..taken).unwrap_or_default());
        self.ahead.take(taken);
    }
}
