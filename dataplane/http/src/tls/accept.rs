//! The handshake with a client.

use std::io;
use std::sync::Arc;

use llmgw_runtime::io::{Io, read};
use rustls::{Connection, HandshakeKind, ServerConnection};

pub use rustls::ServerConfig as TlsServerConfig;

use super::{HANDSHAKE_READ_BYTES, Session, Tls, TlsFault, Unfinished, invalid};

/// The first byte of whatever a TLS client says first: a record of the handshake.
const HANDSHAKE_RECORD: u8 = 22;

/// How a handshake came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// With a signature of ours.
    Full,
    /// On a session that the client had before.
    Resumed,
}

/// A client within TLS.
pub struct Accepted<I: Io> {
    /// The connection.
    pub io: Tls<I>,
    /// How it was made.
    pub taken: Taken,
}

/// Why there is no TLS connection.
pub enum NotAccepted<I: Io> {
    /// What came is HTTP in plain text. The connection is open, and can be told so.
    Plain(I),
    /// The client left before it was done, in the midst of it or without a word.
    Left,
    /// It did not speak TLS, or none that we do; it was told where TLS has a word for it.
    Failed(io::Error),
}

/// Shakes hands with a client that has just connected.
///
/// Errors: see [`NotAccepted`]; but for plain text the connection is closed. Without a time limit of its own: dropping
/// the future closes the connection.
/// Cost: a signature, some tens of microseconds for an elliptic key and half a millisecond for RSA; none where a
/// session is taken up again. The keys of tickets are shared by the cores behind a lock that is held to read.
pub async fn accept<I: Io>(io: I, config: &Arc<TlsServerConfig>) -> Result<Accepted<I>, NotAccepted<I>> {
    let mut unfinished = Unfinished(Some(io.clone()));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => NotAccepted::Failed(error),
        _ => NotAccepted::Left,
    };
    let tls = ServerConnection::new(config.clone()).map_err(|error| failed(invalid(TlsFault::of(&error))))?;
    let mut session = Session::new(Connection::Server(tls));
    // Looked at before TLS does, which would call it an invalid message and no more.
    match read(&io, &mut session.cipher, HANDSHAKE_READ_BYTES).await {
        Ok(0) | Err(_) => return Err(NotAccepted::Left),
        Ok(_) => {}
    }
    if session.cipher.first().is_some_and(|first| *first != HANDSHAKE_RECORD && first.is_ascii_alphabetic()) {
        unfinished.0 = None;
        return Err(NotAccepted::Plain(io));
    }
    session.shake(&io).await.map_err(failed)?;
    unfinished.0 = None;
    let is_resumed = session.tls.handshake_kind() == Some(HandshakeKind::Resumed);
    let taken = if is_resumed { Taken::Resumed } else { Taken::Full };
    Ok(Accepted { io: Tls::new(io, session), taken })
}
