//! Who chooses the engine: the gateway's own policies, each by its configuration, and another router beside them.

use std::io;
use std::path::Path;

use crate::compare::{free_port, python_package, python_router};
use crate::fleet::config;
use crate::process::Launch;
use crate::scenario::MODEL;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    pub name: &'static str,
    /// For a reader.
    pub what: &'static str,
    pub(crate) by: By,
    /// The calls say whose turn they are (`x-session-id`).
    pub(crate) names_sessions: bool,
    /// The gateway's threads; none is what comes by default.
    pub(crate) cores: Option<u32>,
}

/// What makes it choose so.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By {
    /// A routing profile of ours; none is what comes by default.
    Profile(Option<&'static str>),
    /// SGLang's router, cache-aware. `is_sized` tells it how much text the engines hold.
    Sglang { is_sized: bool },
}

/// The one that is measured against the others.
pub const BLOCK_COST: &str = "block cost";
/// What nobody may fall below.
pub const ROUND_ROBIN: &str = "round robin";

/// All.
pub const POLICIES: &[Policy] = &[
    Policy {
        name: ROUND_ROBIN,
        what: "one engine after another; on one core, for each counts its own turns, and who is next is chance with two",
        by: By::Profile(Some("{ picker: { type: round-robin } }")),
        names_sessions: false,
        cores: Some(1),
    },
    Policy {
        name: "least load",
        what: "`scorers: { inflight: 1 }`: what the gateway itself has running there, prompts by their tokens",
        by: By::Profile(Some("{ scorers: { inflight: 1.0 }, picker: { type: max-score } }")),
        names_sessions: false,
        cores: None,
    },
    Policy {
        name: "session",
        what: "least load, with `x-session-id` on every call: a session stays at its engine while that is not over the \
               mean by `load_factor`",
        by: By::Profile(Some("{ scorers: { inflight: 1.0 }, picker: { type: max-score } }")),
        names_sessions: true,
        cores: None,
    },
    Policy {
        name: "weighted",
        what: "`scorers: { prefix: 3, queue: 1, kv: 1, inflight: 1 }`, the best score",
        by: By::Profile(Some(
            "{ scorers: { prefix: 3.0, queue: 1.0, kv: 1.0, inflight: 1.0 }, picker: { type: max-score } }",
        )),
        names_sessions: false,
        cores: None,
    },
    Policy {
        name: BLOCK_COST,
        what: "the profile `chat` as it comes",
        by: By::Profile(None),
        names_sessions: false,
        cores: None,
    },
    Policy {
        name: "sglang-router",
        what: "its `cache_aware` as it comes, its eviction as much faster as time is",
        by: By::Sglang { is_sized: false },
        names_sessions: false,
        cores: None,
    },
    Policy {
        name: "sglang-router sized",
        what: "the same, its tree as large as the text that an engine's cache holds (`--max-tree-size`)",
        by: By::Sglang { is_sized: true },
        names_sessions: false,
        cores: None,
    },
];

/// How often the gateway reads its engines' pages, at the speed of the trace.
const SCRAPE_SECONDS: f64 = 2.0;
/// And no oftener than that, in the machine's time: engines whose pages are late three times count as gone, and a busy
/// machine keeps one waiting for a tenth of a second.
const SCRAPE_MS_MIN: f64 = 200.0;
/// How often SGLang's router trims its tree, at the speed of the trace.
const EVICTION_SECONDS: f64 = 60.0;

impl Policy {
    /// By its name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.by, By::Profile(_))
    }
}

/// The gateway's configuration.
pub(crate) fn server_yaml(profile: Option<&str>, cores: Option<u32>, engine_urls: &[String], speed: f64) -> String {
    let mut text = config(engine_urls, MODEL);
    if let Some(cores) = cores {
        text.push_str(&format!("cores: {cores}\n"));
    }
    let scrape_ms = (SCRAPE_SECONDS * 1000.0 / speed).max(SCRAPE_MS_MIN);
    text.push_str(&format!("router:\n  scrape_interval: {scrape_ms:.0}ms\n"));
    if let Some(profile) = profile {
        text.push_str(&format!("  default_profile: measured\n  profiles:\n    measured: {profile}\n"));
    }
    text
}

/// SGLang's router on a port. `tree_bytes`: the text that it remembers of each engine.
pub(crate) fn sglang(
    peers: &Path,
    engine_urls: &[String],
    port: u16,
    speed: f64,
    tree_bytes: Option<usize>,
) -> io::Result<Launch> {
    let metrics_port = free_port()?;
    let mut launch = python_router(peers, "sglang-router", "cache_aware", [port, metrics_port]);
    let eviction_s = (EVICTION_SECONDS / speed).ceil().max(1.0);
    launch = launch.args(["--eviction-interval-secs", &format!("{eviction_s:.0}")]);
    if let Some(bytes) = tree_bytes {
        launch = launch.args(["--max-tree-size", &bytes.to_string()]);
    }
    Ok(launch.arg("--worker-urls").args(engine_urls))
}

/// Its version, `None` where it is not installed.
pub(crate) fn sglang_version(peers: &Path) -> Option<String> {
    python_package(peers, "sglang-router")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_stand_for_one_policy_each() {
        for policy in POLICIES {
            assert_eq!(POLICIES.iter().filter(|other| other.name == policy.name).count(), 1);
        }
        assert!(Policy::find(BLOCK_COST).is_some() && Policy::find(ROUND_ROBIN).is_some());
        assert!(Policy::find("none").is_none());
    }

    #[test]
    fn the_default_is_configured_by_nothing() {
        let urls = ["http://127.0.0.1:1".to_owned()];
        assert!(server_yaml(None, None, &urls, 50.0).ends_with("router:\n  scrape_interval: 200ms\n"));
        let text = server_yaml(Some("{ picker: { type: round-robin } }"), Some(1), &urls, 1.0);
        assert!(text.contains("cores: 1\nrouter:\n  scrape_interval: 2000ms\n  default_profile: measured\n"), "{text}");
    }
}
