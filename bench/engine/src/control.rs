//! The control routes under `/sim/`: a test's view into the engine and its levers. No fault touches them.
//!
//! `GET /sim/requests[?since=SEQ][&limit=N][&body=none]`, `GET /sim/state`, `GET /sim/config`, `POST /sim/config`,
//! `POST /sim/reset`, `POST /sim/release`. They are a tool for tests: anybody who reaches the port may use them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::answer::Request;
use crate::batch::Totals;
use crate::faults::Faults;
use crate::pace::Pace;
use crate::record::Received;
use crate::reply::{Reply, Written};
use crate::shared::{Served, Shared};

/// The engine's present counts.
#[derive(Debug, Clone, Serialize)]
pub struct StateView {
    pub now_ns: u64,
    pub open_connections: u64,
    pub accepted_connections: u64,
    /// Requests between their head and the end of their reply; control routes are not counted.
    pub open_requests: u64,
    pub received_requests: u64,
    /// Requests whose client was gone before the end.
    pub client_closed_requests: u64,
    /// Requests that were taken and get no answer, by a fault.
    pub blackholed_requests: u64,
    /// What was given to clients, by the name they asked for.
    pub served: BTreeMap<String, Served>,
    /// In the batch.
    pub running: usize,
    pub waiting: usize,
    /// Streams that keep their own pace (`delay_us`), outside the batch.
    pub self_paced: u64,
    pub kv_usage_ratio: f64,
    pub totals: Totals,
}

/// What `POST /sim/config` may change; absent fields stay.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change<'a> {
    /// Replaces all faults.
    #[serde(borrow, default)]
    faults: Option<&'a RawValue>,
    /// Overlays the present faults.
    #[serde(borrow, default)]
    faults_overlay: Option<&'a RawValue>,
    /// A page, or `null` for the engine's own.
    #[serde(borrow, default, deserialize_with = "present")]
    metrics_text: Option<&'a RawValue>,
    /// A status, or `null` for the page again.
    #[serde(borrow, default, deserialize_with = "present")]
    metrics_status: Option<&'a RawValue>,
    #[serde(default)]
    models: Option<Vec<String>>,
    #[serde(default)]
    pace: Option<Pace>,
    #[serde(default)]
    recorded_body_bytes_max: Option<usize>,
}

/// Tells `null` from an absent field.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

pub(crate) fn state(shared: &Shared) -> StateView {
    let now_ns = shared.now_ns();
    let state = shared.lock();
    StateView {
        now_ns,
        open_connections: state.open_connections,
        accepted_connections: state.accepted_connections,
        open_requests: state.open_requests,
        received_requests: state.received_requests,
        client_closed_requests: state.client_closed_requests,
        blackholed_requests: state.blackholed_requests,
        served: state.served.clone(),
        running: state.batch.running_count(),
        waiting: state.batch.waiting_count(),
        self_paced: state.self_paced,
        kv_usage_ratio: state.batch.kv_usage_ratio(),
        totals: state.batch.totals(),
    }
}

pub(crate) async fn answer(request: &Request, reply: &mut Reply<'_, '_>) -> Written {
    let shared = reply.shared.clone();
    let result = match (request.head.method.as_str(), request.head.path()) {
        ("GET", "/sim/requests") => requests(&shared, request),
        ("GET", "/sim/state") => json(&state(&shared)),
        ("GET", "/sim/config") => json(&shared.lock().cfg),
        ("POST", "/sim/config") => change(&shared, &request.body),
        ("POST", "/sim/reset") => {
            let mut state = shared.lock();
            state.recording.clear();
            state.batch.forget_prefixes();
            Ok("{}".to_owned())
        }
        ("POST", "/sim/release") => {
            shared.release();
            Ok("{}".to_owned())
        }
        _ => {
            let body = r#"{"error":"no such control route"}"#;
            return reply.whole(404, "application/json", &[], body.as_bytes()).await;
        }
    };
    match result {
        Ok(body) => reply.whole(200, "application/json", &[], body.as_bytes()).await,
        Err(cause) => {
            let body = serde_json::json!({ "error": cause }).to_string();
            reply.whole(400, "application/json", &[], body.as_bytes()).await
        }
    }
}

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|cause| cause.to_string())
}

fn requests(shared: &Shared, request: &Request) -> Result<String, String> {
    let number = |name: &str, otherwise: u64| match request.head.query(name) {
        Some(text) => text.parse().map_err(|_| format!("{name} is a number, not {text:?}")),
        None => Ok(otherwise),
    };
    let since = number("since", 0)?;
    let limit = usize::try_from(number("limit", u64::MAX)?).unwrap_or(usize::MAX);
    let bare = request.head.query("body") == Some("none");
    let chosen: Vec<Received> = {
        let state = shared.lock();
        let chosen = state.recording.iter().filter(|received| received.seq >= since).take(limit);
        chosen.map(|received| if bare { received.without_body() } else { received.clone() }).collect()
    };
    json(&serde_json::json!({ "requests": chosen }))
}

fn change(shared: &Shared, body: &[u8]) -> Result<String, String> {
    let change: Change<'_> = serde_json::from_slice(body).map_err(|cause| cause.to_string())?;
    // Everything is checked before anything is changed.
    let present = shared.lock().cfg.faults.clone();
    let mut faults = change.faults.map(|text| Faults::default().overlaid(text.get())).transpose()?;
    if let Some(text) = change.faults_overlay {
        faults = Some(faults.unwrap_or(present).overlaid(text.get())?);
    }
    let metrics_text: Option<Option<String>> = change
        .metrics_text
        .map(|text| serde_json::from_str(text.get()))
        .transpose()
        .map_err(|cause| cause.to_string())?;
    let metrics_status: Option<Option<u16>> = change
        .metrics_status
        .map(|text| serde_json::from_str(text.get()))
        .transpose()
        .map_err(|cause| cause.to_string())?;
    if change.models.as_ref().is_some_and(Vec::is_empty) {
        return Err("models needs a name".to_owned());
    }
    if let Some(faults) = faults {
        shared.set_faults(faults);
    }
    let mut state = shared.lock();
    if let Some(text) = metrics_text {
        state.cfg.metrics_text = text;
    }
    if let Some(status) = metrics_status {
        state.cfg.metrics_status = status;
    }
    if let Some(models) = change.models {
        state.cfg.models = models;
    }
    if let Some(pace) = change.pace {
        state.cfg.batch.pace = pace;
        state.batch.repace(pace);
    }
    if let Some(bytes) = change.recorded_body_bytes_max {
        state.cfg.recorded_body_bytes_max = bytes;
    }
    Ok("{}".to_owned())
}
