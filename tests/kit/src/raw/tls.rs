//! The same connection within TLS.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedProtocolVersion};

use super::Connection;

/// Whom a client trusts, and the sessions it remembers; clones share those.
#[derive(Debug, Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// The certificates in these files, and no other.
    #[track_caller]
    pub fn only(files: &[&Path]) -> Self {
        Self::with(files, rustls::ALL_VERSIONS, &["http/1.1"])
    }

    /// The same with these versions alone, and these protocols to choose from.
    #[track_caller]
    pub fn with(files: &[&Path], versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        for file in files {
            let certificate = CertificateDer::from_pem_file(file).expect("a certificate");
            roots.add(certificate).expect("an authority");
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    /// A client's half of a handshake for the name.
    #[track_caller]
    pub fn session(&self, name: &str) -> ClientConnection {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        ClientConnection::new(self.0.clone(), name).expect("a client")
    }
}

impl Connection {
    /// Opens a connection and shakes hands with whoever shows a certificate for the name.
    ///
    /// Errors: `InvalidData` where the other side is not trusted or refuses.
    pub fn open_tls(addr: SocketAddr, trust: &Trust, name: &str) -> io::Result<Self> {
        let mut connection = Self::open(addr)?;
        let mut session = Box::new(trust.session(name));
        while session.is_handshaking() {
            session.complete_io(&mut connection.stream)?;
        }
        connection.tls = Some(session);
        Ok(connection)
    }

    /// Whether the session is one that was had before.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// The protocol that was chosen.
    #[must_use]
    pub fn protocol(&self) -> Option<String> {
        let chosen = self.tls.as_ref()?.alpn_protocol()?;
        Some(String::from_utf8_lossy(chosen).into_owned())
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.tls else { return self.stream.write_all(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = session.writer().write(rest)?;
            rest = &rest[taken..];
            while session.wants_write() {
                session.write_tls(&mut self.stream)?;
            }
        }
        Ok(())
    }

    /// Reads once. 0: an end in order. Errors: `UnexpectedEof` where it was not said that it is the end.
    pub(super) fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else { return self.stream.read(buffer) };
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            session.read_tls(&mut self.stream)?;
            session.process_new_packets().map_err(io::Error::other)?;
            while session.wants_write() {
                session.write_tls(&mut self.stream)?;
            }
        }
    }
}
