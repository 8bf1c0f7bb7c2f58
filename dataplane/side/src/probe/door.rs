//! Connections to engines for probes: over the network, within TLS, or over a UNIX socket.

use std::io;
use std::sync::Arc;

use llmgw_types::snapshot::EngineAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// A connection, whatever it is.
pub(super) trait Door: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Door for T {}

/// Connects, and shakes hands where the address asks for it. Without a time limit of its own.
pub(super) async fn open(addr: &EngineAddr, tls: Option<&Arc<ClientConfig>>) -> io::Result<Box<dyn Door>> {
    Ok(match addr {
        EngineAddr::Tcp(addr) => {
            let stream = TcpStream::connect(addr).await?;
            let _ = stream.set_nodelay(true);
            Box::new(stream)
        }
        EngineAddr::Tls(addr, name) => {
            let config = tls.ok_or_else(|| io::Error::other("no authorities to trust"))?;
            let name = ServerName::try_from(name.clone()).map_err(io::Error::other)?;
            let stream = TcpStream::connect(addr).await?;
            let _ = stream.set_nodelay(true);
            Box::new(TlsConnector::from(config.clone()).connect(name, stream).await?)
        }
        EngineAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}
