//! One real core on a thread of its own, behind it a simulated engine, before it keep-alive clients.
//!
//! Keys are on, and each request comes with one. Both tables are made by hand and published once: there is no side
//! runtime whose probes could publish again while allocations are counted. Connections are opened once and live as long
//! as the rig.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use llmgw_gateway::CoreSetup;
use llmgw_kit::chance::Chance;
use llmgw_router::Board;
use llmgw_router::access::{AccessLog, AccessRing};
use llmgw_router::admission::publish_room;
use llmgw_router::feed::Feed;
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::prefix::{Ledger, Seed, StampTable};
use llmgw_router::quota::build::{Builder, Facts};
use llmgw_router::readiness::Readiness;
use llmgw_router::settings::{Limits, Settings, Timeouts};
use llmgw_router::tenants::{Kept, Tenants};
use llmgw_router::usage::{self, UsageRing};
use llmgw_runtime::cores;
use llmgw_runtime::driver::Driver;
use llmgw_runtime::mailbox::{LANE_CAPACITY, Latest, Mesh, Post};
use llmgw_tenancy::KeyHash;
use llmgw_test_kit::raw::{Connection, End};
use llmgw_test_kit::{Engine, gateway};
use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
use llmgw_types::snapshot::{Endpoint, Member, ModelName, ModelRoute, Placement, PrefixSpec, ProfileSpec, Units};
use llmgw_types::tenants::{ArchivedLevel, ArchivedPeriod, Limits as TenantLimits};
use llmgw_types::tenants::{Budget, Key, Level, LevelKind, NEVER, Period, Project, Secret};
use llmgw_types::{
    BandRank, BoardSlot, CoreId, EngineKind, Pool, PoolSlot, RouteTable, Snapshot, TenantSnapshot, TenantTable,
};

use crate::counter;

/// Clients that send at once, wait for all answers, and send again.
const CLIENTS: usize = 8;
/// Longer than any test: no connection is given up for its age, and no request for its length.
const LONG: Duration = Duration::from_secs(600);

pub(crate) struct Rig {
    clients: Vec<Connection>,
    post: Post<CoreMessage>,
    core: JoinHandle<io::Result<()>>,
    _engine: Engine,
}

impl Rig {
    /// Starts engine and core and connects the clients.
    pub(crate) fn start(driver: Driver) -> Self {
        let engine = Engine::local_with(|cfg| {
            cfg.keep_alive_ms = 0;
            cfg.recorded_requests_max = 1;
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let addr = listener.local_addr().expect("its address");
        let mesh = Mesh::new(1, 1, LANE_CAPACITY).expect("lanes");
        let board = Arc::new(Board::new(1, 4));
        // Far more than there are clients: the gate is looked at, and passed.
        let _ = publish_room(&board, PoolSlot(0), [(BandRank(1), 1 << 20)]);
        board.set_ready(BoardSlot(0), true);
        let settings = Arc::new(settings());
        let feed = Arc::new(Latest::default());
        let snapshot = Snapshot::of(&table(&engine)).expect("a table that fits together");
        feed.put(Arc::new(Feed { snapshot, trust: vec![None], client_tls: None, settings: settings.clone() }));
        let tenants = Arc::new(Latest::default());
        tenants.put(publication());
        let readiness = Arc::new(Readiness::default());
        readiness.set_endpoints(1, 1);
        let setup = CoreSetup {
            id: CoreId(0),
            listeners: vec![listener],
            inbox: mesh.inbox(CoreId(0)),
            post: mesh.post(0),
            core_count: 1,
            feed,
            tenants: Some(tenants),
            board,
            prefixes: Arc::new(StampTable::new(1 << 16, Ledger::new(1, 4))),
            seed: Seed::drawn(&mut Chance::seeded(1)),
            cells: Arc::new(CoreCells::default()),
            access: Arc::new(AccessRing::new(AccessLog::default().ring_capacity())),
            usage: Some(Arc::new(UsageRing::new(usage::RING_CAPACITY))),
            readiness,
            settings,
            access_log: AccessLog::default(),
        };
        let main = |setup| {
            counter::mark_this_thread();
            llmgw_gateway::run(setup)
        };
        let cpu = cores::usable_cpus()[0];
        let core = cores::spawn_cores(&[cpu], driver, [setup], main).expect("a thread").remove(0);
        let clients = (0..CLIENTS).map(|_| Connection::open(addr).expect("a connection")).collect();
        Self { clients, post: mesh.post(1), core, _engine: engine }
    }

    /// Sends `request` on every client, reads every answer whole, and again until there were `count`.
    pub(crate) fn ask(&mut self, request: &[u8], count: usize) {
        for _ in 0..count.div_ceil(CLIENTS) {
            self.clients.iter_mut().for_each(|client| client.send(request).expect("sent"));
            for client in &mut self.clients {
                let reply = client.reply().expect("an answer");
                assert_eq!((reply.status, reply.end), (200, End::Complete), "{}", reply.text());
            }
        }
    }

    /// Ends the core in order.
    pub(crate) fn stop(mut self) {
        drop(self.clients);
        self.post.send_or_keep(CoreId(0), CoreMessage::Drain);
        self.core.join().expect("no panic").expect("an orderly end");
    }
}

fn settings() -> Settings {
    Settings {
        limits: Limits { header_bytes: 64 << 10, headers: 100, body_bytes: 1 << 20 },
        timeouts: Timeouts {
            connect: LONG,
            first_token: LONG,
            between_events: LONG,
            total: LONG,
            drain: Duration::from_secs(10),
            client_header: LONG,
            client_body: LONG,
            client_idle: LONG,
        },
        retries: 2,
        cooldown: Duration::from_secs(5),
        inject_usage: true,
    }
}

/// Nothing was spent, and periods never end.
pub(crate) struct Unspent;

impl Facts for Unspent {
    fn edges(&mut self, _zone: &str, _period: ArchivedPeriod) -> Vec<u32> {
        vec![0]
    }

    fn spent(&mut self, _row: u32, _level: &ArchivedLevel, _since: u32) -> i64 {
        0
    }

    fn now(&self) -> u32 {
        1
    }
}

fn publication() -> Arc<Tenants> {
    let snapshot = keys();
    let limits = Builder::default().build(snapshot.table(), &mut Unspent);
    Kept::new(1).publication(snapshot, Arc::new(limits))
}

/// What every client shows.
pub(crate) const KEY: &str = "sk-llmgw-of-the-allocations-test";

/// Two keys, of which one is shown: with a band, a profile and a list of models, so that all of them are looked up.
fn keys() -> TenantSnapshot {
    let key = |id: &str| Key {
        expires_at: NEVER - 1,
        band: Some("default".into()),
        profile: Some("chat".into()),
        allowlist: Some(0),
        levels: vec![0],
        limits_version: 1,
        ..Key::plain(id)
    };
    // Every kind of limit, far from being reached.
    let far = Some(1 << 40);
    let budget = Budget { micros: 1 << 50, period: Period::Month, time_zone: "UTC".into() };
    let level = Level {
        kind: LevelKind::Project,
        scope_id: "proj-1".into(),
        model: None,
        organization: 0,
        limits: TenantLimits { rpm: far, tpm: far, parallel: far, budget: Some(budget) },
    };
    let table = TenantTable {
        keys: vec![key("key-other"), key("key-shown")],
        projects: vec![Project { id: "proj-1".into(), path: "a/b/c".into(), organization: 0 }],
        levels: vec![level],
        allowlists: vec![vec![gateway::MODEL.into()]],
        ..TenantTable::default()
    };
    let secret = |text: &str, key| Secret { digest: KeyHash::of(text.as_bytes()).0, key, ends_at: NEVER };
    TenantSnapshot::of(&table.with_secrets(vec![secret("other", 0), secret(KEY, 1)])).expect("a table of keys")
}

/// One model on one endpoint, with the default profile.
fn table(engine: &Engine) -> RouteTable {
    let scorers = [("cost", 4.0)];
    RouteTable {
        generation: 1,
        stale_after_ms: 6000,
        endpoints: vec![Endpoint {
            name: "engine-0".into(),
            slot: 0,
            addr: Some(engine.addr().into()),
            host: engine.addr().to_string(),
            authorization: None,
            engine: EngineKind::Sim,
            weight: 100,
            idle_limit_ms: u32::MAX,
            queue_order: QueueOrder::default(),
        }],
        pools: vec![Pool {
            model: 0,
            label: "none/none".into(),
            priority: 100,
            metric_row: 1,
            slot: 0,
            gate: 1,
            thresholds: Thresholds::default(),
            prefix: Some(PrefixSpec::default()),
            members: vec![Member { endpoint: 0, served_as: gateway::MODEL.into() }],
        }],
        models: vec![ModelRoute {
            name: gateway::MODEL.into(),
            created: 0,
            pools: vec![0],
            profile: 0,
            placement: Placement::default(),
            admission: Admission::default(),
            fallbacks: Vec::new(),
            budget_fallback: None,
            units: Units::default(),
        }],
        names: vec![ModelName { name: gateway::MODEL.into(), model: 0 }],
        profiles: vec![ProfileSpec {
            name: "chat".into(),
            scorers: scorers.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            picker: "p2c".into(),
            temperature: 0.0,
        }],
    }
}
