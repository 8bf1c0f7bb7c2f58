//! TCP connections on the core's driver.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

use crate::stream::Socket;

/// A TCP connection; clones name the same one. Closed when the last clone is gone.
pub type Tcp = Socket;

/// Connects to `addr` without Nagle's delay. Names are resolved elsewhere: a lookup would stop the core.
pub async fn connect(addr: SocketAddr) -> io::Result<Tcp> {
    let socket = socket2::Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    finish(socket, &addr.into()).await
}

/// Connects a non-blocking socket.
pub(crate) async fn finish(socket: socket2::Socket, addr: &SockAddr) -> io::Result<Socket> {
    let begun = socket.connect(addr);
    let socket = Socket::new(OwnedFd::from(socket))?;
    match begun {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            poll_fn(|cx| socket.poll_writable(cx)).await;
            // SAFETY: the descriptor is open as long as `socket` lives.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(socket.raw()) };
            SockRef::from(&fd).take_error()?.map_or(Ok(socket), Err)
        }
        begun => begun.map(|()| socket),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "peers on threads of their own may sleep")]
mod tests {
    use std::io::IoSlice;
    use std::task::Poll;

    use super::*;
    use crate::driver::{Driver, DriverChoice, block_on, choose};
    use crate::io::{Io, read, write_all, write_parts};
    use crate::{Either, race};

    fn drivers() -> [Driver; 2] {
        [Driver::Epoll, choose(DriverChoice::Auto).unwrap().0]
    }

    fn listen() -> (std::net::TcpListener, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    }

    #[test]
    fn a_read_that_was_given_up_loses_nothing() {
        for driver in drivers() {
            let (listener, addr) = listen();
            let echo = std::thread::spawn(move || {
                use std::io::{Read, Write};
                let (mut peer, _) = listener.accept().unwrap();
                let mut bytes = [0u8; 5];
                peer.read_exact(&mut bytes).unwrap();
                peer.write_all(&bytes).unwrap();
            });
            block_on(driver, async move {
                let tcp = connect(addr).await.unwrap();
                let mut buf = Vec::new();
                // The read is pending before the write begins, and nobody waits for it when the answer comes.
                assert!(matches!(race(read(&tcp, &mut buf, 16), std::future::ready(())).await, Either::Right(())));
                write_all(&tcp, b"hello").await.unwrap();
                crate::timer::sleep(std::time::Duration::from_millis(2)).await;
                while buf.len() < 5 {
                    assert!(read(&tcp, &mut buf, 2).await.unwrap() <= 2);
                }
                assert_eq!(buf, b"hello");
            })
            .unwrap();
            echo.join().unwrap();
        }
    }

    #[test]
    fn closing_at_once_ends_a_pending_read_and_shows_at_the_peer() {
        for driver in drivers() {
            let (listener, addr) = listen();
            let peer = std::thread::spawn(move || {
                use std::io::Read;
                let (mut peer, _) = listener.accept().unwrap();
                peer.read(&mut [0u8; 1]).unwrap()
            });
            block_on(driver, async move {
                let tcp = connect(addr).await.unwrap();
                let mut buf = Vec::new();
                assert!(matches!(race(read(&tcp, &mut buf, 16), std::future::ready(())).await, Either::Right(())));
                tcp.close_now();
                assert_eq!(read(&tcp, &mut buf, 16).await.unwrap(), 0);
            })
            .unwrap();
            assert_eq!(peer.join().unwrap(), 0);
        }
    }

    #[test]
    fn dropping_a_connection_with_its_read_pending_shows_at_the_peer() {
        for driver in drivers() {
            let (listener, addr) = listen();
            let peer = std::thread::spawn(move || {
                use std::io::Read;
                let (mut peer, _) = listener.accept().unwrap();
                peer.read(&mut [0u8; 1]).unwrap()
            });
            let done = block_on(driver, async move {
                let tcp = connect(addr).await.unwrap();
                let mut buf = Vec::new();
                assert!(matches!(race(read(&tcp, &mut buf, 16), std::future::ready(())).await, Either::Right(())));
                tcp.close_now();
                drop(tcp);
                crate::timer::sleep(std::time::Duration::from_millis(1)).await;
            });
            done.unwrap();
            assert_eq!(peer.join().unwrap(), 0);
        }
    }

    #[test]
    fn a_connection_that_gets_the_number_of_one_just_closed_loses_nothing_to_it() {
        use std::io::Write;
        use std::os::unix::net::UnixStream;
        let pair = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            (ours, theirs)
        };
        for driver in drivers() {
            let read_on = block_on(driver, async {
                let (ours, _theirs) = pair();
                let first = Socket::new(ours.into()).unwrap();
                let mut buf = Vec::new();
                // Asked for, and not yet handed to the kernel when the descriptor is closed.
                assert!(matches!(race(read(&first, &mut buf, 16), std::future::ready(())).await, Either::Right(())));
                drop(first);
                let (ours, mut theirs) = pair();
                theirs.write_all(b"hello").unwrap();
                let second = Socket::new(ours.into()).unwrap();
                crate::timer::timeout(std::time::Duration::from_secs(5), read(&second, &mut buf, 16)).await
            });
            assert_eq!(read_on.unwrap().expect("the bytes, in time").unwrap(), 5, "{driver}");
        }
    }

    /// A peer that sends `bytes` in writes of `step` once it is told to, and counts what it gets meanwhile.
    fn flood(listener: std::net::TcpListener, bytes: usize, step: usize) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            use std::io::Write;
            let (mut peer, _) = listener.accept().unwrap();
            let block: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            block.chunks(step).for_each(|piece| peer.write_all(piece).unwrap());
        })
    }

    #[test]
    fn bytes_come_in_order_however_they_are_read() {
        const BYTES: usize = 3_000_000;
        for driver in drivers() {
            for step in [97, 4096, 1 << 20] {
                let (listener, addr) = listen();
                let bytes = if step < 100 { BYTES / 10 } else { BYTES };
                let peer = flood(listener, bytes, step);
                block_on(driver, async move {
                    let tcp = connect(addr).await.unwrap();
                    let (mut all, mut turn) = (Vec::new(), 0u32);
                    while all.len() < bytes {
                        // Small rooms, large ones that read directly, and moments in which nobody reads.
                        let room = [1000, 4096, 40_000, 100_000, 7][turn as usize % 5];
                        let before = all.len();
                        let got = read(&tcp, &mut all, room).await.unwrap();
                        assert!(got > 0 && got <= room && all.len() == before + got);
                        turn += 1;
                        if turn % 64 == 0 {
                            crate::timer::sleep(std::time::Duration::from_millis(1)).await;
                        }
                    }
                    assert!(all.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
                    assert_eq!(read(&tcp, &mut all, 10).await.unwrap(), 0);
                })
                .unwrap();
                peer.join().unwrap();
            }
        }
    }

    #[test]
    fn what_nobody_reads_is_not_taken_in_without_bound() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static SENT: AtomicUsize = AtomicUsize::new(0);
        let (listener, addr) = listen();
        let peer = std::thread::spawn(move || {
            use std::io::Write;
            let (mut peer, _) = listener.accept().unwrap();
            peer.set_nonblocking(true).unwrap();
            let (block, mut refusals) = ([7u8; 8192], 0);
            while refusals < 50 {
                match peer.write(&block) {
                    Ok(sent) => {
                        SENT.fetch_add(sent, Ordering::Relaxed);
                        refusals = 0;
                    }
                    Err(_) => {
                        refusals += 1;
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                }
            }
        });
        block_on(choose(DriverChoice::Auto).unwrap().0, async move {
            let tcp = connect(addr).await.unwrap();
            let mut buf = Vec::new();
            assert!(matches!(race(read(&tcp, &mut buf, 16), std::future::ready(())).await, Either::Right(())));
            while !peer.is_finished() {
                crate::timer::sleep(std::time::Duration::from_millis(5)).await;
            }
            peer.join().unwrap();
            // The kernel's own buffers of both sides hold a few MiB; a gateway that read on would have no end.
            let held_by_kernel = SENT.load(Ordering::Relaxed);
            let mut seen = 0;
            while seen < held_by_kernel {
                buf.clear();
                seen += read(&tcp, &mut buf, 4096).await.unwrap();
            }
            assert_eq!(seen, held_by_kernel);
            assert!(held_by_kernel < 32 << 20, "{held_by_kernel}");
        })
        .unwrap();
    }

    #[test]
    fn parts_go_out_in_order_even_when_the_peer_is_slow() {
        for driver in drivers() {
            let (listener, addr) = listen();
            let peer = std::thread::spawn(move || {
                use std::io::Read;
                let (mut peer, _) = listener.accept().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all
            });
            let large = vec![b'x'; 9 << 20];
            let sent = large.clone();
            block_on(driver, async move {
                let tcp = connect(addr).await.unwrap();
                let mut parts = [IoSlice::new(b"head"), IoSlice::new(b""), IoSlice::new(&sent), IoSlice::new(b"tail")];
                write_parts(&tcp, &mut parts).await.unwrap();
                write_parts(&tcp, &mut []).await.unwrap();
                tcp.close_now();
            })
            .unwrap();
            let got = peer.join().unwrap();
            assert_eq!(got.len(), large.len() + 8);
            assert!(got.starts_with(b"headx") && got.ends_with(b"xtail"));
        }
    }

    #[test]
    fn a_port_where_nobody_listens_is_an_error() {
        let (listener, addr) = listen();
        drop(listener);
        for driver in drivers() {
            let result = block_on(driver, async move { connect(addr).await.map(drop) }).unwrap();
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
    }

    #[test]
    fn a_write_to_a_peer_that_has_gone_is_an_error() {
        for driver in drivers() {
            let (listener, addr) = listen();
            block_on(driver, async move {
                let tcp = connect(addr).await.unwrap();
                drop(listener);
                let bytes = vec![0; 1 << 20];
                let failed = poll_fn(|cx| {
                    for _ in 0..64 {
                        match tcp.poll_write(cx, &[IoSlice::new(&bytes)]) {
                            Poll::Ready(Ok(_)) => {}
                            other => return other,
                        }
                    }
                    Poll::Ready(Ok(0))
                });
                assert!(failed.await.is_err());
            })
            .unwrap();
        }
    }
}
