//! Ways to an engine that the HTTP client does not know itself: a UNIX socket, and TLS as the gateway speaks it.
//!
//! Called by the probe for engines of these kinds; a connection serves one question.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};
use ureq::{Error, Timeout};

const BUFFER_BYTES: usize = 16 << 10;
/// Sockets take no time limit of nothing.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// Where the engine is.
#[derive(Clone)]
pub(super) enum Door {
    /// The path of a socket.
    Unix(String),
    /// Whom to trust; host and port come with the question.
    Tls(Arc<ClientConfig>),
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unix(path) => path,
            Self::Tls(_) => "TLS",
        })
    }
}

impl Connector for Door {
    type Out = Pipe;

    fn connect(&self, details: &ConnectionDetails<'_>, _chained: Option<()>) -> Result<Option<Pipe>, Error> {
        let within = (*details.timeout.after).max(LEAST_WAIT);
        let stream = match self {
            Self::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Self::Tls(config) => {
                let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                let name = ServerName::try_from(host).map_err(io::Error::other)?;
                let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                let mut connect = |addr| TcpStream::connect_timeout(addr, within).map_err(|error| last = error).ok();
                let Some(socket) = details.addrs.iter().find_map(&mut connect) else {
                    return Err(of(last, Timeout::Connect));
                };
                Stream::Tls(Box::new(StreamOwned::new(tls, socket)))
            }
        };
        Ok(Some(Pipe { stream, buffers: LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES) }))
    }
}

enum Stream {
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn limit(&self, within: Duration) -> io::Result<()> {
        let within = Some(within.max(LEAST_WAIT));
        match self {
            Self::Unix(socket) => socket.set_read_timeout(within).and_then(|()| socket.set_write_timeout(within)),
            Self::Tls(tls) => tls.sock.set_read_timeout(within).and_then(|()| tls.sock.set_write_timeout(within)),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buf),
            Self::Tls(tls) => tls.read(buf),
        }
    }
}

/// A connection to the engine.
pub(super) struct Pipe {
    stream: Stream,
    buffers: LazyBuffers,
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipe")
    }
}

impl Transport for Pipe {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.limit(*timeout.after)?;
        let bytes = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(bytes).map_err(|error| of(error, timeout.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.limit(*timeout.after)?;
        let read_bytes =
            self.stream.read(self.buffers.input_append_buf()).map_err(|error| of(error, timeout.reason))?;
        self.buffers.input_appended(read_bytes);
        Ok(read_bytes > 0)
    }

    fn is_open(&mut self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

fn of(error: io::Error, reason: Timeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(reason),
        _ => Error::Io(error),
    }
}
