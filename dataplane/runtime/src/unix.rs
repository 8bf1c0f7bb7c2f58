//! UNIX-domain connections on the core's driver, to engines on the same machine.

use std::io;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, SockAddr, Type};

use crate::stream::Socket;
use crate::tcp::finish;

/// A connection over a UNIX socket; clones name the same one. Closed when the last clone is gone.
pub type Unix = Socket;

/// How long to wait for a listener whose queue is full before it is asked again.
const FULL_QUEUE: Duration = Duration::from_millis(1);

/// Connects to the socket at `path`.
///
/// Errors: nothing is there, nobody listens, no permission, or a path longer than the system takes (107 bytes).
pub async fn connect(path: &Path) -> io::Result<Unix> {
    let addr = SockAddr::unix(path)?;
    loop {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        match finish(socket, &addr).await {
            // Unlike TCP nothing says when there is room again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => crate::timer::sleep(FULL_QUEUE).await,
            connected => return connected,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::driver::{Driver, block_on};
    use crate::io::{Io, read, write_all};

    #[test]
    fn bytes_go_both_ways_and_closing_at_once_shows_at_the_peer() {
        for driver in [Driver::Epoll, Driver::IoUring] {
            let folder = std::env::temp_dir().join(format!("llmgw-unix-{}-{driver:?}", std::process::id()));
            let _ = std::fs::remove_file(&folder);
            let listener = UnixListener::bind(&folder).expect("a socket");
            let peer = std::thread::spawn(move || {
                let (mut peer, _) = listener.accept().expect("a connection");
                let mut five = [0u8; 5];
                peer.read_exact(&mut five).expect("five bytes");
                peer.write_all(&five).expect("an echo");
                peer.read(&mut [0u8; 1]).expect("the end")
            });
            let path = folder.clone();
            let done = block_on(driver, async move {
                let stream = connect(&path).await.expect("a connection");
                write_all(&stream, b"hello").await.expect("written");
                let mut buf = Vec::new();
                assert_eq!(read(&stream, &mut buf, 16).await.expect("read"), 5);
                assert_eq!(buf, b"hello");
                stream.close_now();
            });
            if done.is_err() {
                // No ring on this machine: somebody must still come to the peer.
                let mut other = std::os::unix::net::UnixStream::connect(&folder).expect("a connection");
                other.write_all(b"hello").expect("written");
            }
            assert_eq!(peer.join().expect("the peer"), 0);
            let _ = std::fs::remove_file(&folder);
        }
    }

    #[test]
    fn a_socket_that_is_not_there_and_a_path_too_long_are_errors() {
        for path in ["/nowhere/engine.sock".to_owned(), format!("/{}", "x".repeat(200))] {
            let result = block_on(Driver::Epoll, async move { connect(Path::new(&path)).await.map(|_| ()) });
            assert!(result.expect("a runtime").is_err());
        }
    }
}
