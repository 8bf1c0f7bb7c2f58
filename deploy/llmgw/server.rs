//! `llmgw server`: reads the configuration, connects cores and side runtime, and sees them to their end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use llmgw_config::server::Auth;
use llmgw_config::{CoreCount, ServerConfig};
use llmgw_gateway::CoreSetup;
use llmgw_join::{keys, usage};
use llmgw_journal::Journal;
use llmgw_kit::chance::Chance;
use llmgw_obs::log::{self, Format, Log};
use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::board::SLOTS_MAX;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, Seed, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_router::usage::{self as records, UsageRing};
use llmgw_runtime::driver::{self, Driver, DriverChoice};
use llmgw_runtime::mailbox::{LANE_CAPACITY, Latest, Mesh};
use llmgw_runtime::{cores, listener, memory, plan};
use llmgw_side::settings::settings;
use llmgw_side::{Cause, ConfigFile, Handle, Side, SideSetup};
use llmgw_types::CoreId;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::check::{self, Depth};
use crate::tenants::Keys;

/// Serve: take requests and pass each to one of the engines named in a configuration file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration; `llmgw init URL…` writes one.
    #[arg(long, value_name = "FILE", default_value = "server.yaml")]
    config: PathBuf,
    /// Say what the configuration means, one line an engine, and end: 0 when all is well, else 1.
    #[arg(long)]
    check: bool,
    /// With --check: ask the engines too.
    #[arg(long, requires = "check")]
    probe: bool,
    /// What is logged to standard error: error, warn, info, debug or trace. At debug every request has a line; else
    /// only those that failed.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// How it looks.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
    /// What the cores run on; `auto` is io_uring where the kernel allows it.
    #[arg(long, value_enum, default_value_t = DriverArg::Auto)]
    driver: DriverArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Json,
    Text,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DriverArg {
    Auto,
    IoUring,
    Epoll,
}

/// How long the cores may take beyond their drain limit before they are left behind; cutting takes a part of it.
const JOIN_GRACE: Duration = Duration::from_secs(3);
/// How long the end waits for the store to take the last records of usage; the next start stores what is left.
const USAGE_TIME: Duration = Duration::from_secs(5);
/// How often it is looked whether they have ended.
const ENDED_LOOK: Duration = Duration::from_millis(5);

/// Runs the role.
pub(crate) fn run(args: &Args) -> ExitCode {
    let file = ConfigFile::at(&args.config);
    let config = match llmgw_config::from_process_env(&args.config) {
        Ok(config) => config,
        Err(error) => return fail_plainly(&error),
    };
    if args.check {
        return check::run(&args.config, &config, if args.probe { Depth::Engines } else { Depth::File });
    }
    let format = match args.log_format {
        LogFormat::Json => Format::Json,
        LogFormat::Text => Format::Text,
    };
    let log = match log::init(format, &args.log_level) {
        Ok(log) => log,
        Err(error) => return fail(&error),
    };
    let choice = match args.driver {
        DriverArg::Auto => DriverChoice::Auto,
        DriverArg::IoUring => DriverChoice::Only(Driver::IoUring),
        DriverArg::Epoll => DriverChoice::Only(Driver::Epoll),
    };
    let access_log =
        if matches!(args.log_level.as_str(), "debug" | "trace") { AccessLog::All } else { AccessLog::Failures };
    let served = Server::start(config, Some(file), &log, choice, access_log).and_then(|server| {
        // Before anybody is told that it serves: a signal from here on does what it should.
        let signals = Signals::new(Hangup::Reloads)?;
        server.announce(&mut io::stdout())?;
        server.run_until_signal(signals)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    fail_plainly(&format_args!("llmgw: {error}"))
}

/// Errors of a file begin with its name and line, as editors and people expect.
#[expect(clippy::print_stderr, reason = "a start that failed is told in plain words")]
fn fail_plainly(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// A server whose cores and side runtime run.
pub(crate) struct Server {
    side: Side,
    /// Where keys are on.
    keys: Option<Keys>,
    cores: Vec<JoinHandle<io::Result<()>>>,
    /// Where there is a store.
    journal: Option<Journal>,
    addrs: Vec<SocketAddr>,
    driver: Driver,
    open_files: u64,
}

impl Server {
    /// Binds, publishes the first route table, starts the cores.
    ///
    /// Errors: an address in use, no descriptors, no driver.
    pub(crate) fn start(
        config: ServerConfig,
        file: Option<ConfigFile>,
        log: &Log,
        choice: DriverChoice,
        access_log: AccessLog,
    ) -> io::Result<Self> {
        let config = Arc::new(config);
        memory::settle_allocator();
        let open_files = cores::raise_open_files()?;
        let (driver, why) = driver::choose(choice)?;
        if let Some(why) = why {
            tracing::info!(%driver, why, "driver chosen");
        }
        let plan = plan::divide(&cores::usable_cpus(), count(config.cores), count(config.side_cpus));
        let core_count = plan.cores.len();
        let mut sockets: Vec<Vec<TcpListener>> = (0..core_count).map(|_| Vec::new()).collect();
        let mut addrs = Vec::new();
        for &addr in &config.listen {
            let bound = listener::bind(addr, core_count)?;
            addrs.push(bound[0].local_addr()?);
            bound.into_iter().zip(&mut sockets).for_each(|(socket, of_core)| of_core.push(socket));
        }
        let admin = TcpListener::bind(config.admin_listen).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {}: {error}", config.admin_listen))
        })?;

        // Beside the cores send: the side runtime, and whoever watches the store.
        let mesh = Mesh::new(core_count, 2, LANE_CAPACITY)?;
        let board = Arc::new(Board::new(core_count, SLOTS_MAX));
        let slots_max = usize::try_from(config.router.prefix_table_slots).unwrap_or(usize::MAX);
        let prefixes = Arc::new(StampTable::new(slots_max, Ledger::new(core_count, SLOTS_MAX)));
        // Of this process alone, so that nobody can make prompts that collide.
        let seed = Seed::drawn(&mut Chance::from_system());
        let readiness = Arc::new(Readiness::of_cores(core_count));
        let cells: Vec<Arc<CoreCells>> = (0..core_count).map(|_| Arc::default()).collect();
        let feeds: Vec<Arc<Latest<_>>> = (0..core_count).map(|_| Arc::default()).collect();
        let access_ring = |_| Arc::new(AccessRing::new(access_log.ring_capacity()));
        let access: Vec<Arc<AccessRing>> = (0..core_count).map(access_ring).collect();

        let store = keys::store(&config)?;
        let usage_cells = store.as_ref().map(|_| Arc::<llmgw_journal::Cells>::default());
        cores::keep_to(&plan.side);
        let keys = match &store {
            Some(store) if config.auth == Auth::Keys => {
                Some(Keys::start(store, core_count, mesh.post(core_count + 1), &config)?)
            }
            _ => None,
        };
        let side = Side::start(SideSetup {
            config: config.clone(),
            file,
            board: board.clone(),
            prefixes: prefixes.clone(),
            cells: cells.clone(),
            feeds: feeds.clone(),
            post: mesh.post(core_count),
            access: access.clone(),
            readiness: readiness.clone(),
            sink: log.sink(),
            format: log.format(),
            admin,
            desk: Some(keys::desk(store.clone(), keys.as_ref().map(|keys| &keys.watch))),
            usage: usage_cells.clone(),
        })
        .map_err(io::Error::other)?;
        let mut usage_rings: Vec<Option<Arc<UsageRing>>> = vec![None; core_count];
        let mut journal = None;
        if let Some((store, cells)) = store.zip(usage_cells) {
            let rings: Vec<_> = (0..core_count).map(|_| Arc::new(UsageRing::new(records::RING_CAPACITY))).collect();
            usage_rings = rings.iter().cloned().map(Some).collect();
            // Where the cores have no ring, the journal gets none either.
            let disk = match driver {
                Driver::IoUring => llmgw_journal::Driver::Ring,
                Driver::Epoll => llmgw_journal::Driver::Thread,
            };
            journal = Some(usage::start(&store, rings, side.handle().names(), cells, disk)?);
        }

        let settings = Arc::new(settings(&config));
        let setups = sockets.into_iter().enumerate().map(|(number, listeners)| {
            let id = CoreId(u32::try_from(number).unwrap_or(u32::MAX));
            CoreSetup {
                id,
                listeners,
                inbox: mesh.inbox(id),
                post: mesh.post(number),
                core_count: u32::try_from(core_count).unwrap_or(u32::MAX),
                feed: feeds[number].clone(),
                tenants: keys.as_ref().map(|keys| keys.feeds[number].clone()),
                board: board.clone(),
                prefixes: prefixes.clone(),
                seed,
                cells: cells[number].clone(),
                access: access[number].clone(),
                usage: usage_rings[number].clone(),
                readiness: readiness.clone(),
                settings: settings.clone(),
                access_log,
            }
        });
        // The first table of keys was made from much more than it holds; and no core waits for its arena yet.
        memory::give_back();
        let cores = cores::spawn_cores(&plan.cores, driver, setups, llmgw_gateway::run)?;
        tracing::info!(%driver, cores = core_count, open_files, "serving");
        Ok(Self { side, keys, cores, journal, addrs, driver, open_files })
    }

    /// Where clients connect, as an address on this machine.
    pub(crate) fn client_addr(&self) -> SocketAddr {
        let mut addr = self.addrs[0];
        if addr.ip().is_unspecified() {
            addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        addr
    }

    /// Where operators connect.
    pub(crate) fn admin_addr(&self) -> SocketAddr {
        self.side.handle().admin_addr()
    }

    /// Ready endpoints and known ones, once each was asked, or after a second.
    pub(crate) fn wait_first_round(&self) -> (u32, u32) {
        self.side.handle().wait_first_round_blocking()
    }

    /// Says what a person who has just started this wants to know.
    fn announce(&self, out: &mut impl io::Write) -> io::Result<()> {
        let (client, config) = (self.client_addr(), self.side.handle().config());
        let scheme = if config.tls.is_empty() { "http" } else { "https" };
        for addr in &self.addrs {
            let cores = self.cores.len();
            let plural = if cores == 1 { "core" } else { "cores" };
            writeln!(
                out,
                "listening on {scheme}://{addr} ({cores} {plural}, {}, {} open files)",
                self.driver, self.open_files
            )?;
        }
        writeln!(out, "admin on http://{} (/metrics, /healthz, /readyz)", self.admin_addr())?;
        out.flush()?;
        let (ready, known) = self.wait_first_round();
        writeln!(out, "endpoints ready {ready}/{known}")?;
        let model = config.models.first().map_or("", |model| model.name.as_str());
        match &self.keys {
            None => {
                writeln!(out, "keys are off: anyone who reaches {client} can use these engines")?;
                writeln!(out, "try: {}", curl_line(scheme, client, model, None))?;
            }
            Some(keys) => {
                match keys.key_count {
                    0 => writeln!(out, "keys are on, and there is none yet: llmgw keys create NAME makes one")?,
                    1 => writeln!(out, "keys are on: 1 key works")?,
                    count => writeln!(out, "keys are on: {count} keys work")?,
                }
                writeln!(out, "try: {}", curl_line(scheme, client, model, Some("$LLMGW_KEY")))?;
            }
        }
        out.flush()
    }

    /// Serves until SIGTERM or SIGINT, then ends in order: not ready, settle, drain; at the drain limit what still runs
    /// is cut. A second signal is an operator who wants it to end now: it cuts at once.
    ///
    /// Errors: a core or the side runtime ended by itself.
    pub(crate) fn run_until_signal(self, signals: Signals) -> io::Result<()> {
        let Signals { runtime, mut stop, mut hangup } = signals;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    () = stop.next() => return io::Result::Ok(()),
                    () = next_hangup(&mut hangup) => reload(self.side.handle().clone()),
                    () = tokio::time::sleep(Duration::from_secs(1)) => self.check_alive()?,
                }
            }
        })?;
        let settle = self.side.handle().config().router.timeouts.settle;
        tracing::info!(settle_ms = settle.as_millis(), "stopping: readiness withdrawn");
        self.side.handle().settle();
        let is_hurried = runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(settle) => {}
                () = stop.next() => return true,
            }
            self.side.handle().drain();
            tokio::select! {
                () = self.ended() => false,
                () = stop.next() => true,
            }
        });
        if is_hurried {
            tracing::warn!("told to stop a second time: requests that run are cut");
            self.side.handle().cut();
        }
        self.stop_within(JOIN_GRACE);
        Ok(())
    }

    fn check_alive(&self) -> io::Result<()> {
        if self.side.is_finished() || self.cores.iter().any(JoinHandle::is_finished) {
            return Err(io::Error::other("a core or the side runtime has ended by itself; see the log"));
        }
        Ok(())
    }

    /// Resolves when every core has ended, or had the time for it: the drain limit is the cores' own to keep.
    async fn ended(&self) {
        let deadline = Instant::now() + self.side.handle().config().router.timeouts.drain;
        while self.is_running() && Instant::now() < deadline {
            tokio::time::sleep(ENDED_LOOK).await;
        }
    }

    fn is_running(&self) -> bool {
        self.cores.iter().any(|core| !core.is_finished())
    }

    /// Ends: no more connections, the last requests finish within the drain limit, the log is written.
    pub(crate) fn stop(self) {
        self.side.handle().drain();
        let limit = self.side.handle().config().router.timeouts.drain;
        self.stop_within(limit + JOIN_GRACE);
    }

    fn stop_within(self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(ENDED_LOOK);
        }
        if self.is_running() {
            tracing::warn!("a core did not end in time and is left behind");
        }
        // The cores' last records are in their rings.
        if let Some(journal) = self.journal {
            journal.stop(USAGE_TIME);
        }
        self.side.stop();
        // What it notes last goes to the store, which ends with it.
        drop(self.keys);
        tracing::info!("stopped");
    }
}

/// What SIGHUP means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// The end, as for any program whose terminal is closed.
    Ends,
    /// The configuration file is loaded again.
    Reloads,
}

/// The signals of a server, waited for from when this is made.
pub(crate) struct Signals {
    runtime: tokio::runtime::Runtime,
    stop: Stop,
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new(hangup: Hangup) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, hangup) = runtime.block_on(async {
            let stop = Stop { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
            let hangup = (hangup == Hangup::Reloads).then(|| signal(SignalKind::hangup())).transpose()?;
            io::Result::Ok((stop, hangup))
        })?;
        Ok(Self { runtime, stop, hangup })
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

async fn next_hangup(hangup: &mut Option<Signal>) {
    match hangup {
        Some(signal) => {
            let _ = signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Loads the configuration again, beside the wait for signals. What comes of it is said in the log.
fn reload(handle: Handle) {
    tokio::spawn(async move { handle.reload(Cause::Signal).await.map(drop) });
}

/// A line to paste: a streamed chat, with a key where one is needed.
pub(crate) fn curl_line(scheme: &str, addr: SocketAddr, model: &str, key: Option<&str>) -> String {
    let body = serde_json::json!({
        "model": model,
        "stream": true,
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    let body = body.to_string().replace('\'', r"'\''");
    // The certificate is for a name, and this is an address.
    let unchecked = if scheme == "https" { " -k" } else { "" };
    let key = key.map_or(String::new(), |key| format!(" -H \"authorization: Bearer {key}\""));
    let head = format!("-H 'content-type: application/json'{key}");
    format!("curl -N{unchecked} {scheme}://{addr}/v1/chat/completions {head} -d '{body}'")
}

fn count(count: CoreCount) -> plan::Count {
    match count {
        CoreCount::Auto => plan::Count::Auto,
        CoreCount::Exactly(count) => plan::Count::Exactly(usize::from(count)),
    }
}
