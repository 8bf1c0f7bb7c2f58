//! How an engine is reached: over the network, within TLS, or over a UNIX socket.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use ahash::{AHasher, RandomState};
use llmgw_runtime::io::Io;
use llmgw_runtime::stream::Socket;
use llmgw_runtime::{tcp, unix};

use super::Connector;
use crate::pool::Target;
use crate::tls::{self, Tls, TlsConfig};

/// Where an upstream connection leads.
#[derive(Debug, Clone, Copy)]
pub enum Address<'a> {
    /// Over the network.
    Tcp(SocketAddr),
    /// Over the network, within TLS.
    Tls {
        /// Resolved address.
        addr: SocketAddr,
        /// What the certificate must be for.
        name: &'a str,
        /// Whom we trust; shared by all cores.
        config: &'a Arc<TlsConfig>,
    },
    /// A socket on this machine.
    Unix(&'a Path),
}

/// An address without what it borrows, to tell connections apart by. Names and paths are hashed: 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Tls(SocketAddr, u64),
    Unix(u64),
}

impl Address<'_> {
    pub(crate) fn place(&self) -> Place {
        let hash = |what: &dyn Fn(&mut AHasher)| {
            let mut hasher = RandomState::with_seeds(1, 2, 3, 4).build_hasher();
            what(&mut hasher);
            hasher.finish()
        };
        match *self {
            Self::Tcp(addr) => Place::Tcp(addr),
            // Other authorities are another configuration, and what was connected under the old ones is not used.
            Self::Tls { addr, name, config } => Place::Tls(
                addr,
                hash(&|hasher| {
                    name.hash(hasher);
                    Arc::as_ptr(config).hash(hasher);
                }),
            ),
            Self::Unix(path) => Place::Unix(hash(&|hasher| path.as_os_str().hash(hasher))),
        }
    }
}

/// Connects to engines as their addresses say.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineConnector;

/// A connection to an engine.
#[derive(Clone)]
pub enum EngineIo {
    /// As it is.
    Plain(Socket),
    /// Within TLS.
    Tls(Tls<Socket>),
}

impl Connector for EngineConnector {
    type Io = EngineIo;

    async fn connect(&self, target: &Target<'_>) -> io::Result<EngineIo> {
        Ok(match target.address {
            Address::Tcp(addr) => EngineIo::Plain(tcp::connect(addr).await?),
            Address::Unix(path) => EngineIo::Plain(unix::connect(path).await?),
            Address::Tls { addr, name, config } => {
                EngineIo::Tls(tls::connect(tcp::connect(addr).await?, config, name).await?)
            }
        })
    }
}

impl Io for EngineIo {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read(cx, buf, room),
            Self::Tls(tls) => tls.poll_read(cx, buf, room),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(cx, parts),
            Self::Tls(tls) => tls.poll_write(cx, parts),
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_flush(cx),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    fn close_now(&self) {
        match self {
            Self::Plain(socket) => socket.close_now(),
            Self::Tls(tls) => tls.close_now(),
        }
    }
}
