//! The checked configuration: plain values that cannot be wrong, which the rest of the gateway is built from.
//!
//! Made by `checked` only. Holds no keys that are not there yet: those appear with their features.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use llmgw_kit::secret::Secret;
use llmgw_types::EngineKind;
use llmgw_types::snapshot::Units;

use crate::error::WithoutEffect;
use crate::server::{Auth, PickerKind, Scheduling};
use crate::url::EngineUrl;
use crate::values::CoreCount;

/// Everything a server is told.
///
/// Invariants: endpoint names and URLs are unique; model names and aliases are unique together; every model has an
/// endpoint; every routing profile that is named is in `router.profiles`.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where clients connect; never empty.
    pub listen: Vec<SocketAddr>,
    /// Where operators connect.
    pub admin_listen: SocketAddr,
    /// What operators must show; always there when `admin_listen` is not loopback.
    pub admin_token: Option<Secret>,
    /// What is shown to clients, the first to those that name no host; empty: plain HTTP.
    pub tls: Vec<CertificateConfig>,
    /// Whether clients need a key.
    pub auth: Auth,
    /// Data-plane threads; never exactly 0.
    pub cores: CoreCount,
    /// CPUs kept for everything else; 0 shares.
    pub side_cpus: CoreCount,
    /// What is kept on disk.
    pub store: StoreConfig,
    /// Engines, in the order of the file; never empty.
    pub endpoints: Vec<EndpointConfig>,
    /// Every public model: those of the catalog in the order of the file, then those only endpoints name.
    pub models: Vec<ModelConfig>,
    /// How requests are taken, placed and timed.
    pub router: RouterConfig,
    /// Keys that were accepted although they change nothing in this version.
    pub without_effect: Vec<WithoutEffect>,
}

/// A certificate and its key, read from files. Whether they are of use is seen when they are put to use.
#[derive(Clone, Debug)]
pub struct CertificateConfig {
    /// The certificate's file, for messages and metrics.
    pub cert_file: String,
    /// What it held: the chain in PEM, the server's own first.
    pub cert_pem: String,
    /// The key's file, for messages.
    pub key_file: String,
    /// What it held: the key in PEM.
    pub key_pem: Secret,
}

/// Where keys, usage and the audit trail are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The database file.
    pub path: PathBuf,
    /// Whether the file names another path than the default: then the store is wanted, whether it is there or not.
    pub is_named: bool,
}

/// One engine.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Unique; printable ASCII without spaces.
    pub name: String,
    /// Its root.
    pub url: EngineUrl,
    /// The `Host` field of requests to it.
    pub host_header: String,
    /// Models it serves; never empty, public names unique.
    pub models: Vec<ServedModel>,
    /// What kind of engine it is.
    pub engine: EngineKind,
    /// Part of the pool.
    pub fabric: String,
    /// Part of the pool.
    pub gpu_class: String,
    /// The pool's priority, highest first.
    pub priority: i32,
    /// Share within the pool; never 0.
    pub weight: u32,
    /// What the engine must be shown.
    pub api_key: Option<Secret>,
    /// Where the key came from, for messages: `variable VLLM_KEY` or `file /etc/…`.
    pub api_key_source: Option<String>,
    /// Readiness path; none: the engine's own.
    pub health_path: Option<String>,
    /// Where its metrics are.
    pub metrics_path: MetricsPath,
    /// Names of the contract's fields and the metrics to read them from in place of the engine's own; `off`: not
    /// published.
    pub metrics: Vec<(&'static str, String)>,
    /// Requests it runs at once; none: learned.
    pub batch_capacity: Option<u32>,
    /// In which order it takes its own queue.
    pub scheduling: Scheduling,
    /// Tokens its KV cache holds; none: published, or not known.
    pub kv_capacity_tokens: Option<u64>,
    /// Who signed its certificate, where it is reached within TLS; none: the system's authorities.
    pub tls_ca: Option<Authorities>,
}

/// Certificate authorities, read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities {
    /// The file, for messages.
    pub file: String,
    /// What it held: certificates in PEM.
    pub pem: String,
}

/// One model of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// The public name.
    pub name: String,
    /// What the engine calls it.
    pub served_as: String,
}

/// Where an engine's metrics are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPath {
    /// At the engine's own path.
    Default,
    /// At this path.
    Path(String),
    /// Nowhere: it is judged by our own requests in flight only.
    Off,
}

/// One public model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The public name.
    pub name: String,
    /// Further names clients may use.
    pub aliases: Vec<String>,
    /// Models that answer in its place, in this order.
    pub fallbacks: Vec<String>,
    /// The model that serves in place of this one where a budget is spent.
    pub budget_fallback: Option<String>,
    /// The routing profile, the default one where it names none.
    pub routing_profile: String,
    /// What its engines are chosen by.
    pub placement: PlacementConfig,
    /// When its requests wait, and in which order they go on.
    pub admission: AdmissionConfig,
    /// What its use costs against budgets.
    pub units: Units,
}

/// When the requests of a model wait: the router's values, but for those the model has of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// When its pools count as full.
    pub thresholds: ThresholdsConfig,
    /// The same for pools of GPU classes whose model profile has thresholds of its own.
    pub by_gpu_class: Vec<(String, ThresholdsConfig)>,
    /// How long a request may wait.
    pub queue_ttl: Duration,
    /// How often a waiting stream is sent a comment; nothing: never.
    pub heartbeat: Duration,
    /// Waiting requests of one band.
    pub queue_capacity_per_band: u32,
    /// Waiting requests of all bands.
    pub queue_capacity_total: u32,
    /// Bytes of waiting requests.
    pub queue_bytes_max: u64,
    /// By rising priority; never empty; neither ceilings nor shares fall.
    pub bands: Vec<BandConfig>,
}

impl AdmissionConfig {
    /// When a pool on GPUs of that class counts as full.
    pub fn thresholds_on(&self, gpu_class: &str) -> ThresholdsConfig {
        let own = self.by_gpu_class.iter().find(|(class, _)| class == gpu_class);
        own.map_or(self.thresholds, |(_, thresholds)| *thresholds)
    }
}

/// When a pool counts as full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThresholdsConfig {
    /// Requests in an engine's own queue at which it counts as full, 1 or more.
    pub target_waiting_per_replica: u32,
    /// Fill of its KV cache above which it is avoided.
    pub kv_ceiling: f64,
    /// Whether that is scaled by band.
    pub kv_by_band: bool,
}

/// A priority band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandConfig {
    /// Unique.
    pub name: String,
    /// Unique; higher goes first.
    pub priority: i32,
    /// Saturation of the pool above which it waits.
    pub saturation_ceiling: f64,
    /// Part of a pool's batch it may fill.
    pub capacity_share: f64,
}

/// What the engines of a model are chosen by: the router's values, but for those the model has of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementConfig {
    /// How sessions are kept together; absent when they are not.
    pub session: Option<SessionConfig>,
    /// When requests follow their prompts to where those are cached; absent when they do not.
    pub prefix: Option<PrefixConfig>,
    /// The same for pools of GPU classes whose model profile has values of its own.
    pub prefix_by_gpu_class: Vec<(String, Option<PrefixConfig>)>,
}

impl PlacementConfig {
    /// When requests follow their prompts in a pool on GPUs of that class.
    pub fn prefix_on(&self, gpu_class: &str) -> Option<PrefixConfig> {
        let own = self.prefix_by_gpu_class.iter().find(|(class, _)| class == gpu_class);
        own.map_or(self.prefix, |(_, prefix)| *prefix)
    }
}

/// When requests follow their prompts to where those are cached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixConfig {
    /// The least part of a prompt that must be cached somewhere.
    pub cache_threshold: f64,
    /// How much more the engine that has it may have to do than the least loaded one, in requests.
    pub balance_abs_threshold: u32,
    /// The same as a multiple.
    pub balance_rel_threshold: f64,
}

/// How requests of one session are kept on one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// The header that names the session, in lower case.
    pub header: String,
    /// Load over the pool's mean at which a session's engine is passed over.
    pub load_factor: f64,
}

/// How requests are taken, placed and timed.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// How often each engine's metrics are read.
    pub scrape_interval: Duration,
    /// Whether usage is asked for where the client did not.
    pub inject_usage: bool,
    /// Further tries of a request.
    pub retries: u16,
    /// How long an endpoint that failed is left out.
    pub cooldown: Duration,
    /// How long the last known endpoints are used.
    pub endpoint_cache_max_age: Duration,
    /// The largest requests taken.
    pub limits: LimitsConfig,
    /// How long each step may take.
    pub timeouts: TimeoutsConfig,
    /// Slots of the table of where prompts are cached, at most.
    pub prefix_table_slots: u32,
    /// The profile of models that name none.
    pub default_profile: String,
    /// All profiles: the built-in ones, and those of the file.
    pub profiles: Vec<RoutingProfileConfig>,
}

/// The largest requests taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// The body.
    pub body_bytes: u64,
    /// Request line and header fields together.
    pub header_bytes: u64,
    /// Number of header fields.
    pub header_count: u16,
}

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutsConfig {
    /// Connecting to an engine.
    pub connect: Duration,
    /// From the request sent to the engine's first byte.
    pub first_token: Duration,
    /// Between two events of a stream.
    pub between_events: Duration,
    /// The whole request.
    pub total: Duration,
    /// A client sending its head.
    pub client_header: Duration,
    /// A client sending its body.
    pub client_body: Duration,
    /// An idle client connection.
    pub client_idle: Duration,
    /// Requests still running at the end.
    pub drain: Duration,
    /// From readiness withdrawn to the listening socket closed; may be nothing.
    pub settle: Duration,
}

/// How an engine is chosen within its pool.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingProfileConfig {
    /// Unique name.
    pub name: String,
    /// How engines are scored.
    pub score: ScoreConfig,
    /// How one is picked.
    pub picker: PickerConfig,
}

/// How engines are scored. `inflight` counts in any case.
#[derive(Clone, Debug, PartialEq)]
pub enum ScoreConfig {
    /// By cost in cache blocks.
    Cost {
        /// Weight of the prompt's blocks that the engine does not hold.
        w_overlap: f64,
    },
    /// By weighted scorers: names and weights, in the order of the file.
    Weighted(Vec<(String, f64)>),
}

/// How one engine is picked from the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PickerConfig {
    /// The kind of picker.
    pub kind: PickerKind,
    /// Of `softmax`, else 0.
    pub temperature: f64,
}
