//! What a core counts, as the metrics page and the reference say it: names, help, labels, bounds.

use llmgw_obs::registry;
use llmgw_obs::registry::{Bounds, DURATION, FIRST_TOKEN, Kind, Label, MetricDesc, OVERHEAD};

use crate::prefix::Decision;
use crate::scheduler::registry::FILTER_NAMES;

/// The status codes that are counted apart, as the label says them; everything else is `other`.
pub const STATUSES: &[&str] = &[
    "200", "400", "401", "403", "404", "405", "408", "413", "414", "417", "422", "429", "431", "499", "500", "501",
    "502", "503", "504", "other",
];

const MODEL: Label = Label::known("model", "models of the route table, `other` for a request that names none of them");
const BAND: Label = Label::known("band", "bands of the model");
const POOL: Label = Label::known("pool", "fabric/gpu_class of the route table, `other` before a pool was chosen");

/// Requests that ended, by outcome. 499 stands for a client that left before the answer began.
pub static REQUESTS: MetricDesc = MetricDesc {
    name: "llmgw_requests_total",
    help: "Requests that ended, by status sent (499: the client left first)",
    kind: Kind::Counter,
    labels: &[MODEL, POOL, Label::closed("status", STATUSES)],
};
/// See [`PoolCells::duration`](super::PoolCells::duration).
pub static REQUEST_DURATION: MetricDesc = MetricDesc {
    name: "llmgw_request_duration_seconds",
    help: "Time from a request's head to the end of its answer",
    kind: Kind::Histogram(DURATION),
    labels: &[MODEL, POOL],
};
/// See [`PoolCells::first_token`](super::PoolCells::first_token).
pub static TTFT: MetricDesc = MetricDesc {
    name: "llmgw_ttft_seconds",
    help: "Time from a streamed request's head to its first token",
    kind: Kind::Histogram(FIRST_TOKEN),
    labels: &[MODEL, POOL],
};
/// See [`PoolCells::per_token`](super::PoolCells::per_token).
pub static TPOT: MetricDesc = MetricDesc {
    name: "llmgw_tpot_seconds",
    help: "Time per output token after the first, of streamed answers of two and more tokens whose engine counted them",
    kind: Kind::Histogram(registry::PER_TOKEN),
    labels: &[MODEL, POOL],
};
/// See [`PoolCells::prompt_tokens`](super::PoolCells::prompt_tokens).
pub static TOKENS: MetricDesc = MetricDesc {
    name: "llmgw_tokens_total",
    help: "Tokens used, as they are on the record: the engine's word, or the gateway's own count where it says nothing \
           that can be",
    kind: Kind::Counter,
    labels: &[MODEL, Label::closed("direction", &["prompt", "completion"])],
};
/// See [`PoolCells::audio_ms`](super::PoolCells::audio_ms).
pub static AUDIO_SECONDS: MetricDesc = MetricDesc {
    name: "llmgw_audio_seconds_total",
    help: "Sound in requests, in seconds as the engines reported them; only of models whose engines do",
    kind: Kind::Counter,
    labels: &[MODEL],
};
/// See [`CoreCells::overhead`](super::CoreCells::overhead).
pub static OVERHEAD_SECONDS: MetricDesc = MetricDesc {
    name: "llmgw_overhead_seconds",
    help: "Time this gateway added before the answer began",
    kind: Kind::Histogram(OVERHEAD),
    labels: &[],
};
/// See [`CoreCells::usage_absent`](super::CoreCells::usage_absent).
pub static USAGE_ABSENT: MetricDesc = MetricDesc {
    name: "llmgw_usage_absent_total",
    help: "Answers whose usage was missing or absurd, so that our own count stands in",
    kind: Kind::Counter,
    labels: &[Label::closed("kind", &["missing", "absurd"])],
};
/// See [`CoreCells::broken_streams`](super::CoreCells::broken_streams).
pub static BROKEN_STREAMS: MetricDesc = MetricDesc {
    name: "llmgw_broken_streams_total",
    help: "Streams that an engine cut before their end",
    kind: Kind::Counter,
    labels: &[],
};
/// Why requests are tried again at another endpoint, in the order of [`CoreCells::retries`](super::CoreCells::retries).
pub const RETRY_REASONS: &[&str] = &["connect", "closed", "503", "429"];
/// See [`CoreCells::retries`](super::CoreCells::retries).
pub static RETRIES: MetricDesc = MetricDesc {
    name: "llmgw_retries_total",
    help: "Requests tried again at another endpoint, by why the one before did not do",
    kind: Kind::Counter,
    labels: &[Label::closed("reason", RETRY_REASONS)],
};
/// See [`CoreCells::retries_refused`](super::CoreCells::retries_refused).
pub static RETRIES_REFUSED: MetricDesc = MetricDesc {
    name: "llmgw_retries_refused_total",
    help: "Retries that were due and not made because the retry budget was spent",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::cooldowns`](super::CoreCells::cooldowns).
pub static COOLDOWNS: MetricDesc = MetricDesc {
    name: "llmgw_cooldowns_total",
    help: "Times an endpoint was taken out of the candidates after a failure",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::last_resorts`](super::CoreCells::last_resorts).
pub static LAST_RESORTS: MetricDesc = MetricDesc {
    name: "llmgw_last_resorts_total",
    help: "Requests sent to an endpoint that is kept from requests, because there was no other",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::connections_open`](super::CoreCells::connections_open).
pub static CONNECTIONS_OPEN: MetricDesc = MetricDesc {
    name: "llmgw_client_connections",
    help: "Client connections open now",
    kind: Kind::Gauge,
    labels: &[],
};
/// How handshakes with clients come to their end, in the order of [`TlsOutcome`].
pub const TLS_OUTCOMES: &[&str] = &["full", "resumed", "failed", "plain_text", "too_slow", "client_gone"];
/// A handshake's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsOutcome {
    /// With a signature of ours.
    Full,
    /// On a session that the client had before.
    Resumed,
    /// The client spoke no TLS, or none that we do.
    Failed,
    /// It spoke HTTP in plain text.
    PlainText,
    /// It took too long.
    TooSlow,
    /// It left before the end.
    Left,
}
/// See [`CoreCells::tls_handshakes`](super::CoreCells::tls_handshakes).
pub static TLS_HANDSHAKES: MetricDesc = MetricDesc {
    name: "llmgw_tls_handshakes_total",
    help: "Handshakes with clients, by how they ended; resumed ones cost no signature",
    kind: Kind::Counter,
    labels: &[Label::closed("outcome", TLS_OUTCOMES)],
};
/// See [`CoreCells::in_flight`](super::CoreCells::in_flight).
pub static REQUESTS_IN_FLIGHT: MetricDesc = MetricDesc {
    name: "llmgw_requests_in_flight",
    help: "Requests whose head arrived and whose answer has not ended",
    kind: Kind::Gauge,
    labels: &[],
};
/// See [`CoreCells::upstream_opened`](super::CoreCells::upstream_opened).
pub static UPSTREAM_CONNECTIONS: MetricDesc = MetricDesc {
    name: "llmgw_upstream_connections_total",
    help: "Connections to engines, by what was done with them",
    kind: Kind::Counter,
    labels: &[Label::closed("event", &["opened", "reused", "stale", "retried"])],
};
/// See [`CoreCells::panics`](super::CoreCells::panics).
pub static PANICS: MetricDesc = MetricDesc {
    name: "llmgw_panics_total",
    help: "Requests that met a fault of this program and were answered 500",
    kind: Kind::Counter,
    labels: &[],
};
/// See [`CoreCells::access_lines_lost`](super::CoreCells::access_lines_lost).
pub static ACCESS_LINES_LOST: MetricDesc = MetricDesc {
    name: "llmgw_access_lines_lost_total",
    help: "Request log lines dropped because the log could not keep up",
    kind: Kind::Counter,
    labels: &[],
};

/// What [`CoreCells::session_messages`](super::CoreCells::session_messages) are about.
pub const SESSION_SUBJECTS: &[&str] = &["session", "response"];
/// What came of them, in the order of [`CoreCells::session_messages`](super::CoreCells::session_messages).
pub const SESSION_OUTCOMES: &[&str] = &["found", "unknown", "unanswered", "not_asked", "told", "not_told"];
/// See [`CoreCells::session_messages`](super::CoreCells::session_messages).
pub static SESSION_MESSAGES: MetricDesc = MetricDesc {
    name: "llmgw_session_messages_total",
    help: "Questions (found, unknown, unanswered, not_asked) and notices (told, not_told) to the core that owns a \
           session away from its engine or a stored response; none where that core serves the request itself",
    kind: Kind::Counter,
    labels: &[Label::closed("about", SESSION_SUBJECTS), Label::closed("outcome", SESSION_OUTCOMES)],
};

/// What became of prompts, in the order of [`PoolCells::cache_decisions`](super::PoolCells::cache_decisions).
pub const CACHE_DECISIONS: &[&str] = &[
    Decision::ALL[0].word(),
    Decision::ALL[1].word(),
    Decision::ALL[2].word(),
    Decision::ALL[3].word(),
    Decision::ALL[4].word(),
    Decision::ALL[5].word(),
];
/// See [`PoolCells::cache_decisions`](super::PoolCells::cache_decisions).
pub static CACHE_DECISION: MetricDesc = MetricDesc {
    name: "llmgw_cache_decision_total",
    help: "Endpoints chosen, by what became of the prompt: it went where enough of it is cached (cache_hit), too \
           little of it is cached anywhere (cache_miss_min_load), load or its session sent it elsewhere \
           (load_balance_override), it was cached and is not any more (stale), nobody looked (no_tree), nobody may get \
           it (no_healthy_worker)",
    kind: Kind::Counter,
    labels: &[MODEL, Label::closed("decision", CACHE_DECISIONS)],
};
/// See [`PoolCells::prefix_match`](super::PoolCells::prefix_match).
pub static PREFIX_MATCH_RATIO: MetricDesc = MetricDesc {
    name: "llmgw_prefix_match_ratio",
    help: "Part of a prompt that the endpoint it went to is taken to have cached",
    kind: Kind::Histogram(RATIO),
    labels: &[MODEL],
};

/// See [`DecisionCells::considered`](super::DecisionCells::considered).
pub static CANDIDATES_CONSIDERED: MetricDesc = MetricDesc {
    name: "llmgw_candidates_considered",
    help: "Endpoints looked at for one decision, before filters",
    kind: Kind::Histogram(CANDIDATES),
    labels: &[],
};
/// See [`DecisionCells::filtered`](super::DecisionCells::filtered).
pub static CANDIDATES_FILTERED: MetricDesc = MetricDesc {
    name: "llmgw_candidates_filtered_total",
    help: "Endpoints that a filter kept from a decision",
    kind: Kind::Counter,
    labels: &[Label::closed("filter", &FILTER_NAMES)],
};

/// See [`BandCells::waiting`](super::BandCells::waiting).
pub static ADMISSION_QUEUE_DEPTH: MetricDesc = MetricDesc {
    name: "llmgw_admission_queue_depth",
    help: "Requests that wait for a place in one of their model's pools",
    kind: Kind::Gauge,
    labels: &[BAND, MODEL],
};
/// See [`BandCells::wait`](super::BandCells::wait).
pub static ADMISSION_WAIT: MetricDesc = MetricDesc {
    name: "llmgw_admission_wait_seconds",
    help: "Time that requests waited for their place; those that passed at once are not in it",
    kind: Kind::Histogram(FIRST_TOKEN),
    labels: &[BAND, MODEL],
};
/// Why waiting requests got no place, in the order of [`BandCells::rejected`](super::BandCells::rejected).
pub const REJECTIONS: &[&str] =
    &["full", "ttl", "client_gone", "no_endpoint", "displaced", "overloaded", "shutting_down"];
/// See [`BandCells::rejected`](super::BandCells::rejected).
pub static ADMISSION_REJECTED: MetricDesc = MetricDesc {
    name: "llmgw_admission_rejected_total",
    help: "Requests that found no place and did not get one by waiting, by why",
    kind: Kind::Counter,
    labels: &[BAND, MODEL, Label::closed("reason", REJECTIONS)],
};
/// How requests came by their place, in the order of [`BandCells::admitted`](super::BandCells::admitted).
pub const ADMISSIONS: &[&str] = &["passed", "waited"];
/// See [`BandCells::admitted`](super::BandCells::admitted).
pub static ADMISSION_ADMITTED: MetricDesc = MetricDesc {
    name: "llmgw_admission_admitted_total",
    help: "Places that requests got: at once, with no message to another core (passed), or by waiting (waited)",
    kind: Kind::Counter,
    labels: &[BAND, MODEL, Label::closed("how", ADMISSIONS)],
};
/// What is sent about places, in the order of [`CoreCells::gate_messages`](super::CoreCells::gate_messages).
pub const GATE_MESSAGES: &[&str] = &["enqueue", "withdraw", "nudge", "granted", "refused"];
/// See [`CoreCells::gate_messages`](super::CoreCells::gate_messages).
pub static ADMISSION_MESSAGES: MetricDesc = MetricDesc {
    name: "llmgw_admission_messages_total",
    help: "Messages about places in pools, those a core sends to itself included; none while there is room",
    kind: Kind::Counter,
    labels: &[Label::closed("message", GATE_MESSAGES)],
};
/// See [`CoreCells::heartbeats`](super::CoreCells::heartbeats).
pub static ADMISSION_HEARTBEATS: MetricDesc = MetricDesc {
    name: "llmgw_admission_heartbeats_total",
    help: "Comments sent to streams that wait for a place",
    kind: Kind::Counter,
    labels: &[],
};
/// What comes of a request that limits hold, in the order of [`CoreCells::limited`](super::CoreCells::limited).
pub const LIMIT_OUTCOMES: &[&str] = &["lease", "owner", "refused", "busy", "overloaded", "fallback"];
/// See [`CoreCells::limited`](super::CoreCells::limited).
pub static LIMIT_REQUESTS: MetricDesc = MetricDesc {
    name: "llmgw_limit_requests_total",
    help: "Requests of keys with limits: admitted from a lease with no wait, by the owner's word, refused, refused \
           since the owner took too long (busy) or its lane was full (overloaded); fallback: served as the model that \
           stands in once a budget is spent",
    kind: Kind::Counter,
    labels: &[Label::closed("outcome", LIMIT_OUTCOMES)],
};
/// What a request was refused for, in the order of [`Measure::ALL`](crate::quota::Measure::ALL).
pub const LIMIT_MEASURES: &[&str] = &["requests", "tokens", "parallel", "budget"];
/// See [`CoreCells::limit_refusals`](super::CoreCells::limit_refusals).
pub static LIMIT_REFUSALS: MetricDesc = MetricDesc {
    name: "llmgw_limit_refusals_total",
    help: "Requests refused by a limit, by what it counts",
    kind: Kind::Counter,
    labels: &[Label::closed("measure", LIMIT_MEASURES)],
};
/// What becomes of slices, in the order of [`CoreCells::limit_slices`](super::CoreCells::limit_slices).
pub const LIMIT_SLICES: &[&str] = &["given", "recalled", "refill"];
/// See [`CoreCells::limit_slices`](super::CoreCells::limit_slices).
pub static LIMIT_LEASES: MetricDesc = MetricDesc {
    name: "llmgw_limit_slices_total",
    help: "Slices of limits lent to cores, asked back by their owners, and asked for beside the work",
    kind: Kind::Counter,
    labels: &[Label::closed("event", LIMIT_SLICES)],
};
/// See [`CoreCells::found_by_net`](super::CoreCells::found_by_net).
pub static ADMISSION_FOUND_BY_NET: MetricDesc = MetricDesc {
    name: "llmgw_admission_found_by_net_total",
    help: "Places that the timer below the messages found free before the message about them came: a handful by \
           chance, more are a fault of this program",
    kind: Kind::Counter,
    labels: &[],
};

/// Every metric that cores count.
pub static METRICS: &[&MetricDesc] = &[
    &REQUESTS,
    &REQUEST_DURATION,
    &TTFT,
    &TPOT,
    &TOKENS,
    &AUDIO_SECONDS,
    &OVERHEAD_SECONDS,
    &USAGE_ABSENT,
    &BROKEN_STREAMS,
    &RETRIES,
    &RETRIES_REFUSED,
    &COOLDOWNS,
    &LAST_RESORTS,
    &CONNECTIONS_OPEN,
    &TLS_HANDSHAKES,
    &REQUESTS_IN_FLIGHT,
    &UPSTREAM_CONNECTIONS,
    &PANICS,
    &ACCESS_LINES_LOST,
    &SESSION_MESSAGES,
    &CACHE_DECISION,
    &PREFIX_MATCH_RATIO,
    &CANDIDATES_CONSIDERED,
    &CANDIDATES_FILTERED,
    &ADMISSION_QUEUE_DEPTH,
    &ADMISSION_WAIT,
    &ADMISSION_REJECTED,
    &ADMISSION_ADMITTED,
    &ADMISSION_MESSAGES,
    &ADMISSION_HEARTBEATS,
    &ADMISSION_FOUND_BY_NET,
    &LIMIT_REQUESTS,
    &LIMIT_REFUSALS,
    &LIMIT_LEASES,
];

/// Parts of a whole, in millionths as all bounds are.
pub const RATIO: Bounds = Bounds::micros(&[
    0, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, 950_000, 990_000, 1_000_000,
]);
/// Numbers of endpoints, in millions as all bounds are.
pub const CANDIDATES: Bounds = Bounds::micros(&[
    1_000_000,
    2_000_000,
    4_000_000,
    8_000_000,
    16_000_000,
    32_000_000,
    64_000_000,
    256_000_000,
    1_024_000_000,
    4_096_000_000,
]);
