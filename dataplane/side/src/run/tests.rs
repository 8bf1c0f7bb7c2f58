//! The whole side runtime over loopback, with engines that answer what they are told.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::OnceLock;

use llmgw_kit::clock::Mono;
use llmgw_obs::log::{Format, Log};
use llmgw_router::access::AccessRing;
use llmgw_router::board::Board;
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, StampTable};
use llmgw_runtime::mailbox::{Inbox, Latest, Mesh};
use llmgw_types::{BoardSlot, CoreId};

use super::*;
use crate::tiny_engine::{TinyEngine, list, serving};

pub(crate) fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| llmgw_obs::log::init(Format::Json, "warn").expect("the first in this process"))
}

pub(crate) struct World {
    pub side: Side,
    pub board: Arc<Board>,
    pub prefixes: Arc<StampTable>,
    feed: Arc<Latest<Feed>>,
    ring: Arc<AccessRing>,
    inbox: Option<Inbox<CoreMessage>>,
}

/// Endpoints as lines of the file; probes come often.
pub(crate) fn world(endpoints: &[String]) -> World {
    let text = format!("router: {{ scrape_interval: 20ms }}\nendpoints:\n{}", endpoints.concat());
    let config = llmgw_config::from_text("server.yaml", &text, [("ENGINE_KEY".to_owned(), "k-1".to_owned())]);
    let mesh = Mesh::new(1, 1, 16).expect("descriptors");
    let (board, feed, ring) = (Arc::new(Board::new(1, 8)), Arc::new(Latest::default()), Arc::new(AccessRing::new(8)));
    let prefixes = Arc::new(StampTable::new(1 << 16, Ledger::new(1, 8)));
    let side = Side::start(SideSetup {
        config: Arc::new(config.unwrap_or_else(|error| panic!("{error}"))),
        file: None,
        board: board.clone(),
        prefixes: prefixes.clone(),
        cells: vec![Arc::new(CoreCells::new())],
        feeds: vec![feed.clone()],
        post: mesh.post(1),
        access: vec![ring.clone()],
        readiness: Arc::new(Readiness::default()),
        sink: log().sink(),
        format: Format::Json,
        admin: std::net::TcpListener::bind("127.0.0.1:0").expect("a port"),
        desk: None,
        usage: None,
    });
    World { side: side.expect("started"), board, prefixes, feed, ring, inbox: Some(mesh.inbox(CoreId(0))) }
}

pub(crate) fn endpoint(name: &str, engine: &TinyEngine, more: &str) -> String {
    format!("  - {{ name: {name}, url: '{}', model: m{more} }}\n", engine.url())
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Mono::now();
    while !is_so() {
        assert!(Mono::now().since(start) < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::yield_now();
    }
}

impl World {
    pub(crate) fn is_ready(&self) -> bool {
        self.board.is_ready(BoardSlot(0))
    }

    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        raw(self.side.handle().admin_addr(), &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }
}

/// Status and body of whatever is answered to those bytes.
fn raw(addr: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).expect("the admin address accepts");
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[test]
fn the_first_table_is_there_when_the_start_returns_and_readiness_follows_the_engines() {
    let (one, two) = (TinyEngine::start(serving(&["m"])), TinyEngine::start(serving(&["m"])));
    two.answer(vec![("/health", 503, String::new())]);
    let world = world(&[endpoint("one", &one, ""), endpoint("two", &two, "")]);
    let feed = world.feed.take().expect("published before anything else");
    let table = feed.snapshot.table();
    assert_eq!((table.generation.to_native(), table.endpoints.len(), table.pools.len()), (1, 2, 1));
    assert_eq!(world.side.handle().wait_first_round_blocking(), (1, 2));
    let (status, body) = world.ask("/readyz");
    assert_eq!(status, 200);
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["endpoints_ready"], 1);
    assert_eq!((&body["endpoints_known"], &body["is_settling"]), (&2.into(), &false.into()));
    let (status, page) = world.ask("/metrics");
    assert_eq!(status, 200);
    assert!(page.contains("llmgw_endpoint_ready{replica=\"two\"} 0\n"), "{page}");
    assert!(page.contains("llmgw_replicas{model=\"m\",state=\"ready\"} 1\n"), "{page}");
}

#[test]
fn an_engine_that_is_up_and_still_loads_gets_nothing() {
    let engine = TinyEngine::start(serving(&[]));
    let world = world(&[endpoint("e", &engine, ", served_as: tiny")]);
    until("its list was read twice", || engine.asked("/v1/models") >= 2);
    assert!(!world.is_ready());
    assert_eq!(world.ask("/readyz").0, 503);
    assert_eq!(world.ask("/healthz").0, 200);
    engine.answer(serving(&["other"]));
    let seen = engine.asked("/v1/models");
    until("another name was read", || engine.asked("/v1/models") >= seen + 2);
    assert!(!world.is_ready());
    engine.answer(serving(&["other", "tiny"]));
    until("it is ready", || world.is_ready());
    // The board says so first, and the rest of the report is on its way.
    until("it is counted", || world.side.handle().endpoints() == (1, 1));
    let lists = engine.asked("/v1/models");
    let healths = engine.asked("/health");
    until("it was asked more", || engine.asked("/health") >= healths + 3);
    assert_eq!(engine.asked("/v1/models"), lists, "the list is read when it becomes ready only");
}

#[test]
fn an_engine_that_says_503_or_goes_away_is_withdrawn_and_taken_back() {
    let engine = TinyEngine::start(serving(&["m"]));
    let addr = engine.addr();
    let world = world(&[endpoint("e", &engine, "")]);
    until("it is ready", || world.is_ready());
    engine.answer(vec![("/health", 503, String::new()), ("/v1/models", 200, list(&["m"]))]);
    until("503 withdraws it", || !world.is_ready());
    engine.answer(serving(&["m"]));
    until("it is back", || world.is_ready());
    drop(engine);
    until("a closed port withdraws it", || !world.is_ready());
    until("it is counted out", || world.side.handle().endpoints() == (0, 1));
    let _again = TinyEngine::start_on(addr, serving(&["m"]));
    until("it was started again", || world.is_ready());
}

#[test]
fn probes_keep_one_connection_and_show_the_engines_key() {
    let engine = TinyEngine::start(serving(&["m"]));
    let world =
        world(&[endpoint("e", &engine, ", api_key_env: ENGINE_KEY, health_path: '/v1/models', metrics_path: off")]);
    until("it was asked ten times", || engine.asked("/v1/models") >= 10);
    assert!(world.is_ready());
    assert_eq!(engine.connections(), 1);
    let head = engine.last_head().to_lowercase();
    assert!(head.contains("authorization: bearer k-1"), "{head}");
    assert!(head.contains(&format!("host: {}", engine.addr())), "{head}");
}

#[test]
fn a_connection_the_engine_closed_is_replaced_and_the_engine_stays_ready() {
    let engine = TinyEngine::start(serving(&["m"]));
    let world = world(&[endpoint("e", &engine, "")]);
    until("it is ready", || world.is_ready());
    engine.be_curt();
    let before = engine.connections();
    until("it was asked over ten connections", || {
        assert!(world.is_ready());
        engine.connections() >= before + 10
    });
}

#[test]
fn an_engine_without_a_list_or_that_refuses_to_show_it_is_judged_by_its_health() {
    let too_long = "x".repeat(2 << 20);
    for (status, body) in [(404, "{}"), (401, "{}"), (200, "<html>"), (200, too_long.as_str())] {
        let engine = TinyEngine::start(vec![("/health", 200, String::new()), ("/v1/models", status, body.to_owned())]);
        let world = world(&[endpoint("e", &engine, "")]);
        until("health alone counts", || world.is_ready());
    }
}

#[test]
fn a_name_is_looked_up_and_the_table_published_again() {
    let engine = TinyEngine::start(serving(&["m"]));
    let world = world(&[format!("  - {{ name: e, url: 'http://localhost:{}', model: m }}\n", engine.addr().port())]);
    assert_eq!(world.side.handle().wait_first_round_blocking(), (1, 1));
    let mut newest = None;
    until("the address was published", || {
        newest = world.feed.take().or(newest.take());
        newest.as_ref().is_some_and(|feed| feed.snapshot.table().endpoints[0].addr.is_some())
    });
    assert_eq!(newest.map(|feed| feed.snapshot.table().generation.to_native()), Some(2));
}

#[test]
fn the_way_out_is_told_to_cores_in_order_and_to_the_balancer_first() {
    let engine = TinyEngine::start(serving(&["m"]));
    let mut world = world(&[endpoint("e", &engine, "")]);
    until("it is ready", || world.is_ready());
    let inbox = world.inbox.take().expect("once");
    world.side.handle().settle();
    let (status, body) = world.ask("/readyz");
    assert_eq!(status, 503);
    assert!(body.contains("\"is_settling\":true"), "{body}");
    world.side.handle().drain();
    world.side.handle().cut();
    world.side.handle().settle();
    let told = llmgw_runtime::run_local(async move {
        let mut mailbox = inbox.open().expect("a descriptor");
        let mut told = Vec::new();
        while told.last() != Some(&CoreMessage::Cut) {
            let mut more = Vec::new();
            mailbox.receive(&mut more).await;
            told.append(&mut more);
        }
        told
    });
    assert_eq!(told, [CoreMessage::FeedReady, CoreMessage::Settle, CoreMessage::Drain, CoreMessage::Cut]);
    assert!(!world.side.is_finished());
    world.side.stop();
}

#[test]
fn the_end_empties_the_rings() {
    let engine = TinyEngine::start(serving(&["m"]));
    let world = world(&[endpoint("e", &engine, "")]);
    world.side.handle().wait_first_round_blocking();
    let ring = world.ring.clone();
    let handle = world.side.handle().clone();
    let record = crate::access::tests::record(1, Some(0));
    (0..8).for_each(|_| ring.push(record).expect("room"));
    world.side.stop();
    assert!(ring.is_empty());
    assert_eq!(handle.wait_first_round_blocking(), (1, 1), "asking after the end does not hang");
    assert!(TcpStream::connect(handle.admin_addr()).is_err());
}

#[test]
fn the_admin_address_refuses_what_it_does_not_know_and_survives_what_is_not_http() {
    let engine = TinyEngine::start(serving(&["m"]));
    let world = world(&[endpoint("e", &engine, "")]);
    let addr = world.side.handle().admin_addr();
    for path in ["/", "/admin", "/metrics/", "//metrics", "/%6detrics", "/healthz/../metrics"] {
        let (status, body) = world.ask(path);
        assert_eq!(status, 404, "{path}");
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["error"]["code"], "not_found");
    }
    let close = "Host: x\r\nConnection: close\r\n";
    assert_eq!(raw(addr, &format!("POST /metrics HTTP/1.1\r\n{close}Content-Length: 0\r\n\r\n")).0, 405);
    assert_eq!(raw(addr, &format!("HEAD /healthz HTTP/1.1\r\n{close}\r\n")), (200, String::new()));
    let long = "x".repeat(64 << 10);
    assert_eq!(raw(addr, &format!("GET /healthz HTTP/1.1\r\n{close}X: {long}\r\n\r\n")).0, 431);
    let many = "X: y\r\n".repeat(200);
    assert_eq!(raw(addr, &format!("GET /healthz HTTP/1.1\r\n{close}{many}\r\n")).0, 431);
    assert_eq!(raw(addr, "\u{0}\u{1}\r\n\r\n").0, 400);
    assert_eq!(world.ask("/healthz").0, 200);
}
