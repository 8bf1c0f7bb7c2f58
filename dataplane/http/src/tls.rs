//! TLS over any connection of the runtime's: towards engines ([`connect`]) and towards clients ([`accept`]).
//!
//! Both shake hands, within the time the caller has for it; [`Tls`] then is a connection like any other.
//! The state is shared by the reading and the writing side and never borrowed across a wait. Only writes send: what the
//! peer's bytes ask of us (a key update's answer, the refusal of a renegotiation) goes out before the next bytes of
//! ours, as RFC 8446 §4.6.3 wants it, so that a read which nobody polls holds up no write. Never loads certificates:
//! those come ready, shared by all cores, from the side runtime.

mod accept;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use llmgw_runtime::io::{Io, read, write_all};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConnection, Connection, Error};

pub use accept::{Accepted, NotAccepted, Taken, TlsServerConfig, accept};
pub use rustls::ClientConfig as TlsConfig;

/// Least and most ciphertext asked for at once; as much as the reader has room for, between the two.
const READ_BYTES: std::ops::RangeInclusive<usize> = 1024..=32 << 10;
/// What a connection keeps of its writing buffer between two writes.
const KEPT_BYTES: usize = 4 << 10;
/// Asked for at once while the handshake goes on: whoever never ends it holds no more.
const HANDSHAKE_READ_BYTES: usize = 4 << 10;
/// Ciphertext of a peer's until its handshake is done; more is none.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;

/// Why there is no TLS connection. The names at odds are in the log of the probes, which fail in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// No authority that is trusted here has signed the certificate.
    UnknownAuthority,
    /// The certificate is another host's.
    WrongName,
    /// The certificate is no longer valid.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is of no use for another reason.
    BadCertificate,
    /// The peer does not speak TLS, or none that we do.
    Handshake,
}

impl TlsFault {
    fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(why) => match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
                _ => Self::BadCertificate,
            },
            _ => Self::Handshake,
        }
    }

    /// The fault that a failed connection carries, when TLS is what failed.
    pub fn within(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownAuthority => "its certificate is signed by no authority that is trusted here",
            Self::WrongName => "its certificate is for another name",
            Self::Expired => "its certificate has expired",
            Self::NotYetValid => "its certificate is not valid yet",
            Self::BadCertificate => "its certificate is of no use",
            Self::Handshake => "it does not speak TLS as expected",
        })
    }
}

impl std::error::Error for TlsFault {}

/// A connection within TLS; clones name the same one.
pub struct Tls<I: Io>(Rc<Inner<I>>);

struct Inner<I: Io> {
    io: I,
    session: RefCell<Session>,
}

impl<I: Io> Tls<I> {
    fn new(io: I, session: Session) -> Self {
        Self(Rc::new(Inner { io, session: RefCell::new(session) }))
    }
}

impl<I: Io> Clone for Tls<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

/// Closes a connection whose handshake did not come to its end.
struct Unfinished<I: Io>(Option<I>);

impl<I: Io> Drop for Unfinished<I> {
    fn drop(&mut self) {
        if let Some(io) = self.0.take() {
            io.close_now();
        }
    }
}

/// Shakes hands. `name` is what the certificate must be for, a host name or an address.
///
/// Errors: a [`TlsFault`] within an `io::Error`, or what the connection met. Without a time limit of its own.
/// Cost: two round trips, about 0.3 ms of signatures; a session met before is taken up again. Takes the lock of the
/// shared session store for a moment.
pub async fn connect<I: Io>(io: I, config: &Arc<TlsConfig>, name: &str) -> io::Result<Tls<I>> {
    let mut unfinished = Unfinished(Some(io.clone()));
    let name = ServerName::try_from(name.to_owned()).map_err(|_| invalid(TlsFault::WrongName))?;
    let tls = ClientConnection::new(config.clone(), name).map_err(|error| invalid(TlsFault::of(&error)))?;
    let mut session = Session::new(Connection::Client(tls));
    session.shake(&io).await?;
    unfinished.0 = None;
    Ok(Tls::new(io, session))
}

fn invalid(fault: TlsFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

struct Session {
    tls: Connection,
    /// Ciphertext that came, and how much of it was taken in.
    cipher: Vec<u8>,
    start: usize,
    /// Ciphertext to be sent, and how much of it was.
    wire: Vec<u8>,
    sent: usize,
    /// The peer's bytes were not TLS: what came before is given out, then the connection fails.
    is_broken: bool,
}

impl Session {
    fn new(tls: Connection) -> Self {
        Self { tls, cipher: Vec::new(), start: 0, wire: Vec::new(), sent: 0, is_broken: false }
    }

    /// Speaks and listens in turn until the handshake is done and all that belongs to it is sent. What came with it
    /// stays for the first read.
    ///
    /// Errors: a [`TlsFault`] within an `io::Error`, or what the connection met.
    async fn shake<I: Io>(&mut self, io: &I) -> io::Result<()> {
        let mut heard_bytes = self.cipher.len();
        loop {
            if self.tls.is_handshaking()
                && self.has_cipher()
                && let Err(error) = self.take_in()
            {
                // The peer's log should say why; whether it hears it is not waited for beyond this write.
                self.gather()?;
                let _ = write_all(io, &self.wire).await;
                return Err(error);
            }
            self.gather()?;
            if !self.wire.is_empty() {
                write_all(io, &self.wire).await?;
                self.keep_wire();
                continue;
            }
            if !self.tls.is_handshaking() {
                return Ok(());
            }
            if heard_bytes > HANDSHAKE_BYTES_MAX {
                return Err(invalid(TlsFault::Handshake));
            }
            let room = self.room(HANDSHAKE_READ_BYTES);
            match read(io, &mut self.cipher, room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => heard_bytes += more,
            }
        }
    }

    /// Empties the buffer for ciphertext, of which nothing is left; gives how much to ask for, for a reader with
    /// `plain_bytes` of room.
    fn room(&mut self, plain_bytes: usize) -> usize {
        let room = plain_bytes.clamp(*READ_BYTES.start(), *READ_BYTES.end());
        self.start = 0;
        self.cipher.clear();
        if self.cipher.capacity() > 2 * room {
            self.cipher = Vec::new();
        }
        room
    }

    fn has_cipher(&self) -> bool {
        self.start < self.cipher.len()
    }

    /// Decrypts some of the ciphertext that came. Nothing may be left in plaintext, or the state is full.
    fn take_in_some(&mut self) -> io::Result<()> {
        let mut rest = self.cipher.get(self.start..).unwrap_or_default();
        let taken = self.tls.read_tls(&mut rest)?;
        // After the peer's last word nothing is taken any more.
        self.start = if taken == 0 { self.cipher.len() } else { self.start + taken };
        self.tls.process_new_packets().map_err(|error| invalid(TlsFault::of(&error)))?;
        Ok(())
    }

    /// Takes in what came while the handshake goes on; what follows it stays for the first read.
    fn take_in(&mut self) -> io::Result<()> {
        while self.has_cipher() && self.tls.is_handshaking() {
            self.take_in_some()?;
        }
        Ok(())
    }

    /// Adds up to `room` bytes of plaintext to `buf`. None: more ciphertext is needed.
    fn plaintext(&mut self, buf: &mut Vec<u8>, room: usize) -> Option<io::Result<usize>> {
        let before = buf.len();
        loop {
            let result = self.drain(buf, before + room);
            let found = buf.len() - before;
            match result {
                // The end is told when all before it is given out.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Some(if found > 0 { Ok(found) } else { Err(error) });
                }
                Ok(()) => return Some(Ok(found)),
                Err(_) => {}
            }
            if self.is_broken {
                return Some(if found > 0 { Ok(found) } else { Err(io::ErrorKind::InvalidData.into()) });
            }
            if !self.has_cipher() {
                return (found > 0).then_some(Ok(found));
            }
            self.is_broken = self.take_in_some().is_err();
        }
    }

    /// Moves decrypted bytes until `buf` is `goal` long or the peer has ended in order (`Ok`), or until there are no
    /// more.
    fn drain(&mut self, buf: &mut Vec<u8>, goal: usize) -> io::Result<()> {
        let mut reader = self.tls.reader();
        loop {
            let spare = goal - buf.len();
            if spare == 0 {
                return Ok(());
            }
            let chunk = reader.fill_buf()?;
            let Some(chunk) = chunk.get(..chunk.len().min(spare)).filter(|chunk| !chunk.is_empty()) else {
                return Ok(());
            };
            buf.extend_from_slice(chunk);
            let taken = chunk.len();
            reader.consume(taken);
        }
    }

    /// The connection's own end, which may be one that TLS does not know of.
    fn end(&mut self) {
        let ended = self.tls.read_tls(&mut io::empty());
        self.is_broken |= ended.is_err() || self.tls.process_new_packets().is_err();
    }

    /// Adds everything TLS has to say to what is to be sent.
    fn gather(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.wire)?;
        }
        Ok(())
    }

    /// All of it was sent.
    fn keep_wire(&mut self) {
        self.sent = 0;
        self.wire.clear();
        self.wire.shrink_to(KEPT_BYTES);
    }
}

impl<I: Io> Io for Tls<I> {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        let mut session = self.0.session.borrow_mut();
        loop {
            if let Some(result) = session.plaintext(buf, room) {
                return Poll::Ready(result);
            }
            let cipher_bytes = session.room(room);
            match ready!(self.0.io.poll_read(cx, &mut session.cipher, cipher_bytes)) {
                Ok(0) => session.end(),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// What TLS has taken is sent before it takes more; a stretch is at most 64 KiB.
    fn poll_write(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let mut session = self.0.session.borrow_mut();
        let mut taken = 0;
        for part in parts {
            match session.tls.writer().write(part) {
                Ok(bytes) => {
                    taken += bytes;
                    if bytes < part.len() {
                        break;
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        session.gather()?;
        drop(session);
        // What does not go at once goes before the next bytes, or with the flush at the end.
        let _ = self.poll_flush(cx)?;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.0.session.borrow_mut();
        session.gather()?;
        while session.sent < session.wire.len() {
            let rest = session.wire.get(session.sent..).unwrap_or_default();
            match ready!(self.0.io.poll_write(cx, &[IoSlice::new(rest)])) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => session.sent += bytes,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        session.keep_wire();
        Poll::Ready(Ok(()))
    }

    fn say_goodbye(&self) {
        self.0.session.borrow_mut().tls.send_close_notify();
        // What does not go at once is not worth a wait: the connection ends in any case.
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
    }

    /// Without TLS's own goodbye, so that what was cut short is seen to be.
    fn close_now(&self) {
        self.0.io.close_now();
    }
}

#[cfg(test)]
mod accept_tests;
#[cfg(test)]
mod tests;
