//! Endpoints: URLs, names, models, keys and paths.
//!
//! Knows nothing of the catalog: `model` judges the two together.

use std::collections::{HashMap, HashSet};

use llmgw_types::EngineKind;

use crate::config::{Authorities, EndpointConfig, MetricsPath, ServedModel};
use crate::environment::Environment;
use crate::error::Place;
use crate::read::{Field, Reader};
use crate::server::{Endpoint, MetricNames, Scheduling, ServerTree};
use crate::url::{EngineUrl, Scheme};
use crate::values::line_of;

use super::{check_model_name, check_name, secret};

/// The longest file of authorities, in bytes.
const CA_BYTES_MAX: u64 = 1 << 20;

/// The endpoints that could be read; what is wrong with the others is said.
pub(super) fn check(tree: &ServerTree, environment: &Environment, reader: &mut Reader) -> Vec<EndpointConfig> {
    let mut urls: HashMap<EngineUrl, (usize, Place)> = HashMap::new();
    let mut names: HashMap<String, (usize, Place)> = HashMap::new();
    let mut endpoints = Vec::new();
    for (at, endpoint) in tree.endpoints.iter().enumerate() {
        let Some(checked) = check_one(at, endpoint, environment, reader) else {
            reader.has_lost_items = true;
            continue;
        };
        if let Some((first, place)) = urls.get(&checked.url) {
            let message = format!(
                "endpoints[{at}].url: {} is endpoints[{first}] already{}; one URL is one endpoint, with several \
                models under models",
                checked.url,
                line_of(place)
            );
            reader.problem(&endpoint.url.place, message);
        } else if let Some((first, place)) = names.get(&checked.name) {
            let place_here = if endpoint.name.is_some() { &endpoint.name.place } else { &endpoint.url.place };
            let message = format!(
                "endpoints[{at}].name: {:?} is the name of endpoints[{first}] already{}; names are unique",
                checked.name,
                line_of(place)
            );
            reader.problem(place_here, message);
        }
        urls.entry(checked.url.clone()).or_insert((at, endpoint.url.place.clone()));
        names.entry(checked.name.clone()).or_insert((at, endpoint.place.clone()));
        endpoints.push(checked);
    }
    // A misspelt key is the likelier reason, where there is one.
    if tree.endpoints.is_empty() && reader.problems.is_empty() {
        let message =
            "no endpoints; name at least one engine under endpoints, or let \"llmgw init URL…\" write this file";
        reader.problem(&tree.endpoints.place, message.to_owned());
    }
    endpoints
}

fn check_one(
    at: usize,
    endpoint: &Field<Endpoint>,
    environment: &Environment,
    reader: &mut Reader,
) -> Option<EndpointConfig> {
    let path = format!("endpoints[{at}]");
    let models = check_models(&path, endpoint, reader);
    let source = format!("{path}.api_key");
    let keys = secret::Keys { name: &source, variable: &endpoint.api_key_env, file: &endpoint.api_key_file };
    let api_key = secret::check(&keys, environment, reader);
    let url = check_url(&path, &endpoint.url, reader);
    let zeros = [
        ("batch_capacity", endpoint.batch_capacity.value == Some(0), &endpoint.batch_capacity.place),
        ("kv_capacity_tokens", endpoint.kv_capacity_tokens.value == Some(0), &endpoint.kv_capacity_tokens.place),
    ];
    for (key, _, place) in zeros.into_iter().filter(|(_, is_zero, _)| *is_zero) {
        let message = format!("{path}.{key}: 0 is no capacity; write 1 or more, or leave it out: the engine tells");
        reader.problem(place, message);
    }
    for (key, text) in [("fabric", &endpoint.fabric), ("gpu_class", &endpoint.gpu_class)] {
        check_name(text, &format!("{path}.{key}"), reader);
    }
    if endpoint.weight.value == 0 {
        let message = format!("{path}.weight: 0 would never be chosen; write 1 or more, or leave the endpoint out");
        reader.problem(&endpoint.weight.place, message);
    }
    if endpoint.batch_capacity.value == Some(0) {
        let message = format!("{path}.batch_capacity: must be 1 or more; leave it out to have it learned");
        reader.problem(&endpoint.batch_capacity.place, message);
    }
    if endpoint.scheduling.value == Scheduling::Priority && endpoint.engine.value == EngineKind::LlamaCpp {
        let message = format!("{path}.scheduling: llamacpp takes its queue in order of arrival only; write fifo");
        reader.problem(&endpoint.scheduling.place, message);
    }
    let health_path = check_path(&format!("{path}.health_path"), &endpoint.health_path, reader);
    let metrics_path = match endpoint.metrics_path.value.as_deref() {
        Some("off" | "false") => MetricsPath::Off,
        _ => match check_path(&format!("{path}.metrics_path"), &endpoint.metrics_path, reader) {
            Some(text) => MetricsPath::Path(text),
            None => MetricsPath::Default,
        },
    };
    let tls_ca = check_tls(&path, endpoint, url.as_ref(), reader);
    let url = url?;
    let name = match &endpoint.name.value {
        Some(name) => {
            check_name(
                &Field { value: name.clone(), place: endpoint.name.place.clone() },
                &format!("{path}.name"),
                reader,
            );
            name.clone()
        }
        None => url.authority(),
    };
    Some(EndpointConfig {
        name,
        host_header: url.host_header(),
        url,
        models,
        engine: endpoint.engine.value,
        fabric: endpoint.fabric.value.clone(),
        gpu_class: endpoint.gpu_class.value.clone(),
        priority: endpoint.priority.value,
        weight: endpoint.weight.value,
        api_key_source: api_key.as_ref().map(|found| found.source.clone()),
        api_key: api_key.map(|found| found.secret),
        health_path,
        metrics_path,
        metrics: check_metrics(&path, &endpoint.metrics, reader),
        batch_capacity: endpoint.batch_capacity.value,
        scheduling: endpoint.scheduling.value,
        kv_capacity_tokens: endpoint.kv_capacity_tokens.value,
        tls_ca,
    })
}

fn check_url(path: &str, text: &Field<String>, reader: &mut Reader) -> Option<EngineUrl> {
    EngineUrl::parse(text).map_err(|message| reader.problem(&text.place, format!("{path}.url: {message}"))).ok()
}

/// Reads the authorities; whether they are of use is seen when they are put to use.
fn check_tls(
    path: &str,
    endpoint: &Field<Endpoint>,
    url: Option<&EngineUrl>,
    reader: &mut Reader,
) -> Option<Authorities> {
    let tls = endpoint.tls.value.as_ref()?;
    let file = tls.ca.value.as_ref().filter(|file| !file.is_empty())?;
    if let Some(url) = url.filter(|url| url.scheme != Scheme::Https) {
        let message = format!("{path}.tls: {url} is reached without TLS; write https://… or leave tls out");
        reader.problem(&endpoint.tls.place, message);
        return None;
    }
    let text = secret::read_file(file, CA_BYTES_MAX).and_then(|pem| {
        let is_pem = pem.contains("-----BEGIN CERTIFICATE-----");
        if is_pem { Ok(pem) } else { Err(format!("file {file} holds no certificate in PEM")) }
    });
    match text {
        Ok(pem) => Some(Authorities { file: file.clone(), pem }),
        Err(message) => {
            reader.problem(&tls.ca.place, format!("{path}.tls.ca: {message}"));
            None
        }
    }
}

fn check_models(path: &str, endpoint: &Field<Endpoint>, reader: &mut Reader) -> Vec<ServedModel> {
    let several = &endpoint.models;
    let served = |name: &Field<String>, served_as: &Field<Option<String>>| ServedModel {
        name: name.value.clone(),
        served_as: served_as.value.clone().unwrap_or_else(|| name.value.clone()),
    };
    match (&endpoint.model.value, several.is_empty()) {
        (Some(_), false) => {
            let message = format!("{path}: model and models are both given; keep one");
            reader.problem(&several.place, message);
            Vec::new()
        }
        (None, true) => {
            let is_said =
                reader.misspelt.contains(&endpoint.place) || several.place != Place::Default && reader.has_lost_items;
            if !is_said {
                let right = "write model: NAME, or models: [{ name: NAME }] for several";
                reader.problem(&endpoint.place, format!("{path}: no model is named; {right}"));
            }
            Vec::new()
        }
        (Some(name), true) => {
            let name = Field { value: name.clone(), place: endpoint.model.place.clone() };
            check_model_name(&name, &format!("{path}.model"), reader);
            check_served_as(&endpoint.served_as, &format!("{path}.served_as"), reader);
            vec![served(&name, &endpoint.served_as)]
        }
        (None, false) => {
            if endpoint.served_as.is_some() {
                let message =
                    format!("{path}.served_as: belongs to model; under models each entry has its own served_as");
                reader.problem(&endpoint.served_as.place, message);
            }
            let mut models: Vec<ServedModel> = Vec::new();
            let mut names: HashSet<&str> = HashSet::new();
            for (at, model) in several.iter().enumerate() {
                check_model_name(&model.name, &format!("{path}.models[{at}].name"), reader);
                check_served_as(&model.served_as, &format!("{path}.models[{at}].served_as"), reader);
                if !names.insert(&model.name) {
                    let message =
                        format!("{path}.models[{at}].name: {:?} is there already; keep one", model.name.value);
                    reader.problem(&model.name.place, message);
                }
                models.push(served(&model.name, &model.served_as));
            }
            models
        }
    }
}

/// Whether an engine's own name for a model can be sent to it as it is: spaces are that engine's affair, bytes that end
/// a line or a field are not.
fn check_served_as(field: &Field<Option<String>>, what: &str, reader: &mut Reader) {
    let Some(name) = field.value.as_deref() else { return };
    if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
        let right = "use 1 to 256 bytes without control characters, as the engine's /v1/models lists it";
        reader.problem(&field.place, format!("{what}: {name:?} is not a name; {right}"));
    }
}

fn check_path(what: &str, path: &Field<Option<String>>, reader: &mut Reader) -> Option<String> {
    let text = path.value.as_deref()?;
    if !text.starts_with('/') || text.len() > 1024 || !text.bytes().all(|b| b.is_ascii_graphic()) {
        reader.problem(&path.place, format!("{what}: {text:?} is not a path; write for example /health"));
    }
    Some(text.to_owned())
}

fn check_metrics(path: &str, names: &MetricNames, reader: &mut Reader) -> Vec<(&'static str, String)> {
    let fields = [
        ("waiting", &names.waiting),
        ("running", &names.running),
        ("kv_usage", &names.kv_usage),
        ("prompt_tokens", &names.prompt_tokens),
        ("generation_tokens", &names.generation_tokens),
        ("prefix_hits", &names.prefix_hits),
        ("prefix_queries", &names.prefix_queries),
        ("block_size", &names.block_size),
        ("block_count", &names.block_count),
        ("kv_capacity_tokens", &names.kv_capacity_tokens),
        ("requests_completed", &names.requests_completed),
    ];
    let mut overrides = Vec::new();
    for (key, field) in fields {
        let Some(text) = field.value.as_deref() else { continue };
        let path = format!("{path}.metrics.{key}");
        let is_right = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':');
        if text.starts_with(|c: char| c.is_ascii_digit()) || text.len() > 256 || !text.bytes().all(is_right) {
            let right = "write for example \"vllm:num_requests_waiting\"";
            reader.problem(&field.place, format!("{path}: {text:?} is not a metric's name; {right}"));
        } else if text == "off" && matches!(key, "waiting" | "running") {
            let right = "an engine without it cannot be judged by its metrics, so set metrics_path: off";
            reader.problem(&field.place, format!("{path}: cannot be off; {right}"));
        }
        overrides.push((key, text.to_owned()));
    }
    overrides
}
