//! Puts the gateway together and sees it to its end: listeners and connections on tokio's threads, beside the side
//! runtime that every gateway has.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use llmgw_config::server::Auth;
use llmgw_config::{CoreCount, ServerConfig};
use llmgw_kit::clock::Mono;
use llmgw_obs::log::Log;
use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::board::SLOTS_MAX;
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_router::usage::{self as records, UsageRing};
use llmgw_runtime::driver::{Driver, block_on};
use llmgw_runtime::mailbox::{Inbox, LANE_CAPACITY, Latest, Mesh};
use llmgw_runtime::plan::Count;
use llmgw_runtime::{cores, listener, memory, plan};
use llmgw_side::{Cause, ConfigFile, Handle, Side, SideSetup};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::state::{CORE, Gateway, Parts};
use crate::tables::Tables;
use crate::{connection, keys};

/// How often idle upstream connections are looked at, and counts are copied into cells.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// How often a draining gateway looks whether it is empty.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// How long connections may take to end once their last request has.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long a listener waits when no connection can be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// How long the end waits for the store to take the last records of usage; the next start stores what is left.
const USAGE_TIME: Duration = Duration::from_secs(5);
/// What requests that are cut have to tell their clients so.
const CUT_TIME: Duration = Duration::from_millis(1500);

/// What the command line says of requests.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) access_log: AccessLog,
    pub(crate) is_bare: bool,
}

/// Serves until SIGTERM or SIGINT, then ends in order: not ready, settle, drain. A second signal skips the wait.
///
/// Errors: an address in use, no descriptors, no threads; or the side runtime ended by itself.
pub(crate) fn run(config: ServerConfig, file: ConfigFile, log: &Log, mode: Mode) -> io::Result<()> {
    let Mode { access_log, is_bare } = mode;
    if !config.tls.is_empty() {
        return Err(io::Error::other("tls: this gateway speaks plain HTTP alone"));
    }
    let config = Arc::new(config);
    memory::settle_allocator();
    let open_files = cores::raise_open_files()?;
    let plan = plan::divide(&cores::usable_cpus(), count(config.cores), count(config.side_cpus));
    let mut listeners = Vec::new();
    for &addr in &config.listen {
        listeners.extend(listener::bind(addr, 1)?);
    }
    let addrs = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
    let admin = TcpListener::bind(config.admin_listen)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {}: {error}", config.admin_listen)))?;

    let store = llmgw_join::keys::store(&config)?;
    let usage_cells = store.as_ref().map(|_| Arc::<llmgw_journal::Cells>::default());
    let mesh = Mesh::new(1, 1, LANE_CAPACITY)?;
    let (board, readiness) = (Arc::new(Board::new(1, SLOTS_MAX)), Arc::new(Readiness::default()));
    let slots_max = usize::try_from(config.router.prefix_table_slots).unwrap_or(usize::MAX);
    let prefixes = Arc::new(StampTable::new(slots_max, Ledger::new(1, SLOTS_MAX)));
    let (cells, feed) = (Arc::new(CoreCells::new()), Arc::new(Latest::default()));
    let access = Arc::new(AccessRing::new(access_log.ring_capacity()));
    cores::keep_to(&plan.side);
    let (keys, watch) = match &store {
        Some(store) if config.auth == Auth::Keys => {
            let (keys, watch) = keys::watch(store, cells.clone())?;
            (Some(keys), Some(watch))
        }
        _ => (None, None),
    };
    let side = Side::start(SideSetup {
        config: config.clone(),
        file: Some(file),
        board: board.clone(),
        prefixes: prefixes.clone(),
        cells: vec![cells.clone()],
        feeds: vec![feed.clone()],
        post: mesh.post(1),
        access: vec![access.clone()],
        readiness: readiness.clone(),
        sink: log.sink(),
        format: log.format(),
        admin,
        desk: Some(llmgw_join::keys::desk(store.clone(), watch.as_ref())),
        usage: usage_cells.clone(),
    })
    .map_err(io::Error::other)?;
    let (usage, journal) = match store.as_ref().zip(usage_cells) {
        Some((store, cells)) => {
            // One ring, which all threads push into.
            let ring = Arc::new(UsageRing::new(records::RING_CAPACITY));
            let names = side.handle().names();
            let driver = llmgw_journal::Driver::Thread;
            let journal = llmgw_join::usage::start(store, vec![ring.clone()], names, cells, driver)?;
            (Some(ring), Some(journal))
        }
        None => (None, None),
    };
    let parts = Parts { board, prefixes, cells, readiness, access, access_log, keys, usage, is_bare };
    let gateway = Arc::new(Gateway::new(parts));
    if let Some(first) = feed.take() {
        gateway.swap(Arc::new(Tables::of(first)));
    }
    let inbox = mesh.inbox(CORE);
    let ears = gateway.clone();
    std::thread::Builder::new().name("stock-feed".into()).spawn(move || hear(&ears, inbox, &feed))?;

    let runtime = runtime(&plan.cores)?;
    tracing::info!(driver = "tokio", cores = plan.cores.len(), open_files, "serving");
    let served = runtime.block_on(async {
        let server = Server { gateway, side: &side };
        let signals = Signals::new()?;
        let accepting = listeners
            .into_iter()
            .map(|listener| {
                Ok(tokio::spawn(accept(server.gateway.clone(), tokio::net::TcpListener::from_std(listener)?)))
            })
            .collect::<io::Result<Vec<_>>>()?;
        tokio::spawn(keep_house(server.gateway.clone()));
        server.announce(&addrs, plan.cores.len(), open_files).await?;
        server.until_signal(signals, || accepting.iter().for_each(|task| task.abort())).await
    });
    if let Some(journal) = journal {
        journal.stop(USAGE_TIME);
    }
    side.stop();
    // What it notes last goes to the store, which ends with it.
    drop(watch);
    tracing::info!("stopped");
    // Connections that outlived their time are left behind.
    runtime.shutdown_background();
    served
}

/// Threads that share the work; where there is one CPU for it, this thread alone, which then neither steals nor wakes.
fn runtime(cpus: &[usize]) -> io::Result<Runtime> {
    if cpus.len() == 1 {
        cores::keep_to(cpus);
        return Builder::new_current_thread().enable_all().build();
    }
    let kept = cpus.to_vec();
    Builder::new_multi_thread()
        .worker_threads(cpus.len())
        .on_thread_start(move || cores::keep_to(&kept))
        .thread_name("stock-worker")
        .enable_all()
        .build()
}

/// Follows what the side runtime says, on a thread of its own: it speaks to cores, and knows only their way to wait.
fn hear(gateway: &Gateway, inbox: Inbox<CoreMessage>, feed: &Latest<Feed>) {
    let heard = block_on(Driver::Epoll, async {
        let mut mailbox = inbox.open()?;
        let mut messages = Vec::new();
        loop {
            mailbox.receive(&mut messages).await;
            for message in messages.drain(..) {
                match message {
                    CoreMessage::FeedReady => {
                        if let Some(newest) = feed.take() {
                            gateway.swap(Arc::new(Tables::of(newest)));
                        }
                    }
                    CoreMessage::Settle => gateway.is_closing.store(true, Relaxed),
                    CoreMessage::Drain => gateway.drain(),
                    CoreMessage::Cut => gateway.cut(),
                    // Said between cores, of which there is one; of keys, whoever watches them puts them in place.
                    CoreMessage::TenantsReady
                    | CoreMessage::Failure(_)
                    | CoreMessage::Success(_)
                    | CoreMessage::Eject(_)
                    | CoreMessage::Locate(..)
                    | CoreMessage::Located(..)
                    | CoreMessage::Enqueue(_)
                    | CoreMessage::Withdraw(_)
                    | CoreMessage::Nudge(_)
                    | CoreMessage::Granted(..)
                    | CoreMessage::Refused(..)
                    | CoreMessage::Placed(..)
                    | CoreMessage::ToLimiter(_)
                    | CoreMessage::FromLimiter(_) => {}
                    CoreMessage::MetricsLost(slot) => gateway.metrics_lost(slot),
                    CoreMessage::MetricsBack(slot) => gateway.metrics_back(slot),
                }
            }
        }
    });
    if let Err(error) = heard.and_then(|inner: io::Result<()>| inner) {
        tracing::error!(%error, "publications are not heard any more");
    }
}

async fn accept(gateway: Arc<Gateway>, listener: tokio::net::TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(tables) = gateway.tables() else { continue };
                if stream.set_nodelay(true).is_ok() {
                    tokio::spawn(connection::run(gateway.clone(), stream, tables.settings().clone()));
                }
            }
            // Trouble with one connection, or a want of descriptors, does not end the listener.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn keep_house(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(HOUSEKEEPING).await;
        gateway.keep_house();
    }
}

struct Server<'a> {
    gateway: Arc<Gateway>,
    side: &'a Side,
}

impl Server<'_> {
    /// Says where it listens, in the words of `llmgw server`.
    async fn announce(&self, addrs: &[SocketAddr], threads: usize, open_files: u64) -> io::Result<()> {
        let mut out = io::stdout();
        for addr in addrs {
            let plural = if threads == 1 { "thread" } else { "threads" };
            writeln!(out, "listening on http://{addr} ({threads} {plural}, tokio, {open_files} open files)")?;
        }
        writeln!(out, "admin on http://{} (/metrics, /healthz, /readyz)", self.side.handle().admin_addr())?;
        out.flush()?;
        let (ready, known) = self.side.handle().wait_first_round().await;
        writeln!(out, "endpoints ready {ready}/{known}")?;
        out.flush()
    }

    async fn until_signal(&self, mut signals: Signals, stop_accepting: impl Fn()) -> io::Result<()> {
        loop {
            tokio::select! {
                () = signals.stop.next() => break,
                _ = signals.hangup.recv() => reload(self.side.handle().clone()),
                () = tokio::time::sleep(Duration::from_secs(1)) => {
                    if self.side.is_finished() {
                        return Err(io::Error::other("the side runtime has ended by itself; see the log"));
                    }
                }
            }
        }
        let timeouts = self.side.handle().config().router.timeouts;
        tracing::info!(settle_ms = timeouts.settle.as_millis(), "stopping: readiness withdrawn");
        self.side.handle().settle();
        let is_hurried = tokio::select! {
            () = tokio::time::sleep(timeouts.settle) => false,
            () = signals.stop.next() => true,
        };
        self.side.handle().drain();
        // What the side runtime is about to say, without its way round.
        self.gateway.drain();
        stop_accepting();
        let is_hurried = is_hurried
            || tokio::select! {
                () = self.until_idle(timeouts.drain) => false,
                () = signals.stop.next() => true,
            };
        if is_hurried {
            tracing::warn!("told to stop a second time: requests that run are cut");
        }
        if self.gateway.in_flight() > 0 {
            self.gateway.cut();
            self.until_idle(CUT_TIME).await;
        }
        // What was answered last may still be on its way out.
        let closed_until = Mono::now() + CLOSE_GRACE;
        while self.gateway.count(|cells| cells.connections_open.value()) > 0 && Mono::now() < closed_until {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        self.gateway.keep_house();
        Ok(())
    }

    async fn until_idle(&self, limit: Duration) {
        let until = Mono::now() + limit;
        while self.gateway.in_flight() > 0 && Mono::now() < until {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }
}

/// The signals of a server, waited for from when this is made.
struct Signals {
    stop: Stop,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let stop = Stop { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
        Ok(Self { stop, hangup: signal(SignalKind::hangup())? })
    }
}

/// SIGTERM and SIGINT.
struct Stop {
    term: Signal,
    interrupt: Signal,
}

impl Stop {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Loads the configuration again, beside the wait for signals. What comes of it is said in the log.
fn reload(handle: Handle) {
    tokio::spawn(async move { handle.reload(Cause::Signal).await.map(drop) });
}

fn count(count: CoreCount) -> Count {
    match count {
        CoreCount::Auto => Count::Auto,
        CoreCount::Exactly(count) => Count::Exactly(usize::from(count)),
    }
}
