//! Starting and stopping an engine: its thread, its listener, and the handle that tests hold.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket};

use crate::config::EngineConfig;
use crate::conn;
use crate::control::{self, StateView};
use crate::faults::Faults;
use crate::record::Received;
use crate::shared::Shared;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;

/// A simulated engine.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Listens on `addr` (port 0: one from the system) and serves on a thread of its own until the handle is stopped or
    /// dropped.
    ///
    /// Errors: the address cannot be listened on, or the thread cannot be started.
    pub async fn bind(cfg: EngineConfig, addr: SocketAddr) -> io::Result<Handle> {
        Engine::start(cfg, addr)
    }

    /// [`Engine::bind`] for callers without a runtime; it does not wait for anything.
    pub fn start(cfg: EngineConfig, addr: SocketAddr) -> io::Result<Handle> {
        let shared = Arc::new(Shared::new(cfg));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _context = runtime.enter();
            let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(addr)?;
            socket.listen(BACKLOG)?
        };
        let local_addr = listener.local_addr()?;
        let serving = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("sim-{}", local_addr.port()))
            .spawn(move || runtime.block_on(run(serving, listener)))?;
        Ok(Handle { shared, local_addr, thread: Some(thread) })
    }
}

async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let mut stop = shared.stop.subscribe();
    let driver = shared.clone();
    tokio::spawn(async move { driver.drive().await });
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stopped| *stopped) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(conn::serve(shared.clone(), stream));
            }
            // Out of descriptors, most likely: let some connections end first.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

/// A running engine. Dropping it stops the engine and closes all its connections.
pub struct Handle {
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Handle {
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// `http://` and the address.
    pub fn url(&self) -> String {
        format!("http://{}", self.local_addr)
    }

    /// What was received, oldest first; only what is still kept.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.lock().recording.iter().cloned().collect()
    }

    /// The present counts, as `GET /sim/state` shows them.
    pub fn state(&self) -> StateView {
        control::state(&self.shared)
    }

    /// Forgets the recording.
    pub fn clear_requests(&self) {
        self.shared.lock().recording.clear();
    }

    /// Replaces the faults that apply to every request from here on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.set_faults(faults);
    }

    /// Replaces the metrics page; `None` brings the engine's own back.
    pub fn set_metrics_text(&self, text: Option<String>) {
        self.shared.lock().cfg.metrics_text = text;
    }

    /// Ends every stall and blackhole that is under way.
    pub fn release(&self) {
        self.shared.release();
    }

    /// Nanoseconds since the engine's start: the clock of the recording.
    pub fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    /// Stops the engine: the port is closed and every connection dropped when this returns.
    pub fn stop(mut self) {
        self.end();
    }

    /// Waits until the engine ends, which it does not do by itself.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn end(&mut self) {
        self.shared.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}
