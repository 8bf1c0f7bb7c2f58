//! Configuration and addresses to a route table, and to the names that pages and logs show.
//!
//! Called by `publish` for every publication. Decides rows, slots and order; does no I/O and reads no clock.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use llmgw_config::server::Scheduling;
use llmgw_config::url::{EngineUrl, Scheme};
use llmgw_config::{
    EndpointConfig, ModelConfig, PlacementConfig, PrefixConfig, RoutingProfileConfig, ScoreConfig, ServerConfig,
    ThresholdsConfig,
};
use llmgw_engines::kind::engine;
use llmgw_obs::rows::{RowIdx, RowNames};
use llmgw_router::board::{Board, SlotBook};
use llmgw_router::metrics::{BAND_ROWS_MAX, POOL_ROWS_MAX};
use llmgw_router::scheduler::registry;
use llmgw_types::admission::{Admission, Band, QueueOrder, Thresholds};
use llmgw_types::snapshot::{
    Endpoint, EngineAddr, Member, ModelName, ModelRoute, Placement, PrefixSpec, ProfileSpec, SessionSpec,
};
use llmgw_types::{BoardSlot, EngineKind, Pool, PoolKey, RouteTable, Snapshot};

use self::gates::GateBook;

mod gates;

/// The picker of profiles whose own is not there; no model can be routed by one of those.
const PICKER: &str = "p2c";

/// The scorer of profiles by cost.
const BY_COST: &str = "cost";

/// Samples count for so many scrape intervals.
const STALE_INTERVALS: u32 = 3;

/// What host names mean: no entry while a name was not looked up yet, none where it never resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addrs(pub HashMap<String, Option<IpAddr>>);

impl Addrs {
    /// Where to connect, and how, if that is known. Written addresses and sockets need no entry.
    pub fn of(&self, url: &EngineUrl) -> Option<EngineAddr> {
        if url.scheme == Scheme::Unix {
            return Some(EngineAddr::Unix(url.host.clone()));
        }
        let ip = literal(url).or_else(|| self.0.get(&url.host).copied().flatten())?;
        let addr = SocketAddr::new(ip, url.port);
        Some(match url.scheme {
            Scheme::Https => EngineAddr::Tls(addr, url.host.clone()),
            _ => EngineAddr::Tcp(addr),
        })
    }

    /// Whether there is nothing to look up, or it was looked up at least once.
    pub fn was_tried(&self, url: &EngineUrl) -> bool {
        url.scheme == Scheme::Unix || literal(url).is_some() || self.0.contains_key(&url.host)
    }
}

/// The address that stands in the URL in place of a name.
pub(crate) fn literal(url: &EngineUrl) -> Option<IpAddr> {
    url.host.parse().ok()
}

/// Why no table could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoardFull {
    /// More endpoints than the board has columns.
    #[error("no room for endpoint {endpoint:?}: the load board holds {slots} endpoints, those just removed included")]
    Endpoints {
        /// The first that found no room.
        endpoint: String,
        /// The board's size.
        slots: usize,
    },
    /// More pools than the board has columns.
    #[error("no room for pool {pool:?}: the load board holds {slots} pools, those just removed included")]
    Pools {
        /// The first that found no room.
        pool: String,
        /// The board's size.
        slots: usize,
    },
}

/// What outlives a publication: who holds which slot, which row counts what, how many tables there were.
///
/// Owner: the publisher. Invariant: an endpoint keeps its slot as long as its name and URL do, and a model and pool
/// keep their row as long as the process lives.
pub struct Book {
    slots: SlotBook<BoardSlot>,
    held: HashMap<String, Held>,
    /// By slot, also after its endpoint left: a record that is late still finds its name.
    slot_names: HashMap<BoardSlot, Arc<str>>,
    gates: GateBook,
    rows: RowNames<2>,
    /// Of model and band.
    band_rows: RowNames<2>,
    generation: u64,
    created: u64,
}

/// The slot of an endpoint, and the engine it stands for.
struct Held {
    slot: BoardSlot,
    url: EngineUrl,
}

impl Book {
    /// An empty book for a board. `created` is what models are said to exist since, in unix seconds.
    pub fn new(board: &Board, created: u64) -> Self {
        Self {
            slots: SlotBook::new(board.slot_count()),
            held: HashMap::new(),
            slot_names: HashMap::new(),
            gates: GateBook::new(),
            rows: RowNames::new(POOL_ROWS_MAX),
            band_rows: RowNames::new(BAND_ROWS_MAX),
            generation: 0,
            created,
        }
    }

    /// The slot an endpoint of the last table holds.
    pub fn slot(&self, endpoint: &str) -> Option<BoardSlot> {
        self.held.get(endpoint).map(|held| held.slot)
    }

    /// All or nothing: with an error nobody's slot has changed.
    fn assign(&mut self, endpoints: &[EndpointConfig], board: &Board, generation: u64) -> Result<(), BoardFull> {
        let is_held = |held: &HashMap<String, Held>, endpoint: &EndpointConfig| {
            held.get(&endpoint.name).is_some_and(|held| held.url == endpoint.url)
        };
        let newcomers: Vec<_> = endpoints.iter().filter(|endpoint| !is_held(&self.held, endpoint)).collect();
        let free = self.slots.free_count(board);
        if let Some(first) = newcomers.get(free) {
            return Err(BoardFull::Endpoints { endpoint: first.name.clone(), slots: board.slot_count() });
        }
        let wanted: HashMap<&str, &EngineUrl> =
            endpoints.iter().map(|endpoint| (endpoint.name.as_str(), &endpoint.url)).collect();
        let slots = &mut self.slots;
        self.held.retain(|name, held| {
            let stays = wanted.get(name.as_str()) == Some(&&held.url);
            if !stays {
                // Cores that still work with the older table send it nothing from here on.
                board.endpoint(held.slot).set_draining(true);
                slots.leave(held.slot, generation);
            }
            stays
        });
        for endpoint in newcomers {
            let slot = self
                .slots
                .take(board)
                .ok_or_else(|| BoardFull::Endpoints { endpoint: endpoint.name.clone(), slots: board.slot_count() })?;
            self.held.insert(endpoint.name.clone(), Held { slot, url: endpoint.url.clone() });
            self.slot_names.insert(slot, Arc::from(endpoint.name.as_str()));
        }
        Ok(())
    }
}

/// A pool while its members are gathered.
struct PoolDraft {
    key: PoolKey,
    /// The highest among its members'.
    priority: i32,
    members: Vec<Member>,
}

/// The route table of a configuration: endpoints in the order of the file, each model's pools by falling priority
/// (those of equal priority in the order of the file), names sorted.
///
/// Errors: more endpoints than the board has slots. The generation then stays as it was.
pub fn table(config: &ServerConfig, addrs: &Addrs, book: &mut Book, board: &Board) -> Result<RouteTable, BoardFull> {
    let generation = book.generation + 1;
    let drafts = gather(config);
    let gates = gates::plan(config, &drafts);
    book.gates.check_room(&gates, board)?;
    book.assign(&config.endpoints, board, generation)?;
    book.gates.assign(&gates, board, generation);
    book.generation = generation;
    let mut table = RouteTable {
        generation,
        endpoints: config.endpoints.iter().map(|endpoint| endpoint_row(endpoint, addrs, book)).collect(),
        profiles: config.router.profiles.iter().map(profile_row).collect(),
        stale_after_ms: millis(config.router.scrape_interval * STALE_INTERVALS),
        ..RouteTable::default()
    };
    for ((model, mut drafts), gates) in config.models.iter().zip(drafts).zip(gates) {
        let row = row(table.models.len());
        let mut drafts: Vec<_> = drafts.drain(..).zip(gates).collect();
        drafts.sort_by_key(|(draft, _)| Reverse(draft.priority));
        let mut pools = Vec::with_capacity(drafts.len());
        for (draft, gate) in drafts {
            pools.push(self::row(table.pools.len()));
            let label = draft.key.label();
            let metric_row = book.rows.row([&model.name, &label]).0;
            // The order was decided on the signed number; below zero there is nothing left to tell apart.
            let priority = u32::try_from(draft.priority).unwrap_or(0);
            let prefix = model.placement.prefix_on(&draft.key.gpu_class).map(prefix);
            let thresholds = thresholds(&model.admission.thresholds_on(&draft.key.gpu_class));
            let slot = book.gates.slot(&gate).map_or(0, |slot| slot.0);
            table.pools.push(Pool {
                model: row,
                label,
                priority,
                metric_row,
                slot,
                gate: gate.hash(),
                thresholds,
                prefix,
                members: draft.members,
            });
        }
        let profile = config.router.profiles.iter().position(|profile| profile.name == model.routing_profile);
        let profile = self::row(profile.unwrap_or(0));
        let at = |name: &String| config.models.iter().position(|other| other.name == *name).map(self::row);
        table.models.push(ModelRoute {
            name: model.name.clone(),
            created: book.created,
            pools,
            profile,
            placement: placement(&model.placement),
            admission: admission(model, book),
            fallbacks: model.fallbacks.iter().filter_map(at).collect(),
            budget_fallback: model.budget_fallback.as_ref().and_then(at),
            units: model.units,
        });
        let names = std::iter::once(&model.name).chain(&model.aliases);
        table.names.extend(names.map(|name| ModelName { name: name.clone(), model: row }));
    }
    table.names.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(table)
}

/// Each model's pools, in the order of the configuration's models.
fn gather(config: &ServerConfig) -> Vec<Vec<PoolDraft>> {
    let rows: HashMap<&str, usize> =
        config.models.iter().zip(0..).map(|(model, at)| (model.name.as_str(), at)).collect();
    let mut drafts: Vec<Vec<PoolDraft>> = config.models.iter().map(|_| Vec::new()).collect();
    for (at, endpoint) in config.endpoints.iter().enumerate() {
        for served in &endpoint.models {
            let Some(pools) = rows.get(served.name.as_str()).and_then(|row| drafts.get_mut(*row)) else { continue };
            let member = Member { endpoint: row(at), served_as: served.served_as.clone() };
            let is_its = |draft: &&mut PoolDraft| {
                draft.key.fabric == endpoint.fabric && draft.key.gpu_class == endpoint.gpu_class
            };
            match pools.iter_mut().find(is_its) {
                Some(draft) => {
                    draft.priority = draft.priority.max(endpoint.priority);
                    draft.members.push(member);
                }
                None => pools.push(PoolDraft {
                    key: PoolKey {
                        model: served.name.clone(),
                        fabric: endpoint.fabric.clone(),
                        gpu_class: endpoint.gpu_class.clone(),
                    },
                    priority: endpoint.priority,
                    members: vec![member],
                }),
            }
        }
    }
    drafts
}

fn endpoint_row(endpoint: &EndpointConfig, addrs: &Addrs, book: &Book) -> Endpoint {
    let idle_limit = engine(endpoint.engine).pool_idle_limit();
    Endpoint {
        name: endpoint.name.clone(),
        slot: book.slot(&endpoint.name).map_or(0, |slot| slot.0),
        addr: addrs.of(&endpoint.url),
        host: endpoint.host_header.clone(),
        authorization: authorization(endpoint),
        engine: endpoint.engine,
        weight: endpoint.weight,
        idle_limit_ms: millis(idle_limit),
        queue_order: queue_order(endpoint),
    }
}

/// The `Authorization` field the engine wants, if it wants one.
pub(crate) fn authorization(endpoint: &EndpointConfig) -> Option<String> {
    endpoint.api_key.as_ref().map(|key| format!("Bearer {}", key.expose()))
}

fn profile_row(profile: &RoutingProfileConfig) -> ProfileSpec {
    let scorers = match &profile.score {
        // What the cost weighs is told as its weight.
        ScoreConfig::Cost { w_overlap } => vec![(BY_COST.to_owned(), *w_overlap as f32)],
        ScoreConfig::Weighted(weights) => weights
            .iter()
            .filter(|(name, _)| registry::scorer(name).is_some())
            .map(|(name, weight)| (name.clone(), *weight as f32))
            .collect(),
    };
    let picker = registry::picker(profile.picker.kind.word()).map_or(PICKER, |picker| picker.name());
    let temperature = profile.picker.temperature as f32;
    ProfileSpec { name: profile.name.clone(), scorers, picker: picker.to_owned(), temperature }
}

fn placement(placement: &PlacementConfig) -> Placement {
    let session = placement.session.as_ref();
    Placement {
        session: session
            .map(|session| SessionSpec { header: session.header.clone(), load_factor: session.load_factor as f32 }),
    }
}

fn prefix(prefix: PrefixConfig) -> PrefixSpec {
    PrefixSpec {
        cache_threshold: prefix.cache_threshold as f32,
        balance_abs: prefix.balance_abs_threshold as f32,
        balance_rel: prefix.balance_rel_threshold as f32,
    }
}

fn thresholds(thresholds: &ThresholdsConfig) -> Thresholds {
    Thresholds {
        target_waiting: thresholds.target_waiting_per_replica,
        kv_ceiling: thresholds.kv_ceiling as f32,
        kv_by_band: thresholds.kv_by_band,
    }
}

fn admission(model: &ModelConfig, book: &mut Book) -> Admission {
    let admission = &model.admission;
    let bands = admission.bands.iter().map(|band| Band {
        metric_row: book.band_rows.row([&model.name, &band.name]).0,
        name: band.name.clone(),
        priority: band.priority,
        saturation_ceiling: band.saturation_ceiling,
        capacity_share: band.capacity_share,
    });
    Admission {
        queue_ttl_ms: millis(admission.queue_ttl),
        heartbeat_ms: millis(admission.heartbeat),
        queue_capacity_per_band: admission.queue_capacity_per_band,
        queue_capacity_total: admission.queue_capacity_total,
        queue_bytes_max: admission.queue_bytes_max,
        bands: bands.collect(),
    }
}

/// Who is told a request's priority, and which way round its engine counts.
fn queue_order(endpoint: &EndpointConfig) -> QueueOrder {
    match (endpoint.scheduling, endpoint.engine) {
        (Scheduling::Fifo, _) | (_, EngineKind::LlamaCpp) => QueueOrder::Arrival,
        (Scheduling::Priority, EngineKind::Sglang) => QueueOrder::HighestFirst,
        (Scheduling::Priority, EngineKind::Vllm | EngineKind::Sim) => QueueOrder::LowestFirst,
    }
}

/// Times in the configuration are a year at most; a longer one is cut to 49 days, which is as good as none.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Rows are counted in 32 bits; configurations are bounded far below.
fn row(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The newest table and its names, for pages and logs.
#[derive(Debug, Default)]
pub struct View {
    /// The table's number.
    pub generation: u64,
    /// Endpoints, sorted by name.
    pub replicas: Vec<(String, BoardSlot)>,
    /// Models, sorted by name, with the slots of the endpoints that serve them, each once.
    pub models: Vec<(String, Vec<BoardSlot>)>,
    /// Rows that the table counts in, `other` first, then sorted by name.
    pub rows: Vec<(RowIdx, [String; 2])>,
    /// Rows of model and band that the table counts in, sorted by name.
    pub band_rows: Vec<(RowIdx, [String; 2])>,
    /// The table itself.
    pub routes: Option<Arc<Snapshot>>,
    all_rows: Vec<[String; 2]>,
    slot_names: HashMap<BoardSlot, Arc<str>>,
}

impl View {
    /// The names of a table that was made with this book.
    pub fn of(table: &RouteTable, book: &Book) -> Self {
        let slot = |endpoint: u32| table.endpoints.get(endpoint as usize).map(|endpoint| BoardSlot(endpoint.slot));
        let mut replicas: Vec<_> =
            table.endpoints.iter().map(|endpoint| (endpoint.name.clone(), BoardSlot(endpoint.slot))).collect();
        replicas.sort();
        let slots_of = |model: &ModelRoute| {
            let pools = model.pools.iter().filter_map(|pool| table.pools.get(*pool as usize));
            let mut slots: Vec<_> =
                pools.flat_map(|pool| &pool.members).filter_map(|member| slot(member.endpoint)).collect();
            slots.sort_unstable();
            slots.dedup();
            slots
        };
        let mut models: Vec<_> = table.models.iter().map(|model| (model.name.clone(), slots_of(model))).collect();
        models.sort();
        let used: HashSet<u32> = table.pools.iter().map(|pool| pool.metric_row).chain([RowIdx::OTHER.0]).collect();
        let names = |(row, values): (RowIdx, [&str; 2])| (row, values.map(str::to_owned));
        let mut rows: Vec<_> = book.rows.iter().filter(|(row, _)| used.contains(&row.0)).map(names).collect();
        rows.sort_by(|one, other| (one.0 != RowIdx::OTHER, &one.1).cmp(&(other.0 != RowIdx::OTHER, &other.1)));
        Self {
            generation: table.generation,
            replicas,
            models,
            rows,
            band_rows: band_rows(table, book),
            routes: Snapshot::of(table).ok().map(Arc::new),
            all_rows: book.rows.iter().map(|(_, values)| values.map(str::to_owned)).collect(),
            slot_names: book.slot_names.clone(),
        }
    }

    /// The endpoint that holds a slot, or held it last.
    pub fn replica(&self, slot: BoardSlot) -> Option<&str> {
        self.slot_names.get(&slot).map(|name| &**name)
    }

    /// Model and pool of a metric row; none for `other`.
    pub fn row(&self, row: u32) -> Option<[&str; 2]> {
        let [model, pool] = self.all_rows.get(row as usize).filter(|_| row != RowIdx::OTHER.0)?;
        Some([model, pool])
    }
}

/// What stands in records for rows and slots.
impl llmgw_journal::Names for View {
    fn row(&self, row: u32) -> Option<[&str; 2]> {
        self.row(row)
    }

    fn replica(&self, slot: u32) -> Option<&str> {
        self.replica(BoardSlot(slot))
    }
}

fn band_rows(table: &RouteTable, book: &Book) -> Vec<(RowIdx, [String; 2])> {
    let bands = table.models.iter().flat_map(|model| &model.admission.bands);
    let mut rows: Vec<_> = bands
        .map(|band| RowIdx(band.metric_row))
        .map(|row| (row, book.band_rows.values(row).map(str::to_owned)))
        .collect();
    rows.sort_by(|one, other| one.1.cmp(&other.1));
    rows.dedup_by_key(|(row, _)| *row);
    rows
}

#[cfg(test)]
mod tests;
