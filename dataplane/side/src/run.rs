//! What is started, in which order, and how it ends.
//!
//! [`Side::start`] publishes the first route table before it returns, so that cores have one at their first
//! request; names that must be looked up follow as soon as they are. The binary tells the way out by
//! [`Handle::settle`] and [`Handle::drain`] and ends it with [`Side::stop`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use llmgw_kit::clock::Wall;
use llmgw_router::prefix::StampTable;
use llmgw_router::readiness::Readiness;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::access::Drain;
use crate::breakers::BreakerWatch;
use crate::caches::Caches;
use crate::lanes::Lanes;
use crate::page::{self, Sources};
use crate::plain_text::PlainTextWatch;
use crate::probe::Census;
use crate::publish::{PublishError, Publisher};
use crate::reload::{self, Cause, ReloadError, Reloaded, Reloader, Request, WAITING_MAX};
use crate::roster::Roster;
use crate::table::{Addrs, View};
use crate::{SideSetup, watch_file};

/// How long the start waits for endpoints that do not answer.
const FIRST_ROUND: Duration = Duration::from_secs(1);
/// Threads that look up names; each may be held up for as long as the system's resolver likes.
const LOOKUP_THREADS: usize = 8;

/// How far the gateway is on its way out. Only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[default]
    Serving,
    Settling,
    Draining,
    Cutting,
    Stopped,
}

/// Why the side runtime did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No first route table.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// No thread, no runtime, or the admin socket is of no use.
    #[error("the side runtime did not start: {0}")]
    Io(#[from] io::Error),
}

/// The running side runtime; dropping it stops it.
pub struct Side {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Side {
    /// Publishes the first route table and starts everything on a thread of its own.
    ///
    /// Errors: more endpoints than the board has slots; no thread or descriptor left.
    pub fn start(setup: SideSetup) -> Result<Self, StartError> {
        let started = Wall::now();
        setup.admin.set_nonblocking(true)?;
        let admin_addr = setup.admin.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(LOOKUP_THREADS)
            .thread_name("llmgw-lookup")
            .build()?;
        let known = u32::try_from(setup.config.endpoints.len()).unwrap_or(u32::MAX);
        let census = Arc::new(Census::new(setup.board.clone(), setup.readiness.clone(), known));
        let stage = Arc::new(watch::Sender::new(Stage::Serving));
        let running = Arc::new(watch::Sender::new(setup.config.clone()));
        let (ask, requests) = mpsc::channel(WAITING_MAX);
        let lanes = Lanes::new(setup.post, setup.cells.len());
        let mut publisher = Publisher::new(
            setup.config.clone(),
            setup.board.clone(),
            setup.feeds.clone(),
            lanes.clone(),
            Caches::new(setup.board.clone(), setup.prefixes.clone()),
            started.unix_seconds(),
        );
        publisher.publish(&Addrs::default())?;
        let handle = Handle {
            admin_addr,
            readiness: setup.readiness.clone(),
            first_round: census.first_round(),
            stage: stage.clone(),
            running: running.subscribe(),
            requests: ask.clone(),
            view: publisher.view(),
            runtime: runtime.handle().clone(),
        };
        let parts = Parts {
            sources: Arc::new(Sources {
                cells: setup.cells,
                board: setup.board,
                prefixes: setup.prefixes.clone(),
                view: publisher.view(),
                readiness: setup.readiness,
                sink: setup.sink.clone(),
                started,
                running: running.subscribe(),
                requests: ask.clone(),
                desk: setup.desk,
                usage: setup.usage,
                is_loopback: admin_addr.ip().is_loopback(),
            }),
            drain: Arc::new(Drain {
                rings: setup.access,
                view: publisher.view(),
                sink: setup.sink,
                format: setup.format,
            }),
            file: setup.file,
            running_now: running.subscribe(),
            running,
            ask,
            requests,
            publisher,
            lanes,
            prefixes: setup.prefixes,
            census,
            admin: setup.admin,
            stage: stage.subscribe(),
        };
        let main = move || {
            if let Err(error) = runtime.block_on(parts.run()) {
                tracing::error!(%error, "side runtime ended");
            }
            // A look-up that hangs must not hold up the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("llmgw-side".into()).spawn(main)?;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// What the binary talks to it with.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether its thread has ended; before [`Side::stop`] only a fault of this program ends it.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells cores to drain, if nobody did, writes the last request lines and ends. Call when the cores have ended,
    /// so that their last records are there.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.handle.advance(Stage::Stopped);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was said when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.end();
    }
}

/// Speaks to the side runtime from any thread.
#[derive(Clone)]
pub struct Handle {
    admin_addr: SocketAddr,
    readiness: Arc<Readiness>,
    first_round: watch::Receiver<bool>,
    stage: Arc<watch::Sender<Stage>>,
    running: watch::Receiver<Arc<llmgw_config::ServerConfig>>,
    requests: mpsc::Sender<Request>,
    view: watch::Receiver<Arc<View>>,
    runtime: tokio::runtime::Handle,
}

impl Handle {
    /// Where operators connect, the port that the system chose included.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Ready endpoints and known ones.
    pub fn endpoints(&self) -> (u32, u32) {
        self.readiness.endpoints()
    }

    /// Waits until every endpoint was judged once, a second at most. Answer: ready endpoints and known ones.
    pub async fn wait_first_round(&self) -> (u32, u32) {
        // An error means that the side runtime has ended: then there is nothing to wait for.
        let _ = self.first_round.clone().wait_for(|is_done| *is_done).await;
        self.endpoints()
    }

    /// The same for a thread without a runtime. Panics on a thread that runs one.
    pub fn wait_first_round_blocking(&self) -> (u32, u32) {
        self.runtime.block_on(self.wait_first_round())
    }

    /// The configuration that is running.
    pub fn config(&self) -> Arc<llmgw_config::ServerConfig> {
        self.running.borrow().clone()
    }

    /// The names of the newest route table, each time it is asked.
    pub fn names(&self) -> llmgw_journal::NewestNames {
        let view = self.view.clone();
        Box::new(move || view.borrow().clone())
    }

    /// Loads the configuration file again, and applies what may change while the gateway runs. Says what came of it in
    /// the log, too.
    ///
    /// Errors: there is no file, or it is refused; then everything stays as it was.
    pub async fn reload(&self, cause: Cause) -> Result<Reloaded, ReloadError> {
        reload::ask(&self.requests, cause).await
    }

    /// From here on the gateway is not ready, and its answers tell clients to connect elsewhere.
    pub fn settle(&self) {
        self.readiness.settle();
        self.advance(Stage::Settling);
    }

    /// From here on cores accept no more and end with their last request. Settles, if nobody did.
    pub fn drain(&self) {
        self.readiness.settle();
        self.advance(Stage::Draining);
    }

    /// From here on cores cut what still runs, and end. Drains, if nobody did.
    pub fn cut(&self) {
        self.readiness.settle();
        self.advance(Stage::Cutting);
    }

    fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|current| {
            let is_further = *current < stage;
            *current = stage.max(*current);
            is_further
        });
    }
}

/// Everything that runs, before it does.
struct Parts {
    file: Option<watch_file::ConfigFile>,
    running: Arc<watch::Sender<Arc<llmgw_config::ServerConfig>>>,
    running_now: watch::Receiver<Arc<llmgw_config::ServerConfig>>,
    ask: mpsc::Sender<Request>,
    requests: mpsc::Receiver<Request>,
    publisher: Publisher,
    lanes: Lanes,
    prefixes: Arc<StampTable>,
    census: Arc<Census>,
    sources: Arc<Sources>,
    drain: Arc<Drain>,
    admin: std::net::TcpListener,
    stage: watch::Receiver<Stage>,
}

impl Parts {
    /// Runs until it is stopped, or until a part ends that must not.
    async fn run(mut self) -> io::Result<()> {
        let mut tasks = JoinSet::new();
        let addrs = Arc::new(watch::Sender::new(Addrs::default()));
        let (first_round, changed) = (self.census.clone(), self.census.changed());
        let mut roster = Roster::new(self.census, addrs.clone(), self.lanes, self.prefixes);
        roster.follow(&self.running.borrow().clone(), &self.publisher.slots());
        let (tell, commands) = mpsc::channel(1);
        let reloader = Reloader {
            file: self.file.as_ref().map(|file| file.path().to_owned()),
            running: self.running,
            roster,
            publisher: tell,
            requests: self.requests,
        };
        let mut reloader = tokio::spawn(reloader.run());
        if let Some(file) = self.file {
            tasks.spawn(watch_file::watch(file, self.running_now, self.ask));
        }
        tasks.spawn(BreakerWatch::new(first_round.board(), self.publisher.view()).run());
        tasks.spawn(PlainTextWatch::new(self.sources.cells.clone()).run());
        tasks.spawn(page::serve(TcpListener::from_std(self.admin)?, self.sources));
        tasks.spawn(self.drain.clone().run());
        tasks.spawn(async move {
            tokio::time::sleep(FIRST_ROUND).await;
            first_round.end_first_round();
            std::future::pending().await
        });
        let mut publisher = tokio::spawn(self.publisher.run(addrs.subscribe(), self.stage.clone(), commands, changed));
        let stopped = self.stage.wait_for(|stage| *stage == Stage::Stopped);
        let outcome = tokio::select! {
            _ = stopped => Ok(()),
            ended = &mut publisher => Err(fault(ended)),
            ended = &mut reloader => Err(match ended {
                Ok(ended) => ended.err().unwrap_or_else(ended_early),
                Err(error) => io::Error::other(error),
            }),
            Some(ended) = tasks.join_next() => Err(fault(ended)),
        };
        // The publisher ends when it is stopped, and may hear of it first.
        let is_stopped = *self.stage.borrow() == Stage::Stopped;
        if is_stopped && !publisher.is_finished() {
            // It tells the cores what it still has to tell.
            let _ = publisher.await;
        }
        self.drain.empty();
        if is_stopped { Ok(()) } else { outcome }
    }
}

/// What ended a task that never should.
fn fault(ended: Result<(), JoinError>) -> io::Error {
    ended.map_or_else(io::Error::other, |()| ended_early())
}

fn ended_early() -> io::Error {
    io::Error::other("a task ended that never should")
}

#[cfg(test)]
pub(crate) mod tests;
