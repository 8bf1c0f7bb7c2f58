//! The part of the configuration that requests are held to, as cores take it.
//!
//! Called for the first publication and after every reload. Decides nothing: a key's value goes to its place.

use llmgw_config::ServerConfig;
use llmgw_router::settings::{Limits, Settings, Timeouts};

/// The settings of a configuration.
pub fn settings(config: &ServerConfig) -> Settings {
    let (limits, timeouts) = (&config.router.limits, &config.router.timeouts);
    Settings {
        limits: Limits {
            header_bytes: usize::try_from(limits.header_bytes).unwrap_or(usize::MAX),
            headers: limits.header_count.into(),
            body_bytes: limits.body_bytes,
        },
        timeouts: Timeouts {
            connect: timeouts.connect,
            first_token: timeouts.first_token,
            between_events: timeouts.between_events,
            total: timeouts.total,
            drain: timeouts.drain,
            client_header: timeouts.client_header,
            client_body: timeouts.client_body,
            client_idle: timeouts.client_idle,
        },
        retries: config.router.retries,
        cooldown: config.router.cooldown,
        inject_usage: config.router.inject_usage,
    }
}
