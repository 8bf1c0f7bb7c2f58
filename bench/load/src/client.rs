//! The client: one connection, one request at a time, no copy of a body and no task of its own.
//!
//! Called by every loop. Reads into a buffer the whole thread shares, so that thousands of open streams cost little.
//! Never hides a failure; the one repeat it allows itself (a kept connection the server closed meanwhile) is counted.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::target::Target;
use crate::usage::monotonic_ns;
use crate::wire::{Fault, Part, Step, Wire};

const READ_BYTES: usize = 64 * 1024;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Why a call has no complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    Refused,
    Connect,
    Write,
    /// FIN or RST before any byte of the response.
    ClosedBeforeReply,
    /// FIN inside the response.
    Short,
    /// RST inside the response.
    Reset,
    /// What came is no proper HTTP.
    BadHttp,
    TimedOut,
}

impl Failure {
    /// The word reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::Write => "write",
            Self::ClosedBeforeReply => "closed_before_reply",
            Self::Short => "short",
            Self::Reset => "reset",
            Self::BadHttp => "bad_http",
            Self::TimedOut => "timed_out",
        }
    }
}

/// What a complete response was like.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub status: u16,
    /// What the gateway says it added.
    pub overhead_us: Option<u64>,
    /// The server ends the connection with it.
    pub is_last: bool,
}

/// A connection to a target.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    wire: Wire,
    is_used: bool,
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Self, Failure> {
        Self::open_with(target, None).await
    }

    /// Opens with a chosen kernel receive buffer, for clients that will not read.
    pub async fn open_with(target: &Target, receive_buffer_bytes: Option<u32>) -> Result<Self, Failure> {
        let socket = if target.addr.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() };
        let socket = socket.map_err(|_| Failure::Connect)?;
        if let Some(bytes) = receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes).map_err(|_| Failure::Connect)?;
        }
        let connected = timeout(CONNECT_WITHIN, socket.connect(target.addr)).await;
        let stream = connected.map_err(|_| Failure::TimedOut)?.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::Refused,
            _ => Failure::Connect,
        })?;
        stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
        Ok(Self { stream, wire: Wire::default(), is_used: false })
    }

    /// Whether it may carry another request.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        !self.is_used || self.wire.is_reusable()
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).await.map_err(|_| Failure::Write)
    }

    /// Reads one response and hands on its parts with the time they arrived (monotonic ns).
    pub async fn read(&mut self, on: &mut impl FnMut(Part<'_>, u64)) -> Result<Done, Failure> {
        self.is_used = true;
        self.wire.reset();
        let mut has_begun = false;
        loop {
            self.stream.readable().await.map_err(|_| Failure::Reset)?;
            let step = BUFFER.with_borrow_mut(|buffer| {
                let read = match self.stream.try_read(buffer) {
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Step::More),
                    Err(_) if has_begun => return Err(Failure::Reset),
                    Err(_) => return Err(Failure::ClosedBeforeReply),
                };
                if read == 0 {
                    return match self.wire.end() {
                        Ok(()) => Ok(Step::Done),
                        Err(_) if has_begun => Err(Failure::Short),
                        Err(_) => Err(Failure::ClosedBeforeReply),
                    };
                }
                has_begun = true;
                let now = monotonic_ns();
                let bytes = buffer.get(..read).unwrap_or(&[]);
                self.wire.push(bytes, &mut |part| on(part, now)).map_err(|fault| match fault {
                    Fault::Short => Failure::Short,
                    _ => Failure::BadHttp,
                })
            })?;
            if step == Step::Done {
                return Ok(Done {
                    status: self.wire.status(),
                    overhead_us: self.wire.overhead_us(),
                    is_last: !self.wire.is_reusable(),
                });
            }
        }
    }

    /// Reads until so many bytes have come or the response is complete, and stops reading there.
    pub async fn read_some(&mut self, least_bytes: u64) -> Result<u64, Failure> {
        let mut seen = 0;
        while seen < least_bytes {
            self.stream.readable().await.map_err(|_| Failure::Reset)?;
            let read = BUFFER.with_borrow_mut(|buffer| {
                let most = buffer.len().min(usize::try_from(least_bytes - seen).unwrap_or(usize::MAX));
                self.stream.try_read(buffer.get_mut(..most).unwrap_or(&mut []))
            });
            match read {
                Ok(0) => return Err(Failure::Short),
                Ok(read) => seen += read as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Failure::Reset),
            }
        }
        Ok(seen)
    }

    /// Closes with a RST in place of a FIN.
    pub fn abort(self) {
        // When the option is refused the close below is a FIN: still a close, which is all the callers promise.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Connections kept between calls, and how often a kept one turned out to be closed.
#[derive(Debug)]
pub struct Pool {
    target: Target,
    within: Duration,
    idle: RefCell<Vec<Connection>>,
    stale_count: RefCell<u64>,
}

impl Pool {
    #[must_use]
    pub fn new(target: Target, within: Duration) -> Rc<Self> {
        Rc::new(Self { target, within, idle: RefCell::default(), stale_count: RefCell::default() })
    }

    /// How many calls were repeated because the server had closed a kept connection.
    #[must_use]
    pub fn stale_count(&self) -> u64 {
        *self.stale_count.borrow()
    }

    /// One request and its whole response on a connection of its own, which is not kept.
    pub async fn call_fresh(&self, request: &[u8]) -> Result<Done, Failure> {
        let attempt = async {
            let mut connection = Connection::open(&self.target).await?;
            connection.send(request).await?;
            connection.read(&mut |_, _| ()).await
        };
        timeout(self.within, attempt).await.unwrap_or(Err(Failure::TimedOut))
    }

    /// One request and its whole response.
    pub async fn call(&self, request: &[u8], on: &mut impl FnMut(Part<'_>, u64)) -> Result<Done, Failure> {
        timeout(self.within, self.attempt(request, on)).await.unwrap_or(Err(Failure::TimedOut))
    }

    async fn attempt(&self, request: &[u8], on: &mut impl FnMut(Part<'_>, u64)) -> Result<Done, Failure> {
        loop {
            let kept = self.idle.borrow_mut().pop();
            let (mut connection, is_kept) = match kept {
                Some(connection) => (connection, true),
                None => (Connection::open(&self.target).await?, false),
            };
            let reply = match connection.send(request).await {
                Ok(()) => connection.read(on).await,
                Err(failure) => Err(failure),
            };
            match reply {
                // Allowed by HTTP: the server may close an idle connection at any time, and has seen nothing of the
                // request.
                Err(Failure::ClosedBeforeReply | Failure::Write) if is_kept => *self.stale_count.borrow_mut() += 1,
                Err(failure) => return Err(failure),
                Ok(done) => {
                    if connection.is_reusable() {
                        self.idle.borrow_mut().push(connection);
                    }
                    return Ok(done);
                }
            }
        }
    }
}
