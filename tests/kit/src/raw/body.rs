//! A body read as it arrives: pieces, or the events of a stream one by one.

use std::io;
use std::time::Duration;

use super::reply::{Framing, event_end};
use super::{Closed, Connection};

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As its framing promised.
    Complete,
    /// The connection ended inside the body.
    Cut(Closed),
    /// The framing itself is broken: a chunk size that is no number, a missing line end.
    Broken,
    /// Not reached yet.
    Open,
}

/// The body of one reply. Drop it to get the connection back.
#[derive(Debug)]
pub struct Body<'c> {
    connection: &'c mut Connection,
    state: State,
    end: End,
    /// Decoded and not yet given out as an event.
    pending: Vec<u8>,
    trailers: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Counted(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
}

impl<'c> Body<'c> {
    pub(super) fn new(connection: &'c mut Connection, framing: Framing) -> Self {
        let state = match framing {
            Framing::None => State::Counted(0),
            Framing::Length(length) => State::Counted(length),
            Framing::Chunked => State::ChunkSize,
            Framing::Close => State::UntilClose,
        };
        Self { connection, state, end: End::Open, pending: Vec::new(), trailers: Vec::new() }
    }

    /// The next bytes of the body, as they arrived; `None` at the end (see [`Body::end`]).
    ///
    /// Errors: `TimedOut` when nothing arrives.
    pub fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        while self.end == End::Open {
            if let Some(piece) = self.decode() {
                return Ok(Some(piece));
            }
            if self.end == End::Open && self.connection.fill()? == 0 {
                let closed = self.connection.closed.unwrap_or(Closed::Fin);
                let orderly = matches!(self.state, State::UntilClose) && closed == Closed::Fin;
                self.end = if orderly { End::Complete } else { End::Cut(closed) };
            }
        }
        Ok(None)
    }

    /// The next event with the empty line that ends it; at the end what is left over, then `None`.
    pub fn event(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = event_end(&self.pending) {
                let event: Vec<u8> = self.pending.drain(..end).collect();
                return Ok(Some(String::from_utf8_lossy(&event).into_owned()));
            }
            match self.piece()? {
                Some(piece) => self.pending.extend_from_slice(&piece),
                None if self.pending.is_empty() => return Ok(None),
                None => {
                    let rest = std::mem::take(&mut self.pending);
                    return Ok(Some(String::from_utf8_lossy(&rest).into_owned()));
                }
            }
        }
    }

    /// Reads so many events, or fewer when the body ends.
    pub fn events(&mut self, count: usize) -> io::Result<Vec<String>> {
        let mut events = Vec::new();
        while events.len() < count {
            let Some(event) = self.event()? else { break };
            events.push(event);
        }
        Ok(events)
    }

    /// As [`Connection::set_patience`].
    pub fn set_patience(&self, patience: Duration) {
        self.connection.set_patience(patience);
    }

    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    #[must_use]
    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// Takes body bytes out of what was received; `None` when more must arrive or the end is reached.
    fn decode(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.state {
                State::Counted(0) => {
                    self.end = End::Complete;
                    return None;
                }
                State::Counted(left) => {
                    let piece = self.take(left)?;
                    self.state = State::Counted(left - piece.len() as u64);
                    return Some(piece);
                }
                State::UntilClose => return self.take(u64::MAX),
                State::ChunkSize => {
                    let line = self.line()?;
                    let size = line.split(';').next().unwrap_or("").trim();
                    let Ok(size) = u64::from_str_radix(size, 16) else {
                        self.end = End::Broken;
                        return None;
                    };
                    self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                }
                State::Chunk(left) => {
                    let piece = self.take(left)?;
                    let left = left - piece.len() as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    return Some(piece);
                }
                State::ChunkEnd => {
                    if !self.line()?.is_empty() {
                        self.end = End::Broken;
                        return None;
                    }
                    self.state = State::ChunkSize;
                }
                State::Trailers => {
                    let line = self.line()?;
                    match line.split_once(':') {
                        Some((name, value)) => self.trailers.push((name.to_owned(), value.trim().to_owned())),
                        None if line.is_empty() => {
                            self.end = End::Complete;
                            return None;
                        }
                        None => {
                            self.end = End::Broken;
                            return None;
                        }
                    }
                }
            }
        }
    }

    fn take(&mut self, most: u64) -> Option<Vec<u8>> {
        let received = &mut self.connection.received;
        let length = received.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        (length > 0).then(|| received.drain(..length).collect())
    }

    fn line(&mut self) -> Option<String> {
        let received = &mut self.connection.received;
        let end = received.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = received.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    }
}
