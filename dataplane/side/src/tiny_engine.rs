//! For tests: an engine on loopback that answers what it is told and remembers what it was asked. A thread a
//! connection.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Status and body by path; what has no answer is 404.
pub(crate) type Answers = Vec<(&'static str, u16, String)>;

/// What an engine that serves those models answers.
pub(crate) fn serving(models: &[&str]) -> Answers {
    vec![("/health", 200, String::new()), ("/v1/models", 200, list(models))]
}

pub(crate) fn list(models: &[&str]) -> String {
    let entries: Vec<String> = models.iter().map(|name| format!("{{\"id\":\"{name}\"}}")).collect();
    format!("{{\"object\":\"list\",\"data\":[{}]}}", entries.join(","))
}

#[derive(Default)]
struct State {
    answers: Mutex<Answers>,
    /// Heads of requests, newest last.
    heads: Mutex<Vec<String>>,
    connections: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
    is_stopped: AtomicBool,
    /// Whether connections are closed after an answer, without a word.
    is_curt: AtomicBool,
}

pub(crate) struct TinyEngine {
    addr: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while held")
}

impl TinyEngine {
    pub(crate) fn start(answers: Answers) -> Self {
        Self::start_on(([127, 0, 0, 1], 0).into(), answers)
    }

    pub(crate) fn start_on(addr: SocketAddr, answers: Answers) -> Self {
        let listener = TcpListener::bind(addr).expect("a port");
        let addr = listener.local_addr().expect("bound");
        let state = Arc::new(State { answers: Mutex::new(answers), ..State::default() });
        let thread = std::thread::spawn({
            let state = state.clone();
            move || {
                for stream in listener.incoming().flatten() {
                    if state.is_stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    state.connections.fetch_add(1, Ordering::SeqCst);
                    lock(&state.open).push(stream.try_clone().expect("a descriptor"));
                    let state = state.clone();
                    std::thread::spawn(move || serve(stream, &state));
                }
            }
        });
        Self { addr, state, thread: Some(thread) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn answer(&self, answers: Answers) {
        *lock(&self.state.answers) = answers;
    }

    /// From here on closes connections after each answer, without a word.
    pub(crate) fn be_curt(&self) {
        self.state.is_curt.store(true, Ordering::SeqCst);
    }

    /// How often that path was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let start = format!("GET {path} ");
        lock(&self.state.heads).iter().filter(|head| head.starts_with(&start)).count()
    }

    /// The newest request's head.
    pub(crate) fn last_head(&self) -> String {
        lock(&self.state.heads).last().cloned().unwrap_or_default()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for TinyEngine {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for stream in lock(&self.state.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn serve(stream: TcpStream, state: &State) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut lines = BufReader::new(stream).lines();
    loop {
        let head: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else { return };
        lock(&state.heads).push(head.join("\n"));
        let found =
            lock(&state.answers).iter().find(|(at, ..)| *at == path).map(|(_, status, body)| (*status, body.clone()));
        let (status, body) = found.unwrap_or((404, "{}".to_owned()));
        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if out.write_all(answer.as_bytes()).is_err() || state.is_curt.load(Ordering::SeqCst) {
            let _ = out.shutdown(Shutdown::Both);
            return;
        }
    }
}
