//! A blocking HTTP client that sends exactly the bytes it is given and shows exactly what came back.
//!
//! Called by the trials. Parses loosely on purpose: what a client library would refuse, a trial wants to see. Every
//! read has a timeout, which shows as an error of kind `TimedOut`.

mod body;
mod reply;
mod tls;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

pub use body::{Body, End};
pub use reply::{Framing, Head, Reply};
pub use tls::Trust;

use crate::request::Request;

const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one GET on a connection of its own and reads the whole reply.
#[track_caller]
pub fn get(addr: SocketAddr, target: &str) -> Reply {
    call(addr, &Request::new("GET", target).header("Connection", "close").bytes())
}

/// Sends one JSON POST on a connection of its own and reads the whole reply.
#[track_caller]
pub fn post(addr: SocketAddr, target: &str, body: &Value) -> Reply {
    call(addr, &Request::new("POST", target).header("Connection", "close").json(body).bytes())
}

/// Sends bytes on a connection of its own and reads one whole reply; panics when there is none.
#[track_caller]
pub fn call(addr: SocketAddr, bytes: &[u8]) -> Reply {
    let reply = Connection::open(addr).and_then(|mut connection| {
        connection.send(bytes)?;
        connection.reply()
    });
    match reply {
        Ok(reply) => reply,
        Err(error) => panic!("no reply from {addr}: {error}"),
    }
}

/// Waits until a path answers 200; panics when it does not within the time.
#[track_caller]
pub fn wait_for_ok(addr: SocketAddr, target: &str, within: Duration) {
    let request = Request::new("GET", target).header("Connection", "close").bytes();
    crate::wait_for(&format!("200 from {addr}{target}"), within, || {
        let reply = Connection::open(addr).and_then(|mut connection| {
            connection.send(&request)?;
            connection.reply()
        });
        reply.is_ok_and(|reply| reply.status == 200)
    });
}

/// How the other side ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// FIN: an orderly end.
    Fin,
    /// RST: bytes may be lost.
    Reset,
    /// FIN without the goodbye of TLS: what came may not be all.
    Untold,
}

/// One connection. Dropping it closes it with a FIN.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    tls: Option<Box<rustls::ClientConnection>>,
    /// Received and not yet read by anybody.
    received: Vec<u8>,
    closed: Option<Closed>,
}

impl Connection {
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        Self::over(stream)
    }

    /// Opens a connection whose kernel receive buffer is small, for a client that will not read.
    pub fn open_narrow(addr: SocketAddr, receive_buffer_bytes: usize) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None)?;
        socket.set_recv_buffer_size(receive_buffer_bytes)?;
        socket.connect_timeout(&addr.into(), PATIENCE)?;
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, tls: None, received: Vec::new(), closed: None })
    }

    /// How long a read waits for the next byte; default 10 s.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        self.set_patience(patience);
        self
    }

    /// As [`Connection::patience`], on a connection in use.
    pub fn set_patience(&self, patience: Duration) {
        let set = self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))));
        assert!(set.is_ok(), "a read timeout can be set: {set:?}");
    }

    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// Sends all bytes in as few writes as the kernel takes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    /// Sends pieces of the given size, each in a write of its own.
    pub fn send_in_pieces(&mut self, bytes: &[u8], piece_bytes: usize, pause: Duration) -> io::Result<()> {
        for piece in bytes.chunks(piece_bytes.max(1)) {
            self.write_all(piece)?;
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        Ok(())
    }

    /// Sends one byte a write.
    pub fn send_byte_by_byte(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_in_pieces(bytes, 1, Duration::ZERO)
    }

    /// Reads one head, be it interim (1xx) or final.
    pub fn head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(end) = reply::head_end(&self.received) {
                let bytes: Vec<u8> = self.received.drain(..end).collect();
                return Head::parse(&bytes);
            }
            if self.fill()? == 0 {
                let state = if self.received.is_empty() { "before a reply" } else { "inside a head" };
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{:?} {state}", self.closed)));
            }
        }
    }

    /// The body that follows a head, to be read as it arrives.
    pub fn body(&mut self, head: &Head) -> Body<'_> {
        Body::new(self, head.framing())
    }

    /// Reads one whole reply; interim heads are kept aside.
    pub fn reply(&mut self) -> io::Result<Reply> {
        self.reply_framed(Head::framing)
    }

    /// Reads the reply to a HEAD request: whatever its headers say, no body follows.
    pub fn reply_to_head(&mut self) -> io::Result<Reply> {
        self.reply_framed(|_| Framing::None)
    }

    fn reply_framed(&mut self, framing: impl Fn(&Head) -> Framing) -> io::Result<Reply> {
        let mut interim = Vec::new();
        let mut head = self.head()?;
        while (100..200).contains(&head.status) && head.status != 101 {
            interim.push(head);
            head = self.head()?;
        }
        let framing = framing(&head);
        let mut body = Body::new(self, framing);
        let mut bytes = Vec::new();
        while let Some(piece) = body.piece()? {
            bytes.extend_from_slice(&piece);
        }
        let (end, trailers) = (body.end(), body.trailers().to_vec());
        Ok(Reply { status: head.status, head, interim, body: bytes, end, trailers })
    }

    /// Waits for the other side to end the connection, and says how; what it sends before is thrown away.
    ///
    /// Errors: `TimedOut` when it stays open.
    pub fn wait_for_close(&mut self) -> io::Result<Closed> {
        while self.fill()? > 0 {
            self.received.clear();
        }
        Ok(self.closed.unwrap_or(Closed::Fin))
    }

    /// Whether nothing at all arrives for this long: neither bytes nor an end.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        let before = self.stream.read_timeout().ok().flatten();
        self.set_patience(time);
        let silent =
            self.received.is_empty() && self.fill().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        self.set_patience(before.unwrap_or(PATIENCE));
        silent
    }

    /// Says that no more will be sent, and stays to read.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Leaves with a FIN.
    pub fn leave(self) {
        drop(self);
    }

    /// Leaves with a RST.
    pub fn abort(self) -> io::Result<()> {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))
    }

    /// Reads once. 0: the other side has ended the connection.
    fn fill(&mut self) -> io::Result<usize> {
        if self.closed.is_some() {
            return Ok(0);
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.read_some(&mut buffer) {
                Ok(0) => {
                    self.closed = Some(Closed::Fin);
                    return Ok(0);
                }
                Ok(read) => {
                    self.received.extend_from_slice(&buffer[..read]);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.closed = Some(Closed::Reset);
                    return Ok(0);
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.closed = Some(Closed::Untold);
                    return Ok(0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing arrived in time"));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
