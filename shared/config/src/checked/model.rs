//! The catalog beside the endpoints: every public name means one model, and every reference leads somewhere.

use std::collections::{HashMap, HashSet};

use llmgw_types::snapshot::Units;

use crate::config::{EndpointConfig, ModelConfig, RouterConfig};
use crate::read::{Field, Reader, hint};
use crate::server::{self, ServerTree};
use crate::values::Weight;

use super::{admission, check_model_name, placement, profile};

/// Every public model: the catalog's, then those that only endpoints name.
pub(super) fn check(
    tree: &ServerTree,
    endpoints: &[EndpointConfig],
    router: &RouterConfig,
    reader: &mut Reader,
) -> Vec<ModelConfig> {
    let mut served: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for model in endpoints.iter().flat_map(|endpoint| &endpoint.models) {
        if seen.insert(model.name.as_str()) {
            served.push(&model.name);
        }
    }
    let mut models: Vec<ModelConfig> = Vec::new();
    let mut meaning: HashMap<&str, String> = served.iter().map(|name| (*name, format!("the model {name:?}"))).collect();
    let mut catalog: HashSet<&str> = HashSet::new();
    for (at, model) in tree.models.iter().enumerate() {
        let path = format!("models[{at}]");
        check_model_name(&model.name, &format!("{path}.name"), reader);
        if !catalog.insert(&model.name) {
            reader.problem(
                &model.name.place,
                format!("{path}.name: {:?} is in the catalog already; keep one", *model.name),
            );
        }
        if !meaning.contains_key(model.name.as_str()) && !reader.has_lost_items {
            let hint = hint(&model.name, &served);
            let message = format!("{path}.name: no endpoint serves {:?}{hint}", *model.name);
            reader.problem(&model.name.place, message);
        }
        meaning.entry(&model.name).or_insert_with(|| format!("the model {:?}", *model.name));
        admission::check_model(&path, model, &gpu_classes(endpoints, &model.name), reader);
        placement::check_model(&path, model, &gpu_classes(endpoints, &model.name), reader);
        if let Some(name) = &model.routing_profile.value {
            let named = Field { value: name.clone(), place: model.routing_profile.place.clone() };
            profile::check_reference(&format!("{path}.routing_profile"), &named, &router.profiles, reader);
        }
    }
    for (at, model) in tree.models.iter().enumerate() {
        for (nth, alias) in model.aliases.iter().enumerate() {
            let path = format!("models[{at}].aliases[{nth}]");
            check_model_name(alias, &path, reader);
            if let Some(other) = meaning.get(alias.as_str()) {
                reader.problem(&alias.place, format!("{path}: {:?} is {other} already; choose another name", **alias));
            } else {
                meaning.insert(alias, format!("an alias of {:?}", *model.name));
            }
        }
    }
    let names: Vec<&str> = served.iter().copied().chain(tree.models.iter().map(|model| model.name.as_str())).collect();
    let known: HashSet<&str> = names.iter().copied().collect();
    for (at, model) in tree.models.iter().enumerate() {
        let cheaper = model.budget_fallback.value.clone();
        let cheaper = cheaper.map(|value| Field { value, place: model.budget_fallback.place.clone() });
        let fallbacks = model.fallbacks.iter().enumerate().map(|(nth, name)| (format!("fallbacks[{nth}]"), name));
        for (key, fallback) in fallbacks.chain(cheaper.iter().map(|name| ("budget_fallback".to_owned(), name))) {
            let path = format!("models[{at}].{key}");
            if fallback.value == model.name.value {
                reader.problem(&fallback.place, format!("{path}: a model cannot stand in for itself; name another"));
            } else if !known.contains(fallback.as_str()) && !reader.has_lost_items {
                let hint = hint(fallback, &names);
                reader.problem(&fallback.place, format!("{path}: no model is called {:?}{hint}", **fallback));
            }
        }
        models.push(ModelConfig {
            name: model.name.value.clone(),
            aliases: model.aliases.iter().map(|alias| alias.value.clone()).collect(),
            fallbacks: model.fallbacks.iter().map(|fallback| fallback.value.clone()).collect(),
            budget_fallback: model.budget_fallback.value.clone(),
            routing_profile: model.routing_profile.value.clone().unwrap_or_else(|| router.default_profile.clone()),
            placement: placement::of(&tree.router, Some(model)),
            admission: admission::of(&tree.router, Some(model)),
            units: units(&model.units),
        });
    }
    models.extend(served.iter().filter(|name| !catalog.contains(*name)).map(|name| ModelConfig {
        name: (*name).to_owned(),
        aliases: Vec::new(),
        fallbacks: Vec::new(),
        budget_fallback: None,
        routing_profile: router.default_profile.clone(),
        placement: placement::of(&tree.router, None),
        admission: admission::of(&tree.router, None),
        units: Units::default(),
    }));
    models
}

/// Weights as whole millionths; one that is larger than those go is as large as they go.
fn units(weights: &server::Units) -> Units {
    let micros = |weight: Weight| (weight.as_f64() * 1e6).round() as u64;
    Units {
        prompt_micros: micros(weights.prompt.value),
        cached_micros: micros(weights.cached.value),
        completion_micros: micros(weights.completion.value),
        gpu_second_micros: micros(weights.gpu_second.value),
    }
}

/// The GPU classes that serve a model.
fn gpu_classes<'e>(endpoints: &'e [EndpointConfig], model: &str) -> Vec<&'e str> {
    let serves = |endpoint: &&EndpointConfig| endpoint.models.iter().any(|served| served.name == model);
    endpoints.iter().filter(serves).map(|endpoint| endpoint.gpu_class.as_str()).collect()
}
