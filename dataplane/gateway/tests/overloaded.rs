//! A core whose requests would wait at another that does not hear: what the lane between them has no room for is told
//! so at once, over sockets; what is in the lane waits.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use llmgw_gateway::CoreSetup;
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::feed::Feed;
use llmgw_router::message::{CoreMessage, Refusal};
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, Seed, StampTable};
use llmgw_router::settings::{Limits, Settings, Timeouts};
use llmgw_runtime::mailbox::{Latest, Mesh};
use llmgw_runtime::owner::owner_of;
use llmgw_types::admission::{Admission, Band, QueueOrder, Thresholds};
use llmgw_types::snapshot::{Endpoint, Member, ModelName, ModelRoute, Placement, Pool, ProfileSpec, Units};
use llmgw_types::{BoardSlot, CoreId, EngineKind, RouteTable, Snapshot};

/// Messages that the lane to the other core holds.
const LANE: usize = 3;
const WITHIN: Duration = Duration::from_secs(10);

/// One model, whose queue the second of two cores keeps.
fn table() -> RouteTable {
    let gate = u64::MAX;
    assert_eq!(owner_of(gate, 2), CoreId(1));
    let band = Band { name: "b".into(), priority: 1, metric_row: 0, saturation_ceiling: 1.0, capacity_share: 1.0 };
    RouteTable {
        generation: 1,
        endpoints: vec![Endpoint {
            name: "e".into(),
            slot: 0,
            addr: Some(([127, 0, 0, 1], 9).into()),
            host: String::new(),
            authorization: None,
            engine: EngineKind::Sim,
            weight: 100,
            idle_limit_ms: 4000,
            queue_order: QueueOrder::default(),
        }],
        pools: vec![Pool {
            model: 0,
            label: "none/unknown".into(),
            priority: 1,
            metric_row: 1,
            slot: 0,
            gate,
            thresholds: Thresholds::default(),
            prefix: None,
            members: vec![Member { endpoint: 0, served_as: "m".into() }],
        }],
        models: vec![ModelRoute {
            name: "m".into(),
            created: 0,
            pools: vec![0],
            profile: 0,
            placement: Placement::default(),
            admission: Admission { bands: vec![band], ..Admission::default() },
            fallbacks: vec![],
            budget_fallback: None,
            units: Units::default(),
        }],
        names: vec![ModelName { name: "m".into(), model: 0 }],
        profiles: vec![ProfileSpec { name: "p".into(), scorers: vec![], picker: "p2c".into(), temperature: 0.0 }],
        ..RouteTable::default()
    }
}

fn settings() -> Settings {
    Settings {
        limits: Limits { header_bytes: 1 << 14, headers: 100, body_bytes: 1 << 20 },
        timeouts: Timeouts {
            connect: WITHIN,
            first_token: WITHIN,
            between_events: WITHIN,
            total: WITHIN * 6,
            drain: Duration::ZERO,
            client_header: WITHIN,
            client_body: WITHIN,
            client_idle: WITHIN,
        },
        retries: 0,
        cooldown: Duration::ZERO,
        inject_usage: false,
    }
}

fn ask(addr: SocketAddr) -> TcpStream {
    let body = r#"{"model":"m","messages":[]}"#;
    let mut stream = TcpStream::connect(addr).expect("a connection");
    stream.set_read_timeout(Some(WITHIN)).expect("a limit");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("sent");
    stream
}

fn reply(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer and an end");
    text
}

#[test]
fn what_a_lane_has_no_room_for_is_refused_at_once_and_the_rest_waits() {
    let mesh = Mesh::<CoreMessage>::new(2, 0, LANE).expect("descriptors");
    let board = Arc::new(Board::new(2, 1));
    board.set_ready(BoardSlot(0), true);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let addr = listener.local_addr().expect("bound");
    let (cells, feed, settings) = (Arc::<CoreCells>::default(), Arc::<Latest<Feed>>::default(), Arc::new(settings()));
    let snapshot = Snapshot::of(&table()).expect("a table");
    feed.put(Arc::new(Feed { snapshot, trust: vec![None], client_tls: None, settings: settings.clone() }));
    let setup = CoreSetup {
        id: CoreId(0),
        listeners: vec![listener],
        inbox: mesh.inbox(CoreId(0)),
        post: mesh.post(0),
        core_count: 2,
        feed,
        tenants: None,
        prefixes: Arc::new(StampTable::new(64, Ledger::new(2, board.slot_count()))),
        board,
        seed: Seed::drawn(&mut Chance::seeded(1)),
        cells: cells.clone(),
        access: Arc::new(AccessRing::new(64)),
        usage: None,
        readiness: Arc::default(),
        settings,
        access_log: AccessLog::All,
    };
    // The other core is not there at all: nobody takes anything out of the lane.
    let core = thread::spawn(|| llmgw_runtime::run_local(llmgw_gateway::run(setup)));

    let bands = || cells.bands.at(RowIdx::OTHER);
    let waiting: Vec<_> = (0..LANE).map(|_| ask(addr)).collect();
    let began = Mono::now();
    while bands().waiting.value() < LANE as i64 {
        assert!(Mono::now().since(began) < WITHIN, "{} wait", bands().waiting.value());
        thread::yield_now();
    }
    for _ in 0..2 {
        let text = reply(ask(addr));
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("\"code\":\"overloaded\""), "{text}");
        assert!(text.contains("\r\nretry-after: 1\r\n"), "{text}");
    }
    let row = Refusal::ALL.iter().position(|refusal| *refusal == Refusal::Overloaded).expect("a reason");
    assert_eq!((bands().rejected[row].value(), bands().waiting.value()), (2, LANE as i64));

    let mut other = mesh.post(1);
    other.try_send(CoreId(0), CoreMessage::Drain).expect("room");
    for stream in waiting {
        let text = reply(stream);
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("shutting_down"), "{text}");
    }
    core.join().expect("no panic").expect("an orderly end");
    assert_eq!(bands().waiting.value(), 0);
}
