//! A request before its limits: it reserves what it may use of them, or is refused.
//!
//! Called by `serve` once the model is known, before the gates: what a limit refuses has asked no engine and waits in
//! no queue. What is asked for and said is `quota`; what is left of limits, and who may have it, is `limits`.

use std::rc::Rc;

use llmgw_router::limiter::Now;

use crate::arrived::{Arrived, Resolved};
use crate::core::Core;
use crate::error::ApiError;
use crate::finish::Finish;
use crate::limits::{Held, Limits};
use crate::quota::{Denied, LimitAsk, Outcome, Rates, cheaper};
use crate::snapshot::Tables;

/// What came of it.
pub(crate) struct Reserved {
    /// What it holds; none where nothing limits it.
    pub(crate) held: Option<Held>,
    /// What answers show.
    pub(crate) rates: Option<Rates>,
}

impl LimitAsk {
    /// Reserves the most that the request may use, at every level above its key. Where a budget does not hold it, it is
    /// decided anew as the model that stands in for its own then.
    ///
    /// Errors: a limit is reached; nobody says whether.
    pub(crate) async fn admit(
        &self,
        core: &Core,
        tables: &Tables,
        arrived: &mut Arrived<'_>,
        resolved: &mut Resolved,
        finish: &mut Finish,
    ) -> Result<(), ApiError> {
        let denied = match self.reserve(&core.limiter, tables, resolved.wanted.model, finish.now()).await {
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
            if let Ok(other) = arrived.resolve(core, tables).await
                && let Ok(reserved) = self.reserve(&core.limiter, tables, other.wanted.model, finish.now()).await
            {
                Outcome::Fallback.count(&core.cells);
                *resolved = other;
                finish.holds(reserved);
                return Ok(());
            }
            arrived.instead = None;
        }
        denied.count(&core.cells);
        finish.shows(denied.rates);
        Err(denied.error)
    }

    async fn reserve(
        &self,
        limits: &Rc<Limits>,
        tables: &Tables,
        model: u32,
        now: Now,
    ) -> Result<Reserved, Box<Denied>> {
        let route = tables.routes().models.get(model as usize);
        let chain = route.and_then(|route| limits.chain_of(self.key().0, &route.name));
        let Some((route, chain)) = route.zip(chain) else { return Ok(Reserved { held: None, rates: None }) };
        let ask = self.amounts(route.units.to_units());
        match limits.reserve(chain, ask, now).await {
            Ok(held) => {
                let remaining = held.as_ref().map(|held| held.remaining);
                let rates = remaining.and_then(|remaining| Rates::of(&limits.table(), chain, remaining, None));
                Ok(Reserved { held, rates })
            }
            Err(why) => Err(Box::new(Denied::of(&limits.table(), chain, why, &ask))),
        }
    }
}
