//! Doors before a simulated engine: threads that pass bytes on, within TLS or from a UNIX socket.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};

/// How long a turn waits for either side before it looks at the other.
const TURN: Duration = Duration::from_millis(1);
const BUF_BYTES: usize = 64 << 10;

/// A door that shows one certificate after another.
pub(super) struct Turning {
    /// Where it listens.
    pub(super) addr: SocketAddr,
    at: Arc<AtomicUsize>,
}

impl Turning {
    /// From here on new connections are shown the next one.
    pub(super) fn turn(&self) {
        self.at.fetch_add(1, Ordering::SeqCst);
    }
}

/// Ends TLS in front of the engine; where it listens. Its threads end with the process.
pub(super) fn tls(server: Arc<ServerConfig>, engine: SocketAddr) -> SocketAddr {
    turning(vec![server], engine).addr
}

/// The same, with certificates that take turns when told.
pub(super) fn turning(servers: Vec<Arc<ServerConfig>>, engine: SocketAddr) -> Turning {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = listener.local_addr().expect("its address");
    let at = Arc::new(AtomicUsize::new(0));
    let turn = at.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Some(server) = servers.get(turn.load(Ordering::SeqCst)).cloned() else { return };
            std::thread::spawn(move || {
                // What breaks a connection is seen by who waits for it.
                let _ = end_tls(client, server, engine);
            });
        }
    });
    Turning { addr, at }
}

/// Passes bytes of one connection until either side ends, then lets go of both.
fn end_tls(mut client: TcpStream, server: Arc<ServerConfig>, engine: SocketAddr) -> io::Result<()> {
    let mut tls = ServerConnection::new(server).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut client)?;
    }
    let mut engine = TcpStream::connect(engine)?;
    client.set_read_timeout(Some(TURN))?;
    engine.set_read_timeout(Some(TURN))?;
    let mut buf = vec![0; BUF_BYTES];
    loop {
        let is_client_silent = match tls.read_tls(&mut client) {
            Ok(0) => break,
            Ok(_) => {
                tls.process_new_packets().map_err(io::Error::other)?;
                false
            }
            Err(error) if is_silence(&error) => true,
            Err(error) => return Err(error),
        };
        loop {
            match tls.reader().read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(len) => engine.write_all(&buf[..len])?,
                Err(error) if is_silence(&error) => break,
                Err(error) => return Err(error),
            }
        }
        // A large body comes in thousands of pieces: the engine is not waited for between them.
        if !is_client_silent {
            continue;
        }
        match engine.read(&mut buf) {
            Ok(0) => {
                tls.send_close_notify();
                tls.write_tls(&mut client)?;
                break;
            }
            Ok(len) => tls.writer().write_all(&buf[..len])?,
            Err(error) if is_silence(&error) => {}
            Err(error) => return Err(error),
        }
        while tls.wants_write() {
            tls.write_tls(&mut client)?;
        }
    }
    Ok(())
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Listens on a UNIX socket in front of the engine. Its threads end with the process.
pub(super) fn unix(path: &Path, engine: SocketAddr) {
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(engine) = TcpStream::connect(engine) else { continue };
            let (mut from_client, mut to_engine) =
                (client.try_clone().expect("a handle"), engine.try_clone().expect("a handle"));
            std::thread::spawn(move || {
                let _ = io::copy(&mut from_client, &mut to_engine);
                let _ = to_engine.shutdown(Shutdown::Both);
            });
            let (mut from_engine, mut to_client) = (engine, client);
            std::thread::spawn(move || {
                let _ = io::copy(&mut from_engine, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
        }
    });
}
