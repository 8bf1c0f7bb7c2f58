//! The router's section: limits, timeouts, and what has rooms of its own.

use std::time::Duration;

use crate::config::{LimitsConfig, RouterConfig, TimeoutsConfig};
use crate::read::Reader;
use crate::server::{Router, Timeouts};

use super::{admission, placement, profile};

/// The smallest bound on a request's head that still lets ordinary clients in, in bytes.
const HEADER_BYTES_MIN: u64 = 1 << 10;
/// The largest: heads are held in memory while they arrive, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// The most header fields that may be allowed.
const HEADER_COUNT_MAX: u16 = 1024;

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
    admission::check("router.admission", &router.admission, reader);
    placement::check_prefix("router.prefix", &router.prefix, reader);
    placement::check_table(&router.prefix.approx_tree, reader);
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
        prefix_table_slots: router.prefix.approx_tree.max_tree_size.value,
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
