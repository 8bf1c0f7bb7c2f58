//! llama.cpp's `llama-server`, with an HTTP server of its own.

mod metrics;

use std::time::Duration;

use llmgw_types::endpoint::EngineKind;

use crate::kind::{CapacitySource, Engine};
use metrics::VOCABULARY;

/// Source: llama.cpp 0.10434.0, recorded: every answer says `Keep-Alive: timeout=5, max=100`. The version is
/// `build_info` in the properties, which also say how many slots there are.
pub(crate) static ENGINE: Engine = Engine {
    kind: EngineKind::LlamaCpp,
    health_path: "/health",
    metrics_path: "/metrics",
    version_paths: &["/props"],
    capacity: &[CapacitySource { path: "/props", fields: &["total_slots"] }],
    server_idle_limit: Duration::from_secs(5),
    requests_per_connection: Some(100),
    metrics_flag: Some("--metrics"),
    vocabulary: VOCABULARY,
};
