//! TCP connections on the core's driver.

use std::io;
use std::net::SocketAddr;

use monoio::net::TcpStream;

use crate::stream::Socket;

/// A TCP connection; clones name the same one. Closed when the last clone and the last pending operation are gone.
pub type Tcp = Socket<TcpStream>;

/// Connects to `addr` without Nagle's delay. Names are resolved elsewhere: a lookup would stop the core.
pub async fn connect(addr: SocketAddr) -> io::Result<Tcp> {
    Tcp::new(TcpStream::connect_addr(addr).await?)
}

impl Tcp {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::of(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Io;
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
