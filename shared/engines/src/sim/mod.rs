//! The simulated engine (`llmgw sim-engine`). It speaks vLLM's vocabulary unless told otherwise.

mod metrics;

use std::time::Duration;

use llmgw_types::endpoint::EngineKind;

use crate::kind::Engine;
use metrics::VOCABULARY;

/// Keeps idle connections as long as the engines it stands for.
pub(crate) static ENGINE: Engine = Engine {
    kind: EngineKind::Sim,
    health_path: "/health",
    metrics_path: "/metrics",
    version_paths: &["/version"],
    capacity: &[],
    server_idle_limit: Duration::from_secs(5),
    requests_per_connection: None,
    metrics_flag: None,
    vocabulary: VOCABULARY,
};
