//! SGLang, served by uvicorn.

mod metrics;

use std::time::Duration;

use llmgw_types::endpoint::EngineKind;

use crate::kind::{CapacitySource, Engine};
use metrics::VOCABULARY;

/// Of each data-parallel rank what it settled on; of older releases what it was started with, if anything.
const RUNS_AT_ONCE: &[&str] = &["internal_states/*/effective_max_running_requests_per_dp", "max_running_requests"];

/// Source: SGLang 0.5; `/get_server_info` is the name that older releases know. uvicorn's 5 s hold unless
/// `SGLANG_TIMEOUT_KEEP_ALIVE` is set.
pub(crate) static ENGINE: Engine = Engine {
    kind: EngineKind::Sglang,
    health_path: "/health",
    metrics_path: "/metrics",
    version_paths: &["/server_info", "/get_server_info"],
    capacity: &[
        CapacitySource { path: "/server_info", fields: RUNS_AT_ONCE },
        CapacitySource { path: "/get_server_info", fields: RUNS_AT_ONCE },
    ],
    server_idle_limit: Duration::from_secs(5),
    requests_per_connection: None,
    metrics_flag: Some("--enable-metrics"),
    vocabulary: VOCABULARY,
};
