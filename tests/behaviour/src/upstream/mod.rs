//! The three scripted engines behind the proxy under test: listeners on fixed ports that do to the byte what a check
//! says.
//!
//! A request belongs to the check whose mark stands in its body or target, so checks share the engines and run beside
//! each other. Readiness, models and metrics are always answered well; only [`Engines::down`] takes an engine away.

mod exchange;
mod wire;

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) use exchange::{Exchange, GOOD, STREAM_HEAD, Then, answer};
pub(crate) use wire::Asked;

/// The model every engine serves.
pub(crate) const MODEL: &str = "test-model";
/// What a check's mark begins with.
const MARK: &str = "@case-";

/// What an engine does with a request of a check.
pub(crate) type Script = dyn Fn(&mut Exchange<'_>) -> io::Result<Then> + Send + Sync;

/// One request as an engine saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) engine: usize,
    pub(crate) connection: u64,
    pub(crate) asked: Asked,
}

/// What is known of one check at the engines.
pub(crate) struct CaseState {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    pub(crate) closed: AtomicBool,
    pub(crate) sent_bytes: AtomicU64,
}

/// A check's place at the engines; dropping it forgets the script.
pub(crate) struct Case {
    mark: String,
    state: Arc<CaseState>,
    board: Arc<Board>,
}

impl Case {
    /// The text that makes a request belong to this check.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        guard(&self.state.seen).clone()
    }

    /// Whether an engine saw the proxy close while it waited for that.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.closed.load(Ordering::SeqCst)
    }

    /// What scripts have handed to the kernel for this check.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.state.sent_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        guard(&self.board.cases).remove(&self.mark);
    }
}

#[derive(Default)]
struct Board {
    cases: Mutex<HashMap<String, Arc<CaseState>>>,
    next: AtomicU64,
    connections: AtomicU64,
}

impl Board {
    fn find(&self, asked: &Asked) -> Option<Arc<CaseState>> {
        let mark = mark_in(asked.head.as_bytes()).or_else(|| mark_in(&asked.body))?;
        guard(&self.cases).get(&mark).cloned()
    }
}

fn mark_in(bytes: &[u8]) -> Option<String> {
    // Marks stand early in a body; the rest of a large one is not searched.
    let front = bytes.get(..bytes.len().min(64 * 1024))?;
    let at = front.windows(MARK.len()).position(|window| window == MARK.as_bytes())?;
    let rest = front.get(at + 1..)?;
    let end = rest.iter().position(|byte| *byte == b'@')?;
    Some(format!("@{}@", String::from_utf8_lossy(rest.get(..end)?)))
}

/// The engines.
pub(crate) struct Engines {
    board: Arc<Board>,
    engines: Vec<Mutex<Engine>>,
}

struct Engine {
    addr: SocketAddr,
    running: Option<Running>,
}

struct Running {
    stop: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    accepting: JoinHandle<()>,
}

impl Engines {
    /// Binds and serves.
    ///
    /// Errors: a port is taken; the message names it.
    pub(crate) fn start(ports: &[u16]) -> Result<Self, String> {
        let board = Arc::new(Board::default());
        let mut engines = Vec::new();
        for (at, port) in ports.iter().enumerate() {
            let addr = SocketAddr::from(([127, 0, 0, 1], *port));
            let listener = TcpListener::bind(addr).map_err(|error| format!("cannot listen on {addr}: {error}"))?;
            let addr = listener.local_addr().map_err(|error| error.to_string())?;
            engines.push(Mutex::new(Engine { addr, running: Some(serve(at, listener, board.clone())) }));
        }
        Ok(Self { board, engines })
    }

    pub(crate) fn count(&self) -> usize {
        self.engines.len()
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.engines.iter().map(|engine| guard(engine).addr).collect()
    }

    /// Gives a check its mark and script.
    pub(crate) fn case(&self, script: impl Fn(&mut Exchange<'_>) -> io::Result<Then> + Send + Sync + 'static) -> Case {
        let mark = format!("{MARK}{}@", self.board.next.fetch_add(1, Ordering::Relaxed));
        let state = Arc::new(CaseState {
            script: Box::new(script),
            seen: Mutex::default(),
            closed: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
        });
        guard(&self.board.cases).insert(mark.clone(), state.clone());
        Case { mark, state, board: self.board.clone() }
    }

    /// Takes an engine away: its port refuses, its connections end.
    pub(crate) fn down(&self, at: usize) {
        let Some(engine) = self.engines.get(at) else { return };
        let mut engine = guard(engine);
        let Some(running) = engine.running.take() else { return };
        running.stop.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it should end.
        drop(TcpStream::connect_timeout(&engine.addr, Duration::from_secs(1)));
        // A listener that panicked is gone as well.
        let _ = running.accepting.join();
        for stream in guard(&running.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Brings an engine back where it was.
    ///
    /// Errors: its port was taken meanwhile.
    pub(crate) fn up(&self, at: usize) -> io::Result<()> {
        let Some(engine) = self.engines.get(at) else { return Ok(()) };
        let mut engine = guard(engine);
        if engine.running.is_none() {
            engine.running = Some(serve(at, TcpListener::bind(engine.addr)?, self.board.clone()));
        }
        Ok(())
    }
}

fn serve(at: usize, listener: TcpListener, board: Arc<Board>) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let open = Arc::new(Mutex::new(Vec::<TcpStream>::new()));
    let (stopping, opened) = (stop.clone(), open.clone());
    let accepting = thread::spawn(move || {
        for stream in listener.incoming() {
            if stopping.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            if let Ok(copy) = stream.try_clone() {
                let mut opened = guard(&opened);
                opened.retain(|stream| stream.peer_addr().is_ok());
                opened.push(copy);
            }
            let board = board.clone();
            thread::spawn(move || {
                // A connection that breaks is what many checks are about.
                let _ = converse(at, &stream, &board);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    Running { stop, open, accepting }
}

/// Serves one connection to its end.
fn converse(engine: usize, stream: &TcpStream, board: &Board) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let connection = board.connections.fetch_add(1, Ordering::Relaxed);
    let mut reader = wire::Reader::new(stream);
    let mut turn = 0;
    while let Some(asked) = reader.next()? {
        let Some(case) = board.find(&asked) else {
            exchange::send_default(stream, &asked)?;
            continue;
        };
        let attempt = {
            let mut seen = guard(&case.seen);
            seen.push(Seen { engine, connection, asked: asked.clone() });
            seen.len() - 1
        };
        let mut exchange = Exchange { engine, attempt, turn, stream, case: &case };
        match (case.script)(&mut exchange)? {
            Then::Keep => reader.idle = None,
            Then::KeepFor(time) => reader.idle = Some(time),
            Then::Close => return Ok(()),
            Then::Reset => return socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)),
        }
        turn += 1;
    }
    Ok(())
}

pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::mark_in;

    #[test]
    fn a_mark_is_found_with_both_its_ends() {
        assert_eq!(mark_in(br#"{"content":"@case-17@ x"}"#), Some("@case-17@".to_owned()));
        assert_eq!(mark_in(b"@case-17"), None);
        assert_eq!(mark_in(b"nothing"), None);
    }
}
