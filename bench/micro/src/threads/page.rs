//! The metrics page of a gateway with 100 engines, read over its admin address as Prometheus does.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use llmgw_engine_sim::{Engine, EngineConfig};
use llmgw_obs::log::{self, Format};
use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, StampTable};
use llmgw_router::readiness::Readiness;
use llmgw_runtime::mailbox::{LANE_CAPACITY, Latest, Mesh};
use llmgw_side::{Side, SideSetup};

use crate::measure::{self, Clock, Plan, Timing};

const ENGINES: usize = 100;
const CORES: usize = 8;
/// Pages of a round.
const PAGES: u64 = 20;
/// For the engines' first checks.
const PATIENCE: Duration = Duration::from_secs(30);

/// A page of [`ENGINES`] engines and [`CORES`] cores. All engines are one simulated one, by many addresses.
pub(super) fn through_the_admin_address(plan: Plan) -> Result<Timing, String> {
    let engine = Engine::start(EngineConfig::immediate(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let engine = engine.map_err(|error| format!("no engine: {error}"))?;
    let port = engine.local_addr().port();
    let mut text = "router: { scrape_interval: 10s }\nendpoints:\n".to_owned();
    for number in 1..=ENGINES {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  - {{ name: engine-{number}, url: 'http://127.0.0.{number}:{port}', model: sim }}");
    }
    let config = llmgw_config::from_text("server.yaml", &text, []).map_err(|error| error.to_string())?;
    let log = log::init(Format::Json, "error").map_err(|error| error.to_string())?;
    let mesh = Mesh::new(CORES, 1, LANE_CAPACITY).map_err(|error| error.to_string())?;
    let side = Side::start(SideSetup {
        config: Arc::new(config),
        file: None,
        board: Arc::new(Board::new(CORES, ENGINES)),
        prefixes: Arc::new(StampTable::new(0, Ledger::new(CORES, ENGINES))),
        cells: (0..CORES).map(|_| Arc::new(CoreCells::new())).collect(),
        feeds: (0..CORES).map(|_| Arc::new(Latest::default())).collect(),
        post: mesh.post(CORES),
        access: (0..CORES).map(|_| Arc::new(AccessRing::new(AccessLog::Failures.ring_capacity()))).collect(),
        readiness: Arc::new(Readiness::default()),
        sink: log.sink(),
        format: log.format(),
        admin: TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?,
        desk: None,
        usage: None,
    });
    let side = side.map_err(|error| error.to_string())?;
    let timing = read_pages(&side, plan);
    side.stop();
    engine.stop();
    timing
}

fn read_pages(side: &Side, plan: Plan) -> Result<Timing, String> {
    let failed = |error: std::io::Error| format!("the admin address: {error}");
    let begin = std::time::Instant::now();
    while side.handle().wait_first_round_blocking().0 < ENGINES as u32 {
        if begin.elapsed() > PATIENCE {
            return Err(format!("not all of {ENGINES} engines became ready within {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut reader = TcpStream::connect(side.handle().admin_addr()).map_err(failed)?;
    reader.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut buffer = Vec::new();
    let mut rounds = Vec::new();
    // One more, to warm up.
    for round in 0..=plan.rounds {
        let mut outcome = Ok(());
        let each = measure::wall_ns(PAGES, || {
            outcome = (0..PAGES).try_for_each(|_| read_page(&mut reader, &mut buffer));
        });
        outcome.map_err(failed)?;
        if round > 0 {
            rounds.push(each);
        }
    }
    Ok(measure::of_rounds(Clock::Wall, rounds))
}

fn read_page(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    let wrong = |what: &str| std::io::Error::other(what.to_owned());
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: bench\r\n\r\n")?;
    buffer.clear();
    let mut piece = [0; 64 << 10];
    let mut end = None;
    while end.is_none_or(|end| buffer.len() < end) {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(wrong("closed inside a page"));
        }
        buffer.extend_from_slice(&piece[..read]);
        if end.is_none() {
            end = page_end(buffer).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Where the page ends, once its head is there.
fn page_end(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let Some(head_bytes) = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..head_bytes]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok()).ok_or("a page without a length")?;
    Ok(Some(head_bytes + length))
}
