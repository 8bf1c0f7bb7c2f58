//! `/healthz`: the process lives. `/readyz`: it wants traffic.

use crate::core::Core;

/// The body of `/readyz`, and its status.
pub(crate) fn ready(core: &Core) -> (u16, Vec<u8>) {
    let (ready, known) = core.readiness.endpoints();
    let status = if core.readiness.is_ready() && core.tables().is_some() { 200 } else { 503 };
    let word = match status {
        200 => "ready",
        _ if core.readiness.is_settling() => "stopping",
        _ => "no endpoint is ready",
    };
    (status, format!("{{\"status\":\"{word}\",\"endpoints_ready\":{ready},\"endpoints\":{known}}}\n").into_bytes())
}
