//! The router's section: limits, timeouts, bands.

use std::time::Duration;

use crate::config::{LimitsConfig, RouterConfig, TimeoutsConfig};
use crate::error::Place;
use crate::read::{Field, Reader};
use crate::server::{Admission, Band, Router, Timeouts};

use super::{check_name, placement, profile};

/// The smallest bound on a request's head that still lets ordinary clients in, in bytes.
const HEADER_BYTES_MIN: u64 = 1 << 10;
/// The largest: heads are held in memory while they arrive, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// The most header fields that may be allowed.
const HEADER_COUNT_MAX: u16 = 1024;

/// The most bands: each costs a place in every pool's gate.
const BAND_COUNT_MAX: usize = 16;

pub(super) fn check(router: &Router, reader: &mut Reader) -> RouterConfig {
    let limits = LimitsConfig {
        body_bytes: router.limits.body.0,
        header_bytes: router.limits.header.0,
        header_count: router.limits.headers.value,
    };
    if !(HEADER_BYTES_MIN..=HEADER_BYTES_MAX).contains(&limits.header_bytes) {
        let message = "router.limits.header: must be from 1KiB to 1MiB".to_owned();
        reader.problem(&router.limits.header.place, message);
    }
    if !(8..=HEADER_COUNT_MAX).contains(&limits.header_count) {
        let message = format!("router.limits.headers: must be from 8 to {HEADER_COUNT_MAX}");
        reader.problem(&router.limits.headers.place, message);
    }
    check_admission("router.admission", Some(&router.admission), reader);
    placement::check_prefix("router.prefix", &router.prefix, reader);
    let profiles = profile::check(&router.profiles, reader);
    profile::check_reference("router.default_profile", &router.default_profile, &profiles, reader);
    RouterConfig {
        scrape_interval: router.scrape_interval.0,
        inject_usage: router.inject_usage.value,
        retries: router.retries.value,
        cooldown: Duration::from_secs(router.cooldown_seconds.value.into()),
        endpoint_cache_max_age: router.endpoint_cache_max_age.0,
        limits,
        timeouts: timeouts(&router.timeouts),
        default_profile: router.default_profile.value.clone(),
        profiles,
    }
}

fn timeouts(timeouts: &Timeouts) -> TimeoutsConfig {
    TimeoutsConfig {
        connect: timeouts.connect.0,
        first_token: timeouts.first_token.0,
        between_events: timeouts.between_events.0,
        total: timeouts.total.0,
        client_header: timeouts.client_header.0,
        client_body: timeouts.client_body.0,
        client_idle: timeouts.client_idle.0,
        drain: timeouts.drain.0,
        settle: timeouts.settle.value,
    }
}

/// Bands have names and priorities of their own, and no band is held tighter than a lower one.
pub(super) fn check_admission(path: &str, admission: Option<&Admission>, reader: &mut Reader) {
    let Some(admission) = admission else { return };
    if admission.target_waiting_per_replica.value == 0 {
        let message = format!("{path}.target_waiting_per_replica: must be 1 or more");
        reader.problem(&admission.target_waiting_per_replica.place, message);
    }
    let mut bands: Vec<&Field<Band>> = admission.bands.iter().take(BAND_COUNT_MAX).collect();
    if bands.len() < admission.bands.len() {
        reader.problem(&admission.bands.place, format!("{path}.bands: at most {BAND_COUNT_MAX} bands are taken"));
    }
    if bands.is_empty() && !reader.has_lost_items {
        reader.problem(&admission.bands.place, format!("{path}.bands: at least one band is needed"));
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
                    "{path}.bands: {key} of {} ({high}) is under that of {} ({low}); it may not fall as priority rises",
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
