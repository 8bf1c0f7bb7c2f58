//! What the admin API answers, as far as people are shown it. Fields that are not here are passed over.

use serde::Deserialize;

/// An error, in the shape that clients of the gateway know.
#[derive(Debug, Deserialize)]
pub(crate) struct Refusal {
    pub error: RefusalBody,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RefusalBody {
    pub message: String,
    pub code: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Endpoints {
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Drained {
    pub endpoint: Endpoint,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Endpoint {
    pub name: String,
    pub url: String,
    pub engine: String,
    pub models: Vec<String>,
    pub pool: String,
    pub priority: i64,
    pub weight: u64,
    pub state: String,
    pub is_ready: bool,
    pub is_draining: bool,
    pub breaker: String,
    pub in_flight: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Reloaded {
    pub is_changed: bool,
    pub changes: Changes,
    pub needs_restart: Vec<Setting>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Changes {
    pub endpoints: Rows,
    pub models: Rows,
    pub profiles: Rows,
    pub settings: Vec<Setting>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Rows {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<Changed>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Changed {
    pub name: String,
    pub keys: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Setting {
    pub key: String,
    pub running: Option<String>,
    pub configured: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Audit {
    pub events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub seq: i64,
    pub ts: i64,
    pub actor: String,
    pub action: String,
    pub target_id: String,
    pub before: serde_json::Value,
    pub after: serde_json::Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Copied {
    pub path: String,
    pub bytes: u64,
}
