//! What reading engines' metrics costs: the CPU time of the side runtime's thread, with many engines that answer a page
//! recorded from a real one.
//!
//! `cargo run --profile ci -p llmgw-side --example scrape [ENGINES] [SECONDS]`. Everything is on loopback and in this
//! process; the engines' threads are not counted. Run twice by itself: with metrics off, where the thread asks engines
//! for their health only, and with metrics on.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use llmgw_engines::contract;
use llmgw_engines::names::Names;
use llmgw_kit::clock::Mono;
use llmgw_obs::log::{self, Format, Log};
use llmgw_router::access::AccessRing;
use llmgw_router::board::Board;
use llmgw_router::endpoint::MetricsState;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_runtime::mailbox::{Latest, Mesh};
use llmgw_side::{Side, SideSetup};
use llmgw_types::{BoardSlot, EngineKind};

const PAGE: &str = include_str!("../../../tests/fixtures/engines/vllm-0.32.0/metrics-after.txt");
/// For everything to connect and become ready.
const WARM_UP: Duration = Duration::from_secs(3);

/// Pages that engines have sent.
static PAGES: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let engines: usize = args.next().map_or(Ok(100), |text| text.parse())?;
    let seconds: u64 = args.next().map_or(Ok(10), |text| text.parse())?;
    let log = log::init(Format::Text, "error")?;
    let addrs = (0..engines).map(|_| engine()).collect::<Result<Vec<_>, _>>()?;
    println!("{engines} engines, a page of {} bytes, every second, for {seconds} s", PAGE.len());
    println!("reading a page that has arrived: {:.1} us", page_micros());
    let without = run(&addrs, ", metrics_path: off", seconds, &log)?;
    println!("metrics off: {without}");
    let with = run(&addrs, "", seconds, &log)?;
    println!("metrics on:  {with}");
    if with.pages > 0 {
        let more = with.cpu.saturating_sub(without.cpu);
        println!("the difference: {:.0} us a page", more.as_micros() as f64 / with.pages as f64);
    }
    Ok(())
}

/// What the side runtime's thread used.
struct Used {
    cpu: Duration,
    time: Duration,
    pages: u64,
}

impl std::fmt::Display for Used {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.cpu.as_secs_f64() / self.time.as_secs_f64();
        write!(f, "{share:.2} % of a core, {:?} in {:?}, {} pages", self.cpu, self.time, self.pages)
    }
}

fn run(addrs: &[SocketAddr], more: &str, seconds: u64, log: &Log) -> Result<Used, Box<dyn Error>> {
    let line = |addr: &SocketAddr| format!("  - {{ url: 'http://{addr}', model: tiny{more} }}\n");
    let endpoints: String = addrs.iter().map(line).collect();
    let text = format!("router: {{ scrape_interval: 1s }}\nendpoints:\n{endpoints}");
    let mesh = Mesh::new(1, 1, 16)?;
    let board = Arc::new(Board::new(1, addrs.len()));
    let side = Side::start(SideSetup {
        config: Arc::new(llmgw_config::from_text("server.yaml", &text, [])?),
        file: None,
        board: board.clone(),
        prefixes: Arc::new(StampTable::new(0, Ledger::new(1, addrs.len()))),
        cells: vec![Arc::new(CoreCells::new())],
        feeds: vec![Arc::new(Latest::default())],
        post: mesh.post(1),
        access: vec![Arc::new(AccessRing::new(8))],
        readiness: Arc::new(Readiness::default()),
        sink: log.sink(),
        format: Format::Text,
        admin: TcpListener::bind("127.0.0.1:0")?,
        desk: None,
        usage: None,
    })?;
    pause(WARM_UP);
    let (cpu, time, pages) = (side_cpu()?, Mono::now(), PAGES.load(Ordering::Relaxed));
    pause(Duration::from_secs(seconds));
    let used = Used {
        cpu: side_cpu()?.saturating_sub(cpu),
        time: Mono::now().since(time),
        pages: PAGES.load(Ordering::Relaxed) - pages,
    };
    let slots = (0..u32::try_from(addrs.len())?).map(BoardSlot);
    let fresh = slots.clone().filter(|slot| board.endpoint(*slot).metrics() == MetricsState::Fresh).count();
    let ready = slots.filter(|slot| board.is_ready(*slot)).count();
    println!("             {ready} ready, {fresh} with a fresh sample");
    side.stop();
    Ok(used)
}

/// CPU time of the side runtime's thread so far.
fn side_cpu() -> Result<Duration, Box<dyn Error>> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == "llmgw-side" {
            let stat = std::fs::read_to_string(task.join("schedstat"))?;
            let nanos = stat.split(' ').next().ok_or("no schedstat")?;
            return Ok(Duration::from_nanos(nanos.parse()?));
        }
    }
    Err("no thread of the side runtime".into())
}

/// One reading of the page, without the way it came.
fn page_micros() -> f64 {
    const ROUNDS: u32 = 2000;
    let names = Names::of(EngineKind::Vllm);
    let start = Mono::now();
    for _ in 0..ROUNDS {
        let page = std::hint::black_box(PAGE.as_bytes());
        let _ = std::hint::black_box(contract::read(page, &names));
    }
    Mono::now().since(start).as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

/// An engine that answers health, models and metrics.
fn engine() -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(addr)
}

fn serve(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(mut out) = stream.try_clone() else { return };
    let mut lines = BufReader::new(stream).lines();
    loop {
        let head: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { return };
        let body = match path {
            "/metrics" => {
                PAGES.fetch_add(1, Ordering::Relaxed);
                PAGE
            }
            "/v1/models" => r#"{"object":"list","data":[{"id":"tiny"}]}"#,
            _ => "",
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        if out.write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this thread is the measurement's own")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
