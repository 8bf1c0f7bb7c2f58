//! What a model's engines are chosen by: the router's values, but for those that the model writes itself.

use crate::config::{PlacementConfig, PrefixConfig, SessionConfig};
use crate::error::Place;
use crate::read::{Field, Reader, hint};
use crate::server::{ApproxTree, Model, Prefix, Router};
use crate::values::one_of;

/// The longest name of a session's header.
const HEADER_NAME_MAX: usize = 64;
/// Fewer slots than this hold no conversation.
const TABLE_SLOTS_MIN: u32 = 1024;
/// Slots of 72 bytes: 600 MB.
const TABLE_SLOTS_MAX: u32 = 1 << 23;

/// The values of one model; without one, of a model that only endpoints name.
pub(super) fn of(router: &Router, model: Option<&Model>) -> PlacementConfig {
    let prefix = model.and_then(|model| model.prefix.value.as_ref());
    let affinity = &router.prefix.session_affinity.value;
    let of_model = prefix.map(|prefix| &prefix.session_affinity.value);
    let enabled = own(of_model.map(|affinity| &affinity.enabled), &affinity.enabled);
    let header = own(of_model.map(|affinity| &affinity.header), &affinity.header);
    let factor = own(of_model.map(|affinity| &affinity.load_factor), &affinity.load_factor);
    PlacementConfig {
        session: enabled
            .value
            .then(|| SessionConfig { header: header.to_ascii_lowercase(), load_factor: factor.as_f64() }),
        prefix: tree(&router.prefix.approx_tree, prefix.map(|prefix| &prefix.approx_tree.value), None),
        prefix_by_gpu_class: model.map(|model| by_gpu_class(router, model)).unwrap_or_default(),
    }
}

fn by_gpu_class(router: &Router, model: &Model) -> Vec<(String, Option<PrefixConfig>)> {
    let of_model = model.prefix.value.as_ref().map(|prefix| &prefix.approx_tree.value);
    let own = model.profiles.iter().filter_map(|profile| {
        let of_profile = &profile.prefix.value.as_ref()?.approx_tree.value;
        Some((profile.gpu_class.value.clone(), tree(&router.prefix.approx_tree, of_model, Some(of_profile))))
    });
    own.collect()
}

/// The router's values, the model's over them, its profile's over those.
fn tree(router: &ApproxTree, of_model: Option<&ApproxTree>, of_profile: Option<&ApproxTree>) -> Option<PrefixConfig> {
    macro_rules! value {
        ($key:ident) => {
            own(of_profile.map(|tree| &tree.$key), own(of_model.map(|tree| &tree.$key), &router.$key))
        };
    }
    value!(enabled).value.then(|| PrefixConfig {
        cache_threshold: value!(cache_threshold).as_f64(),
        balance_abs_threshold: value!(balance_abs_threshold).value,
        balance_rel_threshold: value!(balance_rel_threshold).as_f64(),
    })
}

/// What a model of the catalog writes, and its profiles. `gpu_classes` are those that serve it.
pub(super) fn check_model(path: &str, model: &Model, gpu_classes: &[&str], reader: &mut Reader) {
    if let Some(prefix) = &model.prefix.value {
        check_prefix(&format!("{path}.prefix"), prefix, reader);
        check_shared(&format!("{path}.prefix"), &prefix.approx_tree, reader);
    }
    let mut seen: Vec<&str> = Vec::new();
    for (at, profile) in model.profiles.iter().enumerate() {
        let Some(prefix) = &profile.prefix.value else { continue };
        let path = format!("{path}.profiles[{at}]");
        check_shared(&format!("{path}.prefix"), &prefix.approx_tree, reader);
        let affinity = &prefix.session_affinity;
        let places = [&affinity.enabled.place, &affinity.header.place, &affinity.load_factor.place];
        if let Some(place) = places.into_iter().find(|place| **place != Place::Default) {
            let message = format!(
                "{path}.prefix.session_affinity: a session's requests may go to any pool of the model; write it in \
                 models[].prefix, and here only approx_tree"
            );
            reader.problem(place, message);
        }
        let class = profile.gpu_class.value.as_str();
        if seen.contains(&class) {
            let message = format!(
                "{path}.prefix: another profile has values for {class:?} already; a pool is one GPU class, so write \
                 them once for it"
            );
            reader.problem(&profile.prefix.place, message);
        } else if !gpu_classes.contains(&class) && !reader.has_lost_items && profile.admission.value.is_none() {
            let hint = hint(class, gpu_classes);
            let end = if hint.is_empty() { format!("; expected {}", one_of(gpu_classes)) } else { hint };
            let message = format!("{path}.gpu_class: no endpoint of the model is on {class:?}{end}");
            reader.problem(&profile.gpu_class.place, message);
        }
        seen.push(class);
    }
}

/// There is one table.
fn check_shared(path: &str, tree: &ApproxTree, reader: &mut Reader) {
    if tree.max_tree_size.place != Place::Default {
        let message = format!(
            "{path}.approx_tree.max_tree_size: one table serves all models; write it in router.prefix.approx_tree"
        );
        reader.problem(&tree.max_tree_size.place, message);
    }
}

/// The table's size must be one that can be had.
pub(super) fn check_table(tree: &ApproxTree, reader: &mut Reader) {
    if !(TABLE_SLOTS_MIN..=TABLE_SLOTS_MAX).contains(&tree.max_tree_size.value) {
        let message = format!(
            "router.prefix.approx_tree.max_tree_size: must be from {TABLE_SLOTS_MIN} to {TABLE_SLOTS_MAX}; a slot \
             takes 72 bytes once it is needed"
        );
        reader.problem(&tree.max_tree_size.place, message);
    }
}

/// A session's header must be one that a client can send.
pub(super) fn check_prefix(path: &str, prefix: &Prefix, reader: &mut Reader) {
    let header = &prefix.session_affinity.header;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if header.is_empty() || header.len() > HEADER_NAME_MAX || !header.bytes().all(is_token) {
        let message = format!(
            "{path}.session_affinity.header: {:?} is no header name; use letters, digits and dashes, at most \
             {HEADER_NAME_MAX}",
            header.value
        );
        reader.problem(&header.place, message);
    }
}

/// What the model writes, else what the router has.
pub(super) fn own<'f, T>(of_model: Option<&'f Field<T>>, of_router: &'f Field<T>) -> &'f Field<T> {
    of_model.filter(|field| field.place != Place::Default).unwrap_or(of_router)
}
