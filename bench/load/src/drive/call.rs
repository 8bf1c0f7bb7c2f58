//! One connection of the driver: a request going out, its response coming in.

use std::io;
use std::net::TcpStream;

use socket2::{Domain, Socket, Type};

use super::door::Door;
use super::outcome::Tallies;
use super::pulse::Pulse;
use crate::target::Target;
use crate::wire::{Fault, Part, Step, Wire};

/// A connection, and the call on it.
#[derive(Debug)]
pub(crate) struct Call {
    door: Door,
    wire: Wire,
    pulse: Pulse,
    pub(crate) is_busy: bool,
    is_used: bool,
    /// Which request is being sent, and how much of it has been.
    turn: usize,
    written: usize,
    /// When it was due.
    due_ns: u64,
    last_event_ns: u64,
    /// When bytes came last.
    pub(crate) heard_ns: u64,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    /// Complete; the connection may carry another.
    Done,
    /// Complete, and the connection with it.
    DoneAndClosed,
    /// Broken; the connection is of no use any more.
    Failed(&'static str),
    /// A kept connection was closed before the call reached the server: it is to be made again.
    Stale,
}

impl Call {
    /// Begins to connect.
    pub(crate) fn connect(to: &Target) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to.addr), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&to.addr.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        Ok(Self {
            door: Door::new(socket.into(), to)?,
            wire: Wire::default(),
            pulse: Pulse::default(),
            is_busy: false,
            is_used: false,
            turn: 0,
            written: 0,
            due_ns: 0,
            last_event_ns: 0,
            heard_ns: 0,
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.door.socket
    }

    /// Whether its handshake goes on: what comes is for [`Call::write`].
    pub(crate) fn is_opening(&self) -> bool {
        self.door.is_opening()
    }

    /// When its call was due, and which request it is.
    pub(crate) fn asked(&self) -> (u64, usize) {
        (self.due_ns, self.turn)
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self, request: &[u8], turn: usize, due_ns: u64, now_ns: u64) -> Fate {
        self.wire.reset();
        self.pulse.reset();
        (self.is_busy, self.turn, self.written) = (true, turn, 0);
        (self.due_ns, self.last_event_ns, self.heard_ns) = (due_ns, 0, now_ns);
        self.write(request)
    }

    /// Sends what the socket takes.
    pub(crate) fn write(&mut self, request: &[u8]) -> Fate {
        while let Some(rest) = request.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.door.write(rest) {
                Ok(written) => self.written += written,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return self.failed("refused"),
                // An answer may have come before the request was read to its end: the read tells.
                Err(_) if self.is_used => return self.stale(),
                Err(_) => return self.failed("write"),
            }
        }
        // What is left of it goes with the next edge; a connection that broke is seen by the read.
        let _ = self.door.flush();
        Fate::Open
    }

    /// Reads what is there. `expected` is how many events a stream must have, none for whole answers.
    pub(crate) fn read(
        &mut self,
        to_the_end: bool,
        buffer: &mut [u8],
        expected: Option<u64>,
        now_ns: u64,
        tallies: &mut Tallies,
    ) -> Fate {
        loop {
            let read = match self.door.read(buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Open,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return self.failed("refused"),
                Err(_) if self.is_busy && self.wire.status() == 0 && self.is_used => return self.stale(),
                Err(_) => return self.failed("reset"),
            };
            if !self.is_busy {
                // An idle connection closed by the server is no fault, bytes without a question are.
                return if read == 0 { Fate::DoneAndClosed } else { Fate::Failed("surplus") };
            }
            if read == 0 {
                return match self.wire.end() {
                    Ok(()) => self.ended(expected, now_ns, tallies),
                    Err(Fault::NoHead) if self.is_used => self.stale(),
                    Err(Fault::NoHead) => self.failed("closed_before_reply"),
                    Err(_) => self.failed("short"),
                };
            }
            self.heard_ns = now_ns;
            let step = self.take(buffer.get(..read).unwrap_or(&[]), expected.is_some(), now_ns, tallies);
            match step {
                Err(_) => return self.failed("bad_http"),
                Ok(Step::Done) => return self.ended(expected, now_ns, tallies),
                Ok(Step::More) if read < buffer.len() && !to_the_end => return Fate::Open,
                Ok(Step::More) => {}
            }
        }
    }

    fn take(&mut self, bytes: &[u8], is_stream: bool, now_ns: u64, tallies: &mut Tallies) -> Result<Step, Fault> {
        let Self { wire, pulse, due_ns, last_event_ns, .. } = self;
        wire.push(bytes, &mut |part| {
            let Part::Body(body) = part else { return };
            if !is_stream {
                return;
            }
            pulse.push(body, |sent_ns| {
                let last_ns = std::mem::replace(last_event_ns, now_ns);
                if !tallies.is_measuring {
                    return;
                }
                tallies.event_count += 1;
                match last_ns {
                    0 => tallies.first_event.record(now_ns.saturating_sub(*due_ns)),
                    last_ns => tallies.gap.record(now_ns.saturating_sub(last_ns)),
                }
                if let Some(sent_ns) = sent_ns {
                    tallies.one_way.record(now_ns.saturating_sub(sent_ns));
                }
            });
        })
    }

    fn ended(&mut self, expected: Option<u64>, now_ns: u64, tallies: &mut Tallies) -> Fate {
        (self.is_busy, self.is_used) = (false, true);
        let fault = match (self.wire.status(), expected) {
            (200, None) => None,
            (200, Some(_)) if self.pulse.is_faulty => Some("error_event"),
            (200, Some(_)) if !self.pulse.is_done => Some("no_done"),
            (200, Some(expected)) if self.pulse.event_count < expected => Some("short_stream"),
            (200, Some(_)) => None,
            (429 | 503, _) => Some("overloaded"),
            (400..=499, _) => Some("status_4xx"),
            _ => Some("status_5xx"),
        };
        if let Some(fault) = fault {
            return Fate::Failed(fault);
        }
        if tallies.is_measuring {
            tallies.call_count += 1;
            tallies.latency.record(now_ns.saturating_sub(self.due_ns));
        }
        if self.wire.is_reusable() { Fate::Done } else { Fate::DoneAndClosed }
    }

    fn failed(&mut self, what: &'static str) -> Fate {
        self.is_busy = false;
        Fate::Failed(what)
    }

    fn stale(&mut self) -> Fate {
        self.is_busy = false;
        Fate::Stale
    }
}
