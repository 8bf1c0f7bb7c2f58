//! A request before its limits: it reserves what it may use of them, or is refused. Called by `serve` once the model is
//! known: what a limit refuses has asked no engine. The rules and words are those of the gateway's own `quota`.

use llmgw_gateway::error::ApiError;
use llmgw_gateway::quota::{LimitAsk, Outcome, cheaper};

use crate::arrived::{Arrived, Resolved};
use crate::finish::Finish;
use crate::state::Gateway;
use crate::tables::Tables;

/// Reserves the most that the request may use, at every level above its key. Where a budget does not hold it, it is
/// decided anew as the model that stands in for its own then.
///
/// Errors: a limit is reached.
pub(crate) fn admit(
    gateway: &Gateway,
    tables: &Tables,
    ask: &LimitAsk,
    arrived: &mut Arrived<'_>,
    resolved: &mut Resolved,
    finish: &mut Finish,
) -> Result<(), ApiError> {
    let Some(keys) = &gateway.keys else { return Ok(()) };
    let limits = &keys.limits;
    let Some(model) = tables.routes().models.get(resolved.wanted.model as usize) else { return Ok(()) };
    let denied = match limits.reserve(model, ask, finish.now()) {
        Ok(reserved) => {
            finish.holds(reserved);
            return Ok(());
        }
        Err(denied) => denied,
    };
    if denied.is_by_budget()
        && let Some(cheaper) = cheaper(tables.routes(), resolved.wanted.model)
    {
        arrived.instead = Some(cheaper.to_owned());
        if let Ok(other) = arrived.resolve(gateway, tables)
            && let Some(model) = tables.routes().models.get(other.wanted.model as usize)
            && let Ok(reserved) = limits.reserve(model, ask, finish.now())
        {
            limits.count(|cells| Outcome::Fallback.count(cells));
            *resolved = other;
            finish.holds(reserved);
            return Ok(());
        }
        arrived.instead = None;
    }
    limits.count(|cells| denied.count(cells));
    finish.shows(denied.rates);
    Err(denied.error)
}
