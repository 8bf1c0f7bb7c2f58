//! When requests wait: thresholds, queues and bands, the router's, a model's over them, a model profile's over those.

use std::time::Duration;

use llmgw_types::admission::BANDS_MAX;

use crate::config::{AdmissionConfig, BandConfig, ThresholdsConfig};
use crate::error::Place;
use crate::read::{Field, Reader, hint};
use crate::server::{Admission, Band, Model, Router};
use crate::values::one_of;

use super::check_name;
use super::placement::own;

/// The values of one model; without one, of a model that only endpoints name.
pub(super) fn of(router: &Router, model: Option<&Model>) -> AdmissionConfig {
    let base = &router.admission.value;
    let written = model.and_then(|model| model.admission.value.as_ref());
    macro_rules! value {
        ($key:ident) => {
            own(written.map(|admission| &admission.$key), &base.$key)
        };
    }
    let thresholds = ThresholdsConfig {
        target_waiting_per_replica: value!(target_waiting_per_replica).value,
        kv_ceiling: value!(kv_ceiling).as_f64(),
        kv_by_band: value!(kv_by_band).value,
    };
    let profiles = model.map(|model| model.profiles.value.as_slice()).unwrap_or_default();
    let by_gpu_class = profiles.iter().filter_map(|profile| {
        let written = profile.admission.value.as_ref()?;
        Some((profile.gpu_class.value.clone(), over(thresholds, written)))
    });
    let mut bands: Vec<BandConfig> = value!(bands).iter().map(band).collect();
    bands.sort_by_key(|band| band.priority);
    AdmissionConfig {
        thresholds,
        by_gpu_class: by_gpu_class.collect(),
        queue_ttl: value!(queue_ttl).0,
        heartbeat: value!(heartbeat).value,
        queue_capacity_per_band: value!(queue_capacity_per_band).value,
        queue_capacity_total: value!(queue_capacity_total).value,
        queue_bytes_max: value!(queue_bytes_max).0,
        bands,
    }
}

/// A model's thresholds, but for those that one of its profiles writes.
fn over(model: ThresholdsConfig, written: &Admission) -> ThresholdsConfig {
    let is_written = |place: &Place| *place != Place::Default;
    let mut own = model;
    if is_written(&written.target_waiting_per_replica.place) {
        own.target_waiting_per_replica = written.target_waiting_per_replica.value;
    }
    if is_written(&written.kv_ceiling.place) {
        own.kv_ceiling = written.kv_ceiling.as_f64();
    }
    if is_written(&written.kv_by_band.place) {
        own.kv_by_band = written.kv_by_band.value;
    }
    own
}

fn band(band: &Field<Band>) -> BandConfig {
    BandConfig {
        name: band.name.value.clone(),
        priority: band.priority.value,
        saturation_ceiling: band.saturation_ceiling.as_f64(),
        capacity_share: band.capacity_share.as_f64(),
    }
}

/// What a model of the catalog writes, and its profiles. `gpu_classes` are those that serve it.
pub(super) fn check_model(path: &str, model: &Model, gpu_classes: &[&str], reader: &mut Reader) {
    if let Some(admission) = &model.admission.value {
        check(&format!("{path}.admission"), admission, reader);
    }
    let mut seen: Vec<&str> = Vec::new();
    for (at, profile) in model.profiles.iter().enumerate() {
        let path = format!("{path}.profiles[{at}]");
        check_name(&profile.name, &format!("{path}.name"), reader);
        let Some(admission) = &profile.admission.value else { continue };
        check_target(&format!("{path}.admission"), admission, reader);
        let queue = [
            ("queue_ttl", &admission.queue_ttl.place),
            ("heartbeat", &admission.heartbeat.place),
            ("queue_capacity_per_band", &admission.queue_capacity_per_band.place),
            ("queue_capacity_total", &admission.queue_capacity_total.place),
            ("queue_bytes_max", &admission.queue_bytes_max.place),
            ("bands", &admission.bands.place),
        ];
        for (key, place) in queue.into_iter().filter(|(_, place)| **place != Place::Default) {
            let message = format!(
                "{path}.admission.{key}: the model's profiles share one queue; write it in models[].admission, and \
                 here only target_waiting_per_replica, kv_ceiling and kv_by_band"
            );
            reader.problem(place, message);
        }
        let class = profile.gpu_class.value.as_str();
        if seen.contains(&class) {
            let message = format!(
                "{path}.admission: another profile has thresholds for {class:?} already; a pool is one GPU class, so \
                 write them once for it"
            );
            reader.problem(&profile.admission.place, message);
        } else if !gpu_classes.contains(&class) && !reader.has_lost_items {
            let hint = hint(class, gpu_classes);
            let end = if hint.is_empty() { format!("; expected {}", one_of(gpu_classes)) } else { hint };
            let message = format!("{path}.gpu_class: no endpoint of the model is on {class:?}{end}");
            reader.problem(&profile.gpu_class.place, message);
        }
        seen.push(class);
    }
}

/// The least time between two heartbeats.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

fn check_heartbeat(path: &str, admission: &Admission, reader: &mut Reader) {
    let every = &admission.heartbeat;
    if !every.value.is_zero() && every.value < HEARTBEAT_MIN {
        let message = format!("{path}.heartbeat: must be {HEARTBEAT_MIN:?} or more, or 0s for none");
        reader.problem(&every.place, message);
    }
}

fn check_target(path: &str, admission: &Admission, reader: &mut Reader) {
    if admission.target_waiting_per_replica.value == 0 {
        let message = format!("{path}.target_waiting_per_replica: must be 1 or more");
        reader.problem(&admission.target_waiting_per_replica.place, message);
    }
}

/// Bands have names and priorities of their own, and no band is held tighter than a lower one.
pub(super) fn check(path: &str, admission: &Admission, reader: &mut Reader) {
    check_target(path, admission, reader);
    check_heartbeat(path, admission, reader);
    let mut bands: Vec<&Field<Band>> = admission.bands.iter().take(BANDS_MAX).collect();
    if bands.len() < admission.bands.len() {
        reader.problem(&admission.bands.place, format!("{path}.bands: at most {BANDS_MAX} bands are taken"));
    }
    if bands.is_empty() && !reader.has_lost_items {
        let message = format!("{path}.bands: at least one band is needed; leave bands out for the four usual ones");
        reader.problem(&admission.bands.place, message);
    }
    for (at, band) in bands.iter().enumerate() {
        check_name(&band.name, &format!("{path}.bands[{at}].name"), reader);
        let earlier = bands.get(..at).unwrap_or_default();
        if earlier.iter().any(|other| *other.name == *band.name) {
            reader.problem(
                &band.name.place,
                format!("{path}.bands: {:?} is there already; names are unique", *band.name),
            );
        } else if earlier.iter().any(|other| *other.priority == *band.priority) {
            let message = format!("{path}.bands: priority {} is another band's; priorities are unique", *band.priority);
            reader.problem(&band.priority.place, message);
        }
    }
    bands.sort_by_key(|band| band.priority.value);
    for (lower, higher) in bands.iter().zip(bands.iter().skip(1)) {
        let mut check = |key: &str, low: f64, high: f64, place: &Place| {
            if high < low {
                let message = format!(
                    "{path}.bands: {key} of {} ({high}) is under that of {} ({low}); it may not fall as priority \
                     rises, so write {low} or more",
                    higher.name.value, lower.name.value
                );
                let place = if *place == Place::Default { &higher.place } else { place };
                reader.problem(place, message);
            }
        };
        let (low, high) = (&lower.saturation_ceiling, &higher.saturation_ceiling);
        check("saturation_ceiling", low.as_f64(), high.as_f64(), &high.place);
        let (low, high) = (&lower.capacity_share, &higher.capacity_share);
        check("capacity_share", low.as_f64(), high.as_f64(), &high.place);
    }
}
