//! One connection of the mock: bytes in, bytes out, the stream that is being sent.
//!
//! Owned by `serve`, which tells it when a socket is ready and when the next event is due.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::answers::{Answers, Place, page};
use super::intake::{Garbled, Intake, Page};
use super::order::{self, Order};

/// Connected, and what is going on.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    /// Tells a timer of this connection from one of the last in its place.
    pub(crate) number: u64,
    intake: Intake,
    /// Bytes that arrived while a stream was being sent.
    waiting: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    stream: Option<Stream>,
    closes: bool,
}

#[derive(Debug)]
struct Stream {
    order: Order,
    sent_count: u64,
    next_ns: u64,
}

/// When the connection wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// When its socket is ready.
    OnEvent,
    /// As soon as others had their turn.
    Turn,
    At(u64),
    Close,
}

/// The numbers its metrics page shows.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) active: u64,
    pub(crate) answered: u64,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, number: u64) -> Self {
        Self {
            socket,
            number,
            intake: Intake::default(),
            waiting: Vec::new(),
            out: Vec::new(),
            written: 0,
            stream: None,
            closes: false,
        }
    }

    /// Whether a stream is being sent.
    pub(crate) fn is_streaming(&self) -> bool {
        self.stream.is_some()
    }

    /// Reads all that is there and answers what became whole.
    pub(crate) fn readable(
        &mut self,
        to_the_end: bool,
        buffer: &mut [u8],
        answers: &Answers,
        counts: &mut Counts,
        now_ns: u64,
    ) -> Next {
        let mut next = Next::OnEvent;
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return Next::Close,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Next::Close,
            };
            let bytes = buffer.get(..read).unwrap_or(&[]);
            let then = if self.stream.is_some() {
                self.waiting.extend_from_slice(bytes);
                Next::OnEvent
            } else {
                self.take(bytes, answers, counts, now_ns)
            };
            if then != Next::OnEvent {
                next = then;
            }
            if next == Next::Close {
                return next;
            }
            if read < buffer.len() && !to_the_end {
                break;
            }
        }
        if self.flush().is_err() { Next::Close } else { next }
    }

    fn take(&mut self, mut bytes: &[u8], answers: &Answers, counts: &mut Counts, now_ns: u64) -> Next {
        loop {
            let asked = match self.intake.push(&mut bytes) {
                Err(Garbled) => return Next::Close,
                Ok(None) => return Next::OnEvent,
                Ok(Some(asked)) => asked,
            };
            self.closes |= asked.closes;
            if asked.page != Page::Completion {
                self.out.extend_from_slice(&page(asked.page, counts.active, counts.answered));
                continue;
            }
            counts.answered += 1;
            let Some(order) = order::read(&self.intake.kept) else {
                self.out.extend_from_slice(&answers.completion);
                continue;
            };
            counts.active += 1;
            let next_ns = now_ns + order.prefill_us * 1000;
            self.stream = Some(Stream { order, sent_count: 0, next_ns });
            self.waiting.extend_from_slice(bytes);
            return if order.prefill_us == 0 { Next::Turn } else { Next::At(next_ns) };
        }
    }

    /// Sends the next event of the stream in one write.
    pub(crate) fn event(&mut self, answers: &Answers, counts: &mut Counts, now_ns: u64) -> Next {
        let Some(stream) = &mut self.stream else { return Next::OnEvent };
        stream.sent_count += 1;
        let is_last = stream.sent_count >= stream.order.event_count;
        if stream.sent_count == 1 {
            self.out.extend_from_slice(&answers.stream_head);
        }
        let place = match stream.sent_count {
            _ if is_last => Place::Last,
            1 => Place::First,
            _ => Place::Middle,
        };
        answers.event(place, now_ns, &mut self.out);
        let mut next = match stream.order.delay_us {
            0 => Next::Turn,
            delay_us => {
                stream.next_ns += delay_us * 1000;
                Next::At(stream.next_ns)
            }
        };
        if is_last {
            let with_usage = stream.order.with_usage;
            self.out.extend_from_slice(answers.end(with_usage));
            self.stream = None;
            counts.active -= 1;
            let waiting = std::mem::take(&mut self.waiting);
            next = self.take(&waiting, answers, counts, now_ns);
        }
        if self.flush().is_err() { Next::Close } else { next }
    }

    /// Writes what the socket takes.
    ///
    /// Errors: the connection is broken, or was to be closed and everything is written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        if self.closes && self.stream.is_none() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}
