//! What differs from engine to engine: paths, habits of its HTTP server, metric names.
//!
//! Read by configuration defaults, by probes and scrapes, and by the upstream pools. A table: it decides nothing.

use std::time::Duration;

use llmgw_types::endpoint::EngineKind;

use crate::names::Vocabulary;
use crate::{llamacpp, sglang, sim, vllm};

/// How long before the engine would close an idle connection our pools stop using it. Covers the way of a request to
/// the engine and the coarse timers of its server.
pub const IDLE_MARGIN: Duration = Duration::from_secs(1);

/// One engine's habits.
#[derive(Debug)]
pub struct Engine {
    pub kind: EngineKind,
    /// 200 when it can serve.
    pub health_path: &'static str,
    pub metrics_path: &'static str,
    /// Where it tells its version, to be tried in this order: names have changed between releases.
    pub version_paths: &'static [&'static str],
    /// Where it says how many requests it runs at once, in the order in which they are asked; none of an engine that
    /// does not say.
    pub capacity: &'static [CapacitySource],
    /// After this long without a request its server closes a kept connection, unless it is told otherwise.
    pub server_idle_limit: Duration,
    /// So many requests it serves on one connection before it closes it; no limit where `None`.
    pub requests_per_connection: Option<u32>,
    /// The engine's flag without which it has no metrics page.
    pub metrics_flag: Option<&'static str>,
    pub vocabulary: Vocabulary,
}

/// A page that says how many requests an engine runs at once.
#[derive(Debug)]
pub struct CapacitySource {
    pub path: &'static str,
    /// Where in its JSON: names with `/` between them, `*` for each member of a list, whose numbers are added. The
    /// first that has a number counts.
    pub fields: &'static [&'static str],
}

impl Engine {
    /// After this long an idle connection is closed rather than used again.
    pub fn pool_idle_limit(&self) -> Duration {
        self.server_idle_limit.saturating_sub(IDLE_MARGIN)
    }
}

pub fn engine(kind: EngineKind) -> &'static Engine {
    match kind {
        EngineKind::Vllm => &vllm::ENGINE,
        EngineKind::Sglang => &sglang::ENGINE,
        EngineKind::LlamaCpp => &llamacpp::ENGINE,
        EngineKind::Sim => &sim::ENGINE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_paths_and_an_idle_limit_below_its_servers() {
        for kind in EngineKind::ALL {
            let engine = engine(kind);
            assert_eq!(engine.kind, kind);
            for path in [&[engine.health_path, engine.metrics_path], engine.version_paths].concat() {
                assert!(path.starts_with('/'), "{kind}: {path}");
            }
            assert!(engine.pool_idle_limit() < engine.server_idle_limit);
            assert!(engine.pool_idle_limit() >= Duration::from_secs(1), "{kind} connections are worth keeping");
        }
    }
}
