//! A request whose body is at hand, and what the tables of the moment make of it: its model, its wishes, who holds what
//! it follows.
//!
//! Called by `serve`, and by `reserve` once more for the model that stands in for one whose budget is spent.

use std::borrow::Cow;

use hyper::http::request::Parts;
use llmgw_gateway::error::ApiError;
use llmgw_gateway::identity::{Rights, Withheld};
use llmgw_gateway::intake::Intake;
use llmgw_gateway::resolve;
use llmgw_kit::clock::Mono;
use llmgw_router::Wanted;
use llmgw_types::tenants::Caller;

use crate::callers::{named, with_rights};
use crate::retry::Bounds;
use crate::routing::Routing;
use crate::serve::holder;
use crate::state::Gateway;
use crate::tables::Tables;

/// What a request is, whatever the tables say.
pub(crate) struct Arrived<'a> {
    pub(crate) head: &'a Parts,
    /// Who sends it; none where nobody is asked for a key.
    pub(crate) caller: Option<Caller>,
    pub(crate) intake: &'a Intake,
    /// Public name of the model that stands in for its own, whose budget is spent.
    pub(crate) instead: Option<String>,
    /// When its body had come.
    pub(crate) received: Mono,
}

/// What it is by one set of tables.
pub(crate) struct Resolved {
    pub(crate) routing: Routing,
    pub(crate) wanted: Wanted<'static>,
    pub(crate) bounds: Bounds,
}

impl Arrived<'_> {
    /// What the request is by these tables.
    ///
    /// Errors: its model or its profile is not there, or not for its caller.
    pub(crate) fn resolve(&self, gateway: &Gateway, tables: &Tables) -> Result<Resolved, ApiError> {
        let mut resolved = with_rights(gateway, self.caller, |rights| self.decide(gateway, tables, rights))?;
        let holder = holder(gateway, self.caller.as_ref(), self.intake.previous_response().as_deref());
        if let Some(holder) = holder {
            resolved.wanted.pinned = Some(holder);
            resolved.bounds.leaves_pin = false;
        }
        Ok(resolved)
    }

    fn decide(&self, gateway: &Gateway, tables: &Tables, rights: Option<Rights<'_>>) -> Result<Resolved, ApiError> {
        let (table, intake, head) = (tables.routes(), self.intake, self.head);
        let name = self.instead.as_deref().map_or_else(|| intake.model(), Cow::Borrowed);
        let model = resolve::model(table, rights, &name)?;
        let row = table.models.get(model as usize);
        let withheld = row.map(|row| Withheld::of(rights, table, row)).unwrap_or_default();
        let tokens = u32::try_from(intake.prompt_tokens_estimate()).unwrap_or(u32::MAX);
        let routing = Routing::of(&head.headers, intake, table, model, rights.zip(self.caller.as_ref()))?;
        let pinned = row.zip(rights).map(|(row, rights)| named(gateway, tables, head, row, rights)).transpose()?;
        let pinned = pinned.flatten();
        let wanted = Wanted { pinned, ..routing.wanted(model, tokens, self.received) };
        Ok(Resolved { routing, wanted, bounds: Bounds { withheld, leaves_pin: pinned.is_some() } })
    }
}
