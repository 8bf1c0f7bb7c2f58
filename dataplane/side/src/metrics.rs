//! What the side runtime itself measures: the state of endpoints, the process, the route table, the log.

use llmgw_obs::document::{self, Section};
use llmgw_obs::registry::{Kind, Label, MetricDesc};
use llmgw_router::scheduler::registry::SCORER_NAMES;

const REPLICA: Label = Label::known("replica", "endpoints of the route table");

pub(crate) static ENDPOINT_INFLIGHT: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_inflight",
    help: "Requests sent to an endpoint that have not ended",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_READY: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_ready",
    help: "Whether an endpoint may get requests (1) or not (0)",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static SCORER_VALUE: MetricDesc = MetricDesc {
    name: "llmgw_scorer_value",
    help: "What a scorer says of an endpoint at this moment: 1 is best, below 0 is to be avoided",
    kind: Kind::Gauge,
    labels: &[Label::closed("scorer", &SCORER_NAMES), REPLICA],
};
pub(crate) static BREAKER_STATE: MetricDesc = MetricDesc {
    name: "llmgw_breaker_state",
    help: "An endpoint's breaker: 0 closed, 1 half-open (one trial at a time), 2 open (no requests)",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_COOLING: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_cooling",
    help: "Whether an endpoint gets no requests for a while after a failure (1) or not (0)",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_DRAINING: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_draining",
    help: "Whether an operator drained the endpoint (1): it gets no new requests",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
/// Of an engine's own numbers those are shown that its newest answer held: a number that may be long gone looks like a
/// true one.
pub(crate) static ENDPOINT_RUNNING: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_running",
    help: "Requests that an engine works on by its own metrics; absent while those are stale",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_WAITING: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_waiting",
    help: "Requests in an engine's own queue by its own metrics; absent while those are stale",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_KV_USAGE: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_kv_usage_ratio",
    help: "Fill of an engine's KV cache by its own metrics; absent while those are stale, or where it tells none",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_METRICS_STALE: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_metrics_stale",
    help: "Whether the newest attempt to read an engine's metrics failed (1) or not (0); absent where they are off",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_BATCH_CAPACITY: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_batch_capacity",
    help: "Requests that an engine runs at once, configured or learned; absent while that is not known",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static ENDPOINT_KV_CAPACITY: MetricDesc = MetricDesc {
    name: "llmgw_endpoint_kv_capacity_tokens",
    help: "Tokens that an engine's KV cache holds, configured or by its own metrics; absent while that is not known",
    kind: Kind::Gauge,
    labels: &[REPLICA],
};
pub(crate) static POOL_SATURATION: MetricDesc = MetricDesc {
    name: "llmgw_pool_saturation",
    help: "How full a pool's engines are: 1 is the healthy limit; the mean of the greater of queue over target and \
           cache over ceiling",
    kind: Kind::Gauge,
    labels: &[
        Label::known("model", "models of the route table"),
        Label::known("pool", "fabric/gpu_class of the route table"),
    ],
};
pub(crate) static REPLICAS: MetricDesc = MetricDesc {
    name: "llmgw_replicas",
    help: "Endpoints that serve a model, by state",
    kind: Kind::Gauge,
    labels: &[Label::known("model", "models of the route table"), Label::closed("state", &["ready", "not_ready"])],
};
pub(crate) static CERTIFICATE_EXPIRES: MetricDesc = MetricDesc {
    name: "llmgw_tls_certificate_expires_timestamp_seconds",
    help: "When a certificate shown to clients expires, in seconds since 1970",
    kind: Kind::Gauge,
    labels: &[Label::known("certificate", "files of `tls`")],
};
pub(crate) static GENERATION: MetricDesc = MetricDesc {
    name: "llmgw_route_table_generation",
    help: "Number of the newest route table",
    kind: Kind::Gauge,
    labels: &[],
};
pub(crate) static GENERATION_OLDEST: MetricDesc = MetricDesc {
    name: "llmgw_route_table_generation_oldest",
    help: "Number of the oldest route table that a core still works with",
    kind: Kind::Gauge,
    labels: &[],
};
pub(crate) static PREFIX_SLOTS: MetricDesc = MetricDesc {
    name: "llmgw_prefix_table_slots",
    help: "Slots that the table of where prompts are cached has memory for, at 72 bytes each; at most max_tree_size",
    kind: Kind::Gauge,
    labels: &[],
};
pub(crate) static LOG_LINES_LOST: MetricDesc = MetricDesc {
    name: "llmgw_log_lines_lost_total",
    help: "Log lines dropped because their reader could not keep up",
    kind: Kind::Counter,
    labels: &[],
};
pub(crate) static BUILD_INFO: MetricDesc = MetricDesc {
    name: "llmgw_build_info",
    help: "Always 1; the label says which version runs",
    kind: Kind::Gauge,
    labels: &[Label::known("version", "the version of this program")],
};
pub(crate) static RESIDENT_MEMORY: MetricDesc = MetricDesc {
    name: "process_resident_memory_bytes",
    help: "Memory of the process that is in RAM",
    kind: Kind::Gauge,
    labels: &[],
};
pub(crate) static OPEN_FDS: MetricDesc =
    MetricDesc { name: "process_open_fds", help: "File descriptors that are open", kind: Kind::Gauge, labels: &[] };
pub(crate) static START_TIME: MetricDesc = MetricDesc {
    name: "process_start_time_seconds",
    help: "When the process started, in seconds since 1970",
    kind: Kind::Gauge,
    labels: &[],
};

/// Every metric of this room.
pub static METRICS: &[&MetricDesc] = &[
    &ENDPOINT_INFLIGHT,
    &ENDPOINT_READY,
    &SCORER_VALUE,
    &BREAKER_STATE,
    &ENDPOINT_COOLING,
    &ENDPOINT_DRAINING,
    &ENDPOINT_RUNNING,
    &ENDPOINT_WAITING,
    &ENDPOINT_KV_USAGE,
    &ENDPOINT_METRICS_STALE,
    &ENDPOINT_BATCH_CAPACITY,
    &ENDPOINT_KV_CAPACITY,
    &POOL_SATURATION,
    &REPLICAS,
    &CERTIFICATE_EXPIRES,
    &GENERATION,
    &GENERATION_OLDEST,
    &PREFIX_SLOTS,
    &LOG_LINES_LOST,
    &BUILD_INFO,
    &RESIDENT_MEMORY,
    &OPEN_FDS,
    &START_TIME,
];

/// `docs/reference/metrics.md`, as it must be.
pub fn reference_page() -> String {
    document::render(&[
        Section { title: "Requests", metrics: llmgw_router::metrics::METRICS },
        Section { title: "Endpoints and the process", metrics: METRICS },
        Section { title: "Usage on the record", metrics: llmgw_journal::metrics::METRICS },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_together_are_lawful() {
        let foreign = |fault: &String| fault.starts_with("process_") && fault.contains("is not llmgw_");
        let mut faults =
            llmgw_obs::registry::check(&[llmgw_router::metrics::METRICS, METRICS, llmgw_journal::metrics::METRICS]);
        // Names that Prometheus itself gives, for every process.
        faults.retain(|fault| !foreign(fault));
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the chore that rewrites the page asks by the environment")]
    fn the_reference_page_says_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        let page = reference_page();
        if std::env::var_os("LLMGW_BLESS").is_some() {
            std::fs::write(path, &page).expect("page");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(document::stale("docs/reference/metrics.md", &written, &page), None);
    }
}
