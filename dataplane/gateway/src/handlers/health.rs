//! `/healthz`: the process lives. `/readyz`: it wants traffic.

use llmgw_kit::clock::Mono;
use llmgw_router::readiness::Standing;
use llmgw_types::BoardSlot;

use crate::core::Core;

/// The body of `/readyz`, and its status.
pub(crate) fn ready(core: &Core) -> (u16, Vec<u8>) {
    let standing = core.tables().map(|tables| {
        let slots = tables.routes().endpoints.iter().map(|endpoint| BoardSlot(endpoint.slot.to_native()));
        Standing::of(&core.board, slots, Mono::now())
    });
    let standing = standing.unwrap_or_default();
    let (is_ready, word) = core.readiness.judge(&standing);
    let Standing { known, ready, draining, out } = standing;
    let body = format!(
        "{{\"status\":\"{word}\",\"endpoints_ready\":{ready},\"endpoints_draining\":{draining},\
         \"endpoints_out\":{out},\"endpoints\":{known}}}\n"
    );
    (if is_ready { 200 } else { 503 }, body.into_bytes())
}
