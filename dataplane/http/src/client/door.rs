//! How an engine is reached: over the network, within TLS, or over a UNIX socket.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ahash::{AHasher, RandomState};
use llmgw_runtime::io::{Io, IoBuf};
use llmgw_runtime::stream::Stream;
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
    Plain(Stream),
    /// Within TLS.
    Tls(Tls<Stream>),
}

impl Connector for EngineConnector {
    type Io = EngineIo;

    async fn connect(&self, target: &Target<'_>) -> io::Result<EngineIo> {
        Ok(match target.address {
            Address::Tcp(addr) => EngineIo::Plain(Stream::Tcp(tcp::connect(addr).await?)),
            Address::Unix(path) => EngineIo::Plain(Stream::Unix(unix::connect(path).await?)),
            Address::Tls { addr, name, config } => {
                let stream = Stream::Tcp(tcp::connect(addr).await?);
                EngineIo::Tls(tls::connect(stream, config, name).await?)
            }
        })
    }
}

impl Io for EngineIo {
    fn read(&self, buf: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + 'static {
        let this = self.clone();
        async move {
            match this {
                Self::Plain(stream) => stream.read(buf).await,
                Self::Tls(tls) => tls.read(buf).await,
            }
        }
    }

    fn write_all<B: IoBuf>(&self, buf: B) -> impl Future<Output = (io::Result<()>, B)> + 'static {
        let this = self.clone();
        async move {
            match this {
                Self::Plain(stream) => stream.write_all(buf).await,
                Self::Tls(tls) => tls.write_all(buf).await,
            }
        }
    }

    fn close_now(&self) {
        match self {
            Self::Plain(stream) => stream.close_now(),
            Self::Tls(tls) => tls.close_now(),
        }
    }
}
