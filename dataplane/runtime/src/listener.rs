//! One listening socket per core on the same address: the kernel spreads connections (`SO_REUSEPORT`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::source::Source;
use crate::tcp::Tcp;

/// Connections the kernel may hold before a core accepts them.
const BACKLOG: i32 = 4096;

/// Binds `count` sockets to `addr`. With port 0 the first gets a port from the system and the others share it.
///
/// Errors: the address is in use or not ours; the message names it.
pub fn bind(addr: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // A port held by somebody else who also set SO_REUSEPORT would be shared silently; a plain bind first finds them
    // out.
    if addr.port() != 0 {
        drop(socket(addr, false)?);
    }
    let mut addr = addr;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let listener = socket(addr, true)?;
        addr = listener.local_addr()?;
        sockets.push(listener);
    }
    Ok(sockets)
}

fn socket(addr: SocketAddr, reuse_port: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket
        .bind(&addr.into())
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}")))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A core's listening socket.
pub struct Listener(Source);

impl Listener {
    /// Takes a bound, non-blocking socket into this core's driver.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Source::new(listener.into()).map(Self)
    }

    /// The next connection. Trouble with one connection, or a want of descriptors, does not end the listener: it waits
    /// a little and goes on.
    pub async fn accept(&self) -> Tcp {
        loop {
            match self.0.until_readable(accept_now).await.and_then(Tcp::new) {
                Ok(tcp) => return tcp,
                Err(error) if is_about_one_connection(&error) => {}
                Err(_) => crate::timer::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Takes a connection without Nagle's delay; `WouldBlock` when there is none.
fn accept_now(listener: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call on an open descriptor; no address is asked for.
    let fd = unsafe {
        libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened and owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    SockRef::from(&fd).set_tcp_nodelay(true)?;
    Ok(fd)
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_all_cores_share_one_port() {
        let sockets = bind(([127, 0, 0, 1], 0).into(), 3).unwrap();
        let port = sockets[0].local_addr().unwrap().port();
        assert!(port != 0 && sockets.iter().all(|s| s.local_addr().unwrap().port() == port));
    }

    #[test]
    fn an_address_in_use_is_named_even_if_its_holder_would_share_it() {
        let held = bind(([127, 0, 0, 1], 0).into(), 1).unwrap();
        let addr = held[0].local_addr().unwrap();
        let error = bind(addr, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
    }
}
