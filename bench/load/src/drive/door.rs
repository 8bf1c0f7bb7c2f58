//! A connection's socket as the driver sees it: as it is, or within TLS.
//!
//! Never waits: what would block says so. Within TLS a write also takes the handshake further, and a read takes all
//! that is there, for an edge is told once.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::target::Target;

/// A socket, and the session on it where it is within TLS.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) socket: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl Door {
    /// Around a socket that connects to the target.
    pub(crate) fn new(socket: TcpStream, target: &Target) -> io::Result<Self> {
        let session = target.trust.as_ref().map(|trust| {
            let name = ServerName::IpAddress(target.addr.ip().into());
            ClientConnection::new(trust.config(), name).map(Box::new).map_err(io::Error::other)
        });
        Ok(Self { socket, session: session.transpose()? })
    }

    /// Whether nothing can be said yet, though the socket is connected.
    pub(crate) fn is_opening(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Takes bytes to be sent, as many as go now; none of them is no error only where there are none.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.socket.write(bytes) };
        loop {
            flush(session, &mut self.socket)?;
            if !session.is_handshaking() {
                break;
            }
            take_in(session, &mut self.socket)?;
        }
        let taken = session.writer().write(bytes)?;
        match flush(session, &mut self.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what was taken and has not gone yet.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        flush(session, &mut self.socket)
    }

    /// Reads what is there; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.socket.read(buffer) };
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match session.reader().read(room) {
                Ok(0) => break,
                Ok(read) => filled += read,
                // Without a goodbye, which HTTP does without.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(_) => match take_in(session, &mut self.socket) {
                    Ok(()) => {}
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(filled)
    }
}

fn flush(session: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(socket)?;
    }
    Ok(())
}

fn take_in(session: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    if session.read_tls(socket)? == 0 && session.is_handshaking() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    session.process_new_packets().map(drop).map_err(io::Error::other)
}
