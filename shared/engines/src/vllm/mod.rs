//! vLLM, served by uvicorn.

mod metrics;

use std::time::Duration;

use llmgw_types::endpoint::EngineKind;

use crate::kind::Engine;
pub(crate) use metrics::VOCABULARY;

/// Source: vLLM 0.32.0, recorded; `VLLM_HTTP_TIMEOUT_KEEP_ALIVE` is 5 s unless set. Its `max_num_seqs` is told in
/// development mode alone.
pub(crate) static ENGINE: Engine = Engine {
    kind: EngineKind::Vllm,
    health_path: "/health",
    metrics_path: "/metrics",
    version_paths: &["/version"],
    capacity: &[],
    server_idle_limit: Duration::from_secs(5),
    requests_per_connection: None,
    metrics_flag: None,
    vocabulary: VOCABULARY,
};
