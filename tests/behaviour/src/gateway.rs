//! Our own gateway before the suite's engines, with the limits the checks go by.

use std::path::{Path, PathBuf};
use std::time::Duration;

use llmgw_test_kit::Gateway;

use crate::args::Limits;
use crate::upstream::Engines;

/// Starts the built gateway.
///
/// Errors: the program is not there.
pub(crate) fn start(program: Option<&Path>, engines: &Engines, limits: &Limits) -> Result<Gateway, String> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => beside()?,
    };
    if !program.is_file() {
        return Err(format!("{} is not there: build it, or name it with --llmgw", program.display()));
    }
    let seconds = |limit: Option<Duration>| limit.unwrap_or(Duration::from_secs(3600)).as_secs();
    let timeouts = format!(
        "timeouts: {{ connect: 1s, first_token: {engine}s, between_events: {engine}s, client_header: {}s, \
         client_body: {}s, client_idle: {}s }}",
        seconds(limits.head),
        seconds(limits.body),
        seconds(limits.idle),
        engine = seconds(limits.engine),
    );
    let size = limits.size.unwrap_or(1 << 30);
    let mut builder = Gateway::builder()
        .router(&timeouts)
        .router(&format!("limits: {{ body: {size}B }}"))
        .router("cooldown_seconds: 1")
        // Prompts that are the same would all go to one engine, and each check wants its own.
        .router("prefix: { approx_tree: { enabled: false } }")
        .env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s");
    for addr in engines.addrs() {
        builder = builder.url(&format!("http://{addr}"));
    }
    Ok(builder.start(&program))
}

/// The gateway that was built with this program.
fn beside() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("where this program is, is not known: {error}"))?;
    Ok(own.with_file_name("llmgw"))
}
