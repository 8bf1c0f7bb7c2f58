//! A core's own state: what all its connections share. Single-threaded; nothing in it is seen by another core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use llmgw_http::client::TcpConnector;
use llmgw_http::limits::ServerLimits;
use llmgw_http::pool::Pool;
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Wall;
use llmgw_router::access::{AccessLog, AccessRecord, AccessRing};
use llmgw_router::metrics::CoreCells;
use llmgw_router::readiness::Readiness;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::{Board, Dispatcher};
use llmgw_runtime::tcp::Tcp;
use llmgw_types::{BoardSlot, CoreId, RequestId};

use crate::setup::{CoreSetup, GatewaySettings};
use crate::snapshot::Tables;

/// Endpoints remembered as refusing `stream_options`; more are asked each time.
const REFUSING_MAX: usize = 1024;

/// What a core's connections share.
pub(crate) struct Core {
    pub(crate) id: CoreId,
    pub(crate) board: Arc<Board>,
    pub(crate) cells: Arc<CoreCells>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) settings: Arc<GatewaySettings>,
    pub(crate) limits: Rc<ServerLimits>,
    pub(crate) pool: Pool<Tcp>,
    pub(crate) connector: TcpConnector,
    pub(crate) dispatcher: RefCell<Dispatcher>,
    tables: RefCell<Option<Rc<Tables>>>,
    access: Arc<AccessRing>,
    chance: RefCell<Chance>,
    /// Endpoints that answered 400 to an option we added; asked without it from then on.
    refusing_usage: RefCell<Vec<BoardSlot>>,
    /// Answers end their connections.
    pub(crate) is_closing: Cell<bool>,
    /// Connections that are being served.
    pub(crate) connection_count: Cell<usize>,
}

impl Core {
    pub(crate) fn new(setup: &CoreSetup) -> Rc<Self> {
        let scheduler = Scheduler::new(Chance::from_system());
        Rc::new(Self {
            id: setup.id,
            board: setup.board.clone(),
            cells: setup.cells.clone(),
            readiness: setup.readiness.clone(),
            settings: setup.settings.clone(),
            limits: Rc::new(setup.settings.limits.clone()),
            pool: Pool::default(),
            connector: TcpConnector,
            dispatcher: RefCell::new(Dispatcher::new(setup.board.clone(), setup.id, scheduler)),
            tables: RefCell::new(None),
            access: setup.access.clone(),
            chance: RefCell::new(Chance::from_system()),
            refusing_usage: RefCell::new(Vec::new()),
            is_closing: Cell::new(false),
            connection_count: Cell::new(0),
        })
    }

    /// The tables requests begin with from now on; none before the first publication.
    pub(crate) fn tables(&self) -> Option<Rc<Tables>> {
        self.tables.borrow().clone()
    }

    /// Takes a newer publication.
    pub(crate) fn swap(&self, tables: Rc<Tables>) {
        let generation = tables.routes().generation.to_native();
        *self.tables.borrow_mut() = Some(tables);
        // Endpoints may have changed behind their slots; they are asked again.
        self.refusing_usage.borrow_mut().clear();
        self.board.set_generation(self.id, generation);
    }

    /// A fresh id.
    pub(crate) fn request_id(&self) -> RequestId {
        RequestId::new(Wall::now().0, self.id, self.chance.borrow_mut().next_u64())
    }

    /// Whether the endpoint refused `stream_options` before.
    pub(crate) fn refuses_usage(&self, slot: BoardSlot) -> bool {
        self.refusing_usage.borrow().contains(&slot)
    }

    /// Remembers that the endpoint refuses `stream_options`.
    pub(crate) fn remember_refusal(&self, slot: BoardSlot) {
        let mut refusing = self.refusing_usage.borrow_mut();
        if refusing.len() < REFUSING_MAX && !refusing.contains(&slot) {
            refusing.push(slot);
        }
    }

    /// Hands a record to the log, when it is one to be written. Loss: counted.
    pub(crate) fn record(&self, record: AccessRecord, is_failure: bool) {
        let is_written = is_failure || self.settings.access_log == AccessLog::All;
        if is_written && self.access.push(record).is_err() {
            self.cells.access_lines_lost.increment();
        }
    }

    /// Copies the pool's counts into this core's cells.
    pub(crate) fn publish_counts(&self) {
        let counts = self.pool.counts();
        let set = |gauge: &llmgw_obs::metric::Gauge, count: &Cell<u64>| {
            gauge.set(i64::try_from(count.get()).unwrap_or(i64::MAX))
        };
        set(&self.cells.upstream_opened, &counts.opened);
        set(&self.cells.upstream_reused, &counts.reused);
        set(&self.cells.upstream_stale, &counts.stale);
        set(&self.cells.upstream_retried, &counts.silent_retries);
    }
}
