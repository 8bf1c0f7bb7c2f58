//! TCP connections on the core's driver.

use std::cell::UnsafeCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;

use crate::io::{Io, IoBuf};

/// A TCP connection; clones name the same one. Closed when the last clone and the last pending operation are gone.
#[derive(Clone)]
pub struct Tcp(Rc<Inner>);

struct Inner {
    stream: UnsafeCell<TcpStream>,
    fd: RawFd,
}

/// Connects to `addr` without Nagle's delay. Names are resolved elsewhere: a lookup would stop the core.
pub async fn connect(addr: SocketAddr) -> io::Result<Tcp> {
    Tcp::new(TcpStream::connect_addr(addr).await?)
}

impl Tcp {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let fd = stream.as_raw_fd();
        Ok(Self(Rc::new(Inner { stream: UnsafeCell::new(stream), fd })))
    }

    #[expect(clippy::mut_from_ref, reason = "monoio asks for &mut where a read and a write may be pending at once")]
    fn stream(&self) -> &mut TcpStream {
        // SAFETY: single-threaded (Rc); monoio's methods use the reference only to build an operation that holds its
        // own share of the descriptor, and keep no state in the stream itself. monoio splits its own streams the same
        // way.
        unsafe { &mut *self.0.stream.get() }
    }
}

impl Io for Tcp {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Either, race, run_local};

    fn pair() -> (std::net::TcpListener, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    }

    #[test]
    fn a_pending_read_and_a_write_share_a_connection() {
        let (listener, addr) = pair();
        let echo = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut peer, _) = listener.accept().unwrap();
            let mut byte = [0u8; 5];
            peer.read_exact(&mut byte).unwrap();
            peer.write_all(&byte).unwrap();
        });
        run_local(async move {
            let tcp = connect(addr).await.unwrap();
            let mut read = std::pin::pin!(tcp.read(Vec::with_capacity(16)));
            // The read is pending before the write begins; the answer may complete both in one turn.
            assert!(matches!(race(read.as_mut(), std::future::ready(())).await, Either::Right(())));
            tcp.write_all(b"hello".to_vec()).await.0.unwrap();
            let (got, buf) = read.await;
            assert_eq!((got.unwrap(), buf.as_slice()), (5, &b"hello"[..]));
        });
        echo.join().unwrap();
    }

    #[test]
    fn closing_at_once_ends_a_pending_read_and_shows_at_the_peer() {
        let (listener, addr) = pair();
        let peer = std::thread::spawn(move || {
            use std::io::Read;
            let (mut peer, _) = listener.accept().unwrap();
            peer.read(&mut [0u8; 1]).unwrap()
        });
        run_local(async move {
            let tcp = connect(addr).await.unwrap();
            let read = tcp.read(Vec::with_capacity(16));
            tcp.close_now();
            assert_eq!(read.await.0.unwrap(), 0);
        });
        assert_eq!(peer.join().unwrap(), 0);
    }
}
