//! What TCP and UNIX connections have in common, and a connection that is either.
//!
//! [`Socket`] is a stream socket on the core's driver; [`Stream`] is what an engine is reached by, whichever kind its
//! URL names. Nothing here connects: `tcp` and `unix` do.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};

use crate::io::{Io, IoBuf};
use crate::tcp::Tcp;
use crate::unix::Unix;

/// A connected stream socket; clones name the same one. Closed when the last clone and the last pending operation are
/// gone.
pub struct Socket<S>(Rc<Inner<S>>);

struct Inner<S> {
    stream: UnsafeCell<S>,
    fd: RawFd,
}

impl<S> Clone for Socket<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: AsRawFd> Socket<S> {
    /// Only for monoio's own TCP and UNIX streams: see `stream`.
    pub(crate) fn of(stream: S) -> Self {
        let fd = stream.as_raw_fd();
        Self(Rc::new(Inner { stream: UnsafeCell::new(stream), fd }))
    }
}

impl<S> Socket<S> {
    #[expect(clippy::mut_from_ref, reason = "monoio asks for &mut where a read and a write may be pending at once")]
    fn stream(&self) -> &mut S {
        // SAFETY: single-threaded (Rc); the methods of monoio's TCP and UNIX streams use the reference only to build an
        // operation that holds its own share of the descriptor, and keep no state in the stream itself. monoio splits
        // its own streams the same way.
        unsafe { &mut *self.0.stream.get() }
    }
}

impl<S: AsyncReadRent + AsyncWriteRent + 'static> Io for Socket<S> {
    fn read(&self, buf: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + 'static {
        let this = self.clone();
        async move {
            let (len, capacity) = (buf.len(), buf.capacity());
            if len == capacity {
                return (Ok(0), buf);
            }
            let (result, slice) = this.stream().read(buf.slice_mut(len..capacity)).await;
            (result, slice.into_inner())
        }
    }

    fn write_all<B: IoBuf>(&self, buf: B) -> impl Future<Output = (io::Result<()>, B)> + 'static {
        let this = self.clone();
        async move {
            let (result, buf) = this.stream().write_all(buf).await;
            (result.map(|_| ()), buf)
        }
    }

    fn close_now(&self) {
        // SAFETY: the descriptor is open as long as `self` lives. An error (already closed by the peer) changes
        // nothing.
        unsafe { libc::shutdown(self.0.fd, libc::SHUT_RDWR) };
    }
}

/// A connection to an engine, over the network or over a UNIX socket.
#[derive(Clone)]
pub enum Stream {
    /// Over the network.
    Tcp(Tcp),
    /// On the same machine.
    Unix(Unix),
}

impl Io for Stream {
    fn read(&self, buf: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + 'static {
        let this = self.clone();
        async move {
            match this {
                Self::Tcp(socket) => socket.read(buf).await,
                Self::Unix(socket) => socket.read(buf).await,
            }
        }
    }

    fn write_all<B: IoBuf>(&self, buf: B) -> impl Future<Output = (io::Result<()>, B)> + 'static {
        let this = self.clone();
        async move {
            match this {
                Self::Tcp(socket) => socket.write_all(buf).await,
                Self::Unix(socket) => socket.write_all(buf).await,
            }
        }
    }

    fn close_now(&self) {
        match self {
            Self::Tcp(socket) => socket.close_now(),
            Self::Unix(socket) => socket.close_now(),
        }
    }
}
