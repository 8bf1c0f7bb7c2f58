//! What of the tree this version does: the one list from which lines go as features come.
//!
//! Asked by the reader for every key that is written, and by the checks for engines, profiles, scorers and pickers.

/// Why a key that is off, or at its default, changes nothing.
pub(crate) const OFF: &str = "not available in this version; it is off or at its default";
/// Why a key that is set changes nothing.
pub(crate) const NO_EFFECT: &str = "not available in this version; the value is checked and not used";
/// Why a key changes nothing in any version.
pub(crate) const NEVER_ANY_EFFECT: &str = "accepted for old files; nothing needs it";

/// What may be written for a key whose feature is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Only nothing, or the default: anything else would turn something on.
    Off,
    /// Anything that is right: no value turns anything on.
    NoEffect,
    /// As `NoEffect`, for good.
    NeverAnyEffect,
}

/// Keys whose feature is not there.
const KEYS: &[(&str, Rule)] = &[
    ("agent_listen", Rule::Off),
    ("agent_tls", Rule::Off),
    ("agent_plaintext", Rule::Off),
    ("tracing.endpoint", Rule::Off),
    ("fabrics", Rule::NoEffect),
    ("router.endpoint_cache_max_age", Rule::NoEffect),
    ("router.prefix.approx_tree.eviction_interval", Rule::NeverAnyEffect),
    ("router.prefix.kv_events.enabled", Rule::Off),
    ("models[].source", Rule::Off),
    ("models[].scaling", Rule::Off),
    ("models[].slo", Rule::NoEffect),
    ("models[].profiles[].engine", Rule::NoEffect),
    ("models[].profiles[].tp", Rule::NoEffect),
    ("models[].profiles[].nodes", Rule::NoEffect),
    ("models[].profiles[].priority", Rule::NoEffect),
    ("models[].profiles[].weight", Rule::NoEffect),
    ("models[].profiles[].args", Rule::NoEffect),
];

/// Scorers that are there.
pub(crate) const SCORERS: &[&str] = &["queue", "kv", "prefix", "load", "inflight", "pool-priority", "session"];

/// What may be written for the key of that pattern; none: anything, its feature is there.
pub(crate) fn rule(pattern: &str) -> Option<Rule> {
    // A model's own admission and prefix settings, and its profiles' own, are as available as the router's.
    let of_model = pattern.strip_prefix("models[].").map(|rest| rest.strip_prefix("profiles[].").unwrap_or(rest));
    let shared = of_model.filter(|rest| rest.starts_with("admission.") || rest.starts_with("prefix."));
    let matches = |key: &str| match shared {
        Some(rest) => key.strip_prefix("router.") == Some(rest),
        None => key == pattern,
    };
    KEYS.iter().find(|(key, _)| matches(key)).map(|(_, rule)| *rule)
}
