//! A core's own state: what all its connections share. Single-threaded; nothing in it is seen by another core.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use llmgw_http::client::{EngineConnector, EngineIo};
use llmgw_http::head::RequestHead;
use llmgw_http::limits::ServerLimits;
use llmgw_http::pool::Pool;
use llmgw_http::tls::{TlsConfig, TlsServerConfig};
use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Wall;
use llmgw_router::access::{AccessLog, AccessRecord, AccessRing};
use llmgw_router::metrics::CoreCells;
use llmgw_router::readiness::Readiness;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::settings::Settings;
use llmgw_router::tenants::Tenants;
use llmgw_router::usage::UsageRing;
use llmgw_router::{Board, Dispatcher};
use llmgw_types::tenants::Caller;
use llmgw_types::{BoardSlot, CoreId, RequestId};

use crate::admission::Admission;
use crate::cut::Cut;
use crate::error::{ApiError, Reason};
use crate::evidence::Evidence;
use crate::identity::{self, Rights, Stranger};
use crate::lanes::Lanes;
use crate::limits::Limits;
use crate::prompt::Prompts;
use crate::sessions::Sessions;
use crate::setup::CoreSetup;
use crate::snapshot::Tables;

/// Endpoints remembered as refusing something that we add; more are asked each time.
const REFUSING_MAX: usize = 1024;

/// A field that we add to a client's body, and that some engines refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// `stream_options`.
    Usage,
    /// `priority`.
    Priority,
}

impl Added {
    /// The field's name, which an engine that refuses it quotes.
    pub(crate) const fn field(self) -> &'static [u8] {
        match self {
            Self::Usage => b"stream_options",
            Self::Priority => b"priority",
        }
    }
}

/// A core as a request sees it: what is shared, and the settings the request began with.
pub(crate) struct Core {
    shared: Rc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) limits: Rc<ServerLimits>,
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What a core's connections share.
pub(crate) struct Shared {
    pub(crate) id: CoreId,
    pub(crate) board: Arc<Board>,
    pub(crate) cells: Arc<CoreCells>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) pool: Pool<EngineIo>,
    pub(crate) connector: EngineConnector,
    pub(crate) dispatcher: RefCell<Dispatcher>,
    /// What is known of prompts.
    pub(crate) prompts: Prompts,
    /// To the other cores.
    pub(crate) lanes: Rc<Lanes>,
    /// Who waits for a place, and who gets one.
    pub(crate) admission: Admission,
    /// What tenants may use.
    pub(crate) limiter: Rc<Limits>,
    /// How engines answer.
    pub(crate) evidence: Evidence,
    /// Who has which session that is away, and which stored response.
    pub(crate) sessions: Sessions,
    tables: RefCell<Option<Rc<Tables>>>,
    /// Whether callers need a key.
    needs_keys: bool,
    /// Who may ask; none before the first publication.
    tenants: RefCell<Option<Arc<Tenants>>>,
    /// Whom to trust, by the slots of endpoints that are reached within TLS.
    tls: RefCell<Vec<Option<Arc<TlsConfig>>>>,
    /// How clients are spoken to within TLS; none: in plain text.
    client_tls: RefCell<Option<Arc<TlsServerConfig>>>,
    /// The newest settings.
    newest: RefCell<Arc<Settings>>,
    access: Arc<AccessRing>,
    access_log: AccessLog,
    /// Where records of what requests used go; none: nobody keeps them.
    pub(crate) usage: Option<Arc<UsageRing>>,
    chance: RefCell<Chance>,
    /// Endpoints that answered 400 to a field we added; asked without it from then on.
    refusing: RefCell<Vec<(BoardSlot, Added)>>,
    /// Answers end their connections.
    pub(crate) is_closing: Cell<bool>,
    /// What still runs is to end now.
    pub(crate) cut: Cut,
    /// Connections that are being served.
    pub(crate) connection_count: Cell<usize>,
}

impl Core {
    pub(crate) fn new(setup: &CoreSetup) -> Rc<Self> {
        let scheduler = Scheduler::new(Chance::from_system());
        let lanes = Rc::new(Lanes::new(setup.id, setup.core_count));
        let prompts = Prompts::new(setup.id, setup.board.clone(), setup.prefixes.clone(), &setup.seed);
        let dispatcher = Dispatcher::new(setup.board.clone(), setup.id, scheduler).with_table(prompts.table());
        let admission = Admission::new(lanes.clone(), setup.board.clone(), setup.cells.clone());
        let limiter = Limits::new(lanes.clone(), setup.cells.clone(), admission.on_kept());
        let shared = Shared {
            id: setup.id,
            board: setup.board.clone(),
            cells: setup.cells.clone(),
            readiness: setup.readiness.clone(),
            pool: Pool::default(),
            connector: EngineConnector,
            dispatcher: RefCell::new(dispatcher),
            prompts,
            admission,
            limiter,
            evidence: Evidence::new(lanes.clone(), setup.board.clone(), setup.cells.clone()),
            sessions: Sessions::new(lanes.clone(), setup.board.clone(), setup.cells.clone()),
            lanes,
            tables: RefCell::new(None),
            needs_keys: setup.tenants.is_some(),
            tenants: RefCell::new(None),
            tls: RefCell::new(Vec::new()),
            client_tls: RefCell::new(None),
            newest: RefCell::new(setup.settings.clone()),
            access: setup.access.clone(),
            access_log: setup.access_log,
            usage: setup.usage.clone(),
            chance: RefCell::new(Chance::from_system()),
            refusing: RefCell::new(Vec::new()),
            is_closing: Cell::new(false),
            cut: Cut::default(),
            connection_count: Cell::new(0),
        };
        Rc::new(Self::with(Rc::new(shared), setup.settings.clone()))
    }

    fn with(shared: Rc<Shared>, settings: Arc<Settings>) -> Self {
        let limits = Rc::new(server_limits(&settings));
        Self { shared, settings, limits }
    }

    /// This core with the newest settings: itself, unless they changed. Cost: two loads, no allocation then.
    pub(crate) fn current(self: Rc<Self>) -> Rc<Self> {
        // Compared before it is cloned: the count is shared by all cores.
        if Arc::ptr_eq(&self.newest.borrow(), &self.settings) {
            return self;
        }
        let newest = self.newest.borrow().clone();
        Rc::new(Self::with(self.shared.clone(), newest))
    }
}

impl Shared {
    /// How long an endpoint that fails now gets no requests.
    pub(crate) fn cooldown(&self) -> Duration {
        self.newest.borrow().cooldown
    }

    /// The tables requests begin with from now on; none before the first publication.
    pub(crate) fn tables(&self) -> Option<Rc<Tables>> {
        self.tables.borrow().clone()
    }

    /// Takes a newer publication.
    pub(crate) fn swap(&self, tables: Rc<Tables>) {
        let generation = tables.routes().generation.to_native();
        for (slot, config) in tables.tls() {
            let mut known = self.tls.borrow_mut();
            if known.len() <= slot.idx() {
                known.resize(slot.idx() + 1, None);
            }
            if let Some(place) = known.get_mut(slot.idx()) {
                *place = Some(config);
            }
        }
        *self.client_tls.borrow_mut() = tables.client_tls();
        *self.newest.borrow_mut() = tables.settings();
        self.evidence.keep_to(tables.routes());
        self.admission.recount(tables.routes());
        self.admission.keep_to(tables.routes());
        if self.tables.replace(Some(tables)).is_none() {
            self.readiness.core_serves();
        }
        // Endpoints may have changed behind their slots; they are asked again.
        self.refusing.borrow_mut().clear();
        self.board.set_generation(self.id, generation);
    }

    /// Takes a newer table of who may ask. What it replaces is freed by whoever published it.
    pub(crate) fn swap_tenants(&self, tenants: Arc<Tenants>) {
        let limits = tenants.limits.clone();
        *self.tenants.borrow_mut() = Some(tenants);
        self.limiter.keep_to(limits);
    }

    /// Who sends a request of that head; nobody where nobody is asked for a key.
    ///
    /// Errors: why it is not let in.
    pub(crate) fn identify(&self, head: &RequestHead, now: Wall) -> Result<Option<Caller>, Stranger> {
        if !self.needs_keys {
            return Ok(None);
        }
        let tenants = self.tenants.borrow();
        let tenants = tenants.as_ref().ok_or_else(no_tenants)?;
        let caller = identity::caller(tenants.snapshot.table(), head.headers(), now)?;
        tenants.note(self.id, caller.key, now);
        Ok(Some(caller))
    }

    /// Asks what a caller may by the table of this moment; all, where there is no caller.
    ///
    /// Errors: its key works no more; what `ask` says.
    pub(crate) fn with_rights<T>(
        &self,
        caller: Option<&Caller>,
        ask: impl FnOnce(Option<Rights<'_>>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let Some(caller) = caller else { return ask(None) };
        let tenants = self.tenants.borrow();
        let tenants = tenants.as_ref().ok_or_else(no_tenants)?;
        ask(Some(Rights::of(tenants.snapshot.table(), caller)?))
    }

    /// Whom to trust when connecting to the endpoint. A request that began with older tables finds the newest, too.
    pub(crate) fn tls(&self, slot: BoardSlot) -> Option<Arc<TlsConfig>> {
        self.tls.borrow().get(slot.idx())?.clone()
    }

    /// How a client that connects now is spoken to within TLS; none: in plain text.
    pub(crate) fn client_tls(&self) -> Option<Arc<TlsServerConfig>> {
        self.client_tls.borrow().clone()
    }

    /// A fresh id for a request that came `now`.
    pub(crate) fn request_id(&self, now: Wall) -> RequestId {
        RequestId::new(now.0, self.id, self.chance.borrow_mut().next_u64())
    }

    /// Whether the endpoint refused the field before.
    pub(crate) fn refuses(&self, slot: BoardSlot, added: Added) -> bool {
        self.refusing.borrow().contains(&(slot, added))
    }

    /// Remembers that the endpoint refuses the field.
    pub(crate) fn remember_refusal(&self, slot: BoardSlot, added: Added) {
        let mut refusing = self.refusing.borrow_mut();
        if refusing.len() < REFUSING_MAX && !refusing.contains(&(slot, added)) {
            refusing.push((slot, added));
        }
    }

    /// Hands a record to the log, when it is one to be written; it is made only then. Loss: counted.
    pub(crate) fn record(&self, record: impl FnOnce() -> AccessRecord, is_failure: bool) {
        let is_written = is_failure || self.access_log == AccessLog::All;
        if is_written && self.access.push(record()).is_err() {
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

fn no_tenants() -> ApiError {
    ApiError::new(Reason::NoEndpoint, "who may ask is not known yet")
}

fn server_limits(settings: &Settings) -> ServerLimits {
    let Settings { limits, timeouts, .. } = settings;
    ServerLimits {
        header_bytes: limits.header_bytes,
        headers: limits.headers,
        body_bytes: limits.body_bytes,
        client_header: timeouts.client_header,
        client_body: timeouts.client_body,
        client_idle: timeouts.client_idle,
    }
}
