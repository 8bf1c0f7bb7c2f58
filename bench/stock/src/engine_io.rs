//! A connection to an engine, however it is reached, that says whether anything of an answer has come.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use llmgw_http::tls::TlsConfig;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::{ArchivedEndpoint, ArchivedEngineAddr};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where an upstream connection leads; connections are kept by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Tcp(BoardSlot, SocketAddr),
    /// With the address of the TLS settings: other authorities are another place.
    Tls(BoardSlot, SocketAddr, usize),
    Unix(BoardSlot, String),
}

/// How to reach it.
pub(crate) struct Target<'a> {
    pub(crate) place: Place,
    endpoint: &'a ArchivedEndpoint,
    tls: Option<&'a Arc<TlsConfig>>,
}

impl<'a> Target<'a> {
    /// None while the endpoint's name is not resolved.
    pub(crate) fn of(slot: BoardSlot, endpoint: &'a ArchivedEndpoint, tls: Option<&'a Arc<TlsConfig>>) -> Option<Self> {
        let place = match endpoint.addr.as_ref()? {
            ArchivedEngineAddr::Tcp(addr) => Place::Tcp(slot, addr.as_socket_addr()),
            ArchivedEngineAddr::Tls(addr, _) => Place::Tls(slot, addr.as_socket_addr(), Arc::as_ptr(tls?) as usize),
            ArchivedEngineAddr::Unix(path) => Place::Unix(slot, path.as_str().to_owned()),
        };
        Some(Self { place, endpoint, tls })
    }

    pub(crate) fn idle_limit_ms(&self) -> u32 {
        self.endpoint.idle_limit_ms.to_native()
    }

    /// Connects, without a time limit of its own.
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        Ok(match self.endpoint.addr.as_ref() {
            Some(ArchivedEngineAddr::Tcp(addr)) => Stream::Tcp(tcp(addr.as_socket_addr()).await?),
            Some(ArchivedEngineAddr::Unix(path)) => Stream::Unix(UnixStream::connect(path.as_str()).await?),
            Some(ArchivedEngineAddr::Tls(addr, name)) => {
                let config = self.tls.ok_or(io::ErrorKind::InvalidInput)?;
                let name = ServerName::try_from(name.as_str().to_owned()).map_err(io::Error::other)?;
                let stream = tcp(addr.as_socket_addr()).await?;
                Stream::Tls(Box::new(TlsConnector::from(config.clone()).connect(name, stream).await?))
            }
            None => return Err(io::ErrorKind::AddrNotAvailable.into()),
        })
    }
}

async fn tcp(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection of any kind.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// See the module.
pub(crate) struct EngineIo {
    stream: Stream,
    /// Something came since this was cleared.
    has_heard: Arc<AtomicBool>,
}

impl EngineIo {
    pub(crate) fn new(stream: Stream, has_heard: Arc<AtomicBool>) -> Self {
        Self { stream, has_heard }
    }
}

macro_rules! each {
    ($self:ident, $io:ident => $act:expr) => {
        match &mut $self.stream {
            Stream::Tcp($io) => $act,
            Stream::Tls($io) => $act,
            Stream::Unix($io) => $act,
        }
    };
}

impl AsyncRead for EngineIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = each!(self, io => Pin::new(io).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.has_heard.store(true, Relaxed);
        }
        outcome
    }
}

impl AsyncWrite for EngineIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}
