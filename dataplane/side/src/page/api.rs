//! The admin API: endpoints and their drain, the configuration loaded again.
//!
//! | method | path below `/api/v1` | answer |
//! |---|---|---|
//! | GET | `/endpoints` | every endpoint and its state |
//! | POST | `/endpoints/{name}/drain`, `/endpoints/{name}/undrain` | the endpoint as it is then |
//! | POST | `/reload` | what changed, and what needs a restart |
//!
//! What is not here is asked at the [`desk`]. Errors have the shape of those that clients get. What changes something
//! is put on the audit trail. Writes drain cells, nothing else.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use llmgw_config::EndpointConfig;
use llmgw_config::diff::{Changes, Rows, Setting};
use llmgw_kit::clock::Mono;
use llmgw_kit::percent::decoded;
use llmgw_router::endpoint::BreakerState;
use llmgw_types::BoardSlot;
use serde_json::{Value, json};

use super::desk::{self, Act};
use super::{JSON, Sources, refusal, respond, token, wrong_method};
use crate::reload::{self, Cause, ReloadError, Reloaded};

/// Where the API begins.
pub(super) const PREFIX: &str = "/api/v1";

/// Answers what stands below the prefix.
pub(super) async fn answer(
    request: Request<Incoming>,
    below: &str,
    peer: Option<IpAddr>,
    sources: &Sources,
) -> Response<Full<Bytes>> {
    let admin_token = sources.running.borrow().admin_token.clone();
    if let Some(refused) = token::refused(request.headers(), admin_token.as_ref(), sources.is_loopback) {
        return refused;
    }
    let actor = desk::actor_of(request.headers(), peer, admin_token.is_some());
    let parts: Vec<&str> = below.split('/').skip(1).collect();
    let (is_read, is_write) = (request.method() == Method::GET, request.method() == Method::POST);
    match parts.as_slice() {
        ["endpoints"] if is_read => respond(StatusCode::OK, JSON, endpoints(sources).to_string()),
        ["endpoints"] => wrong_method("use GET", "GET"),
        ["endpoints", _, "drain" | "undrain"] | ["reload"] if !is_write => wrong_method("use POST", "POST"),
        ["endpoints", name, act @ ("drain" | "undrain")] => drain(sources, name, *act == "drain", actor).await,
        ["reload"] => reload(sources, actor).await,
        _ => match &sources.desk {
            Some(asked) => desk::answer(request, below, actor, asked).await,
            None => refusal(StatusCode::NOT_FOUND, "not_found", "there is /endpoints and /reload below /api/v1"),
        },
    }
}

fn endpoints(sources: &Sources) -> Value {
    let (config, view) = (sources.running.borrow().clone(), sources.view.borrow().clone());
    let slot = |name: &str| {
        let at = view.replicas.binary_search_by(|(replica, _)| replica.as_str().cmp(name)).ok()?;
        view.replicas.get(at).map(|(_, slot)| *slot)
    };
    let rows: Vec<Value> = config
        .endpoints
        .iter()
        .filter_map(|endpoint| Some(described(endpoint, slot(&endpoint.name)?, sources)))
        .collect();
    json!({ "generation": view.generation, "endpoints": rows })
}

fn described(endpoint: &EndpointConfig, slot: BoardSlot, sources: &Sources) -> Value {
    let cells = sources.board.endpoint(slot);
    let (is_ready, is_draining) = (cells.is_ready(), cells.is_draining());
    let state = match (is_draining, is_ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not_ready",
    };
    let breaker = match cells.breaker() {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    };
    json!({
        "name": endpoint.name,
        "url": endpoint.url.to_string(),
        "engine": endpoint.engine.name(),
        "models": endpoint.models.iter().map(|model| &model.name).collect::<Vec<_>>(),
        "pool": format!("{}/{}", endpoint.fabric, endpoint.gpu_class),
        "priority": endpoint.priority,
        "weight": endpoint.weight,
        "state": state,
        "is_ready": is_ready,
        "is_draining": is_draining,
        "breaker": breaker,
        "in_flight": sources.board.in_flight(slot),
    })
}

async fn drain(sources: &Sources, written: &str, is_draining: bool, actor: String) -> Response<Full<Bytes>> {
    let config = sources.running.borrow().clone();
    let view = sources.view.borrow().clone();
    let name = decoded(written);
    let endpoint = config.endpoints.iter().find(|endpoint| Some(&endpoint.name) == name.as_ref());
    let slot = view.replicas.iter().find(|(replica, _)| Some(replica) == name.as_ref()).map(|(_, slot)| *slot);
    let (Some(endpoint), Some(slot)) = (endpoint, slot) else {
        return refusal(StatusCode::NOT_FOUND, "endpoint_not_found", "there is no endpoint of that name");
    };
    let cells = sources.board.endpoint(slot);
    if cells.is_draining() != is_draining {
        if !is_draining {
            // It comes back with a small share that grows, as one that has just become ready.
            cells.set_ready_since(Mono::now());
        }
        cells.set_draining(is_draining);
        let replica = endpoint.name.as_str();
        if is_draining {
            tracing::info!(replica, "endpoint drained by an operator: no new requests");
        } else {
            tracing::info!(replica, "endpoint taken back by an operator");
        }
        let state = |is_draining: bool| json!({ "is_draining": is_draining }).to_string();
        let (action, target) = if is_draining { ("endpoint.drain", replica) } else { ("endpoint.undrain", replica) };
        let (before, after) = (state(!is_draining), state(is_draining));
        desk::note(
            sources.desk.as_ref(),
            Act { actor, action, target: ("endpoint", target.to_owned()), before, after },
        )
        .await;
    }
    respond(StatusCode::OK, JSON, json!({ "endpoint": described(endpoint, slot, sources) }).to_string())
}

async fn reload(sources: &Sources, actor: String) -> Response<Full<Bytes>> {
    let before = json!({ "generation": sources.view.borrow().generation }).to_string();
    match reload::ask(&sources.requests, Cause::Api).await {
        Ok(Reloaded { changes, generation }) => {
            let body = json!({
                "generation": generation,
                "is_changed": !changes.applies_nothing(),
                "changes": changes_json(&changes),
                "needs_restart": changes.needs_restart.iter().map(setting).collect::<Vec<_>>(),
            });
            let (target, after) = (("server", "configuration".to_owned()), body.to_string());
            desk::note(sources.desk.as_ref(), Act { actor, action: "config.reload", target, before, after }).await;
            respond(StatusCode::OK, JSON, body.to_string())
        }
        Err(error) => {
            let (status, code) = match error {
                ReloadError::NoFile => (StatusCode::CONFLICT, "no_config_file"),
                ReloadError::Config(_) => (StatusCode::UNPROCESSABLE_ENTITY, "config_refused"),
                ReloadError::Publish(_) => (StatusCode::UNPROCESSABLE_ENTITY, "not_published"),
                ReloadError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            };
            refusal(status, code, &error.to_string())
        }
    }
}

fn changes_json(changes: &Changes) -> Value {
    json!({
        "endpoints": rows(&changes.endpoints),
        "models": rows(&changes.models),
        "profiles": rows(&changes.profiles),
        "settings": changes.settings.iter().map(setting).collect::<Vec<_>>(),
    })
}

fn rows(rows: &Rows) -> Value {
    let changed = rows.changed.iter().map(|(name, keys)| json!({ "name": name, "keys": keys }));
    json!({ "added": rows.added, "removed": rows.removed, "changed": changed.collect::<Vec<_>>() })
}

fn setting(setting: &Setting) -> Value {
    json!({ "key": setting.key, "running": setting.running, "configured": setting.configured })
}
