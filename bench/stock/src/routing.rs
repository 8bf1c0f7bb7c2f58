//! What a request says about where it may go: its routing profile, its session, whether it wants to know why.

use hyper::HeaderMap;
use llmgw_gateway::error::{ApiError, Reason};
use llmgw_gateway::identity::{Rights, scope};
use llmgw_gateway::intake::Intake;
use llmgw_kit::clock::Mono;
use llmgw_router::Wanted;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::session::key_hash;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::tenants::Caller;

use crate::headers::X_EXPLAIN;

const PROFILE: &str = "x-llmgw-profile";
/// Profiles listed in a message; more are not.
const NAMES_SHOWN: usize = 64;

/// A request's wishes.
pub(crate) struct Routing {
    profile: Option<u32>,
    session: Option<u64>,
    pub(crate) explanation: Option<Box<Explanation>>,
}

impl Routing {
    /// The wishes of a request to row `model` of the table.
    ///
    /// Errors: a profile that is not there; the message lists the ones there are.
    pub(crate) fn of(
        headers: &HeaderMap,
        intake: &Intake,
        table: &ArchivedRouteTable,
        model: u32,
        caller: Option<(Rights<'_>, &Caller)>,
    ) -> Result<Self, ApiError> {
        let rights = caller.map(|(rights, _)| rights);
        let profile = match headers.get(PROFILE) {
            Some(name) => Some(profile(table, name.as_bytes())?),
            // One that is not there any more is none.
            None => rights.and_then(|rights| profile_row(table, rights.profile()?.as_bytes())),
        };
        let route = table.models.get(model as usize);
        let session = route.and_then(|route| session(headers, intake, route));
        let session = session.map(|session| session.wrapping_add(scope(caller.map(|(_, caller)| caller))));
        let explains = headers.get(X_EXPLAIN).is_some_and(|value| value.as_bytes() == b"1");
        Ok(Self { profile, session, explanation: explains.then(Box::default) })
    }

    /// What the request wants of whoever decides.
    pub(crate) fn wanted(&self, model: u32, tokens: u32, now: Mono) -> Wanted<'static> {
        Wanted { model, profile: self.profile, session: self.session, tokens, now, ..Wanted::default() }
    }
}

fn profile_row(table: &ArchivedRouteTable, name: &[u8]) -> Option<u32> {
    let row = table.profiles.iter().position(|profile| profile.name.as_bytes() == name)?;
    u32::try_from(row).ok()
}

fn profile(table: &ArchivedRouteTable, name: &[u8]) -> Result<u32, ApiError> {
    if let Some(row) = profile_row(table, name) {
        return Ok(row);
    }
    let known: Vec<&str> = table.profiles.iter().take(NAMES_SHOWN).map(|profile| profile.name.as_str()).collect();
    let shown: String = String::from_utf8_lossy(name).chars().take(64).collect();
    let message = format!("{PROFILE}: no routing profile is called `{shown}`; profiles: {}", known.join(", "));
    Err(ApiError::new(Reason::BadRequest, message))
}

/// The hash of the session's key: the header's value, else what the body says.
fn session(headers: &HeaderMap, intake: &Intake, route: &ArchivedModelRoute) -> Option<u64> {
    let spec = route.placement.session.as_ref()?;
    match headers.get(spec.header.as_str()) {
        Some(key) if !key.is_empty() => Some(key_hash(key.as_bytes())),
        _ => intake.session_key().filter(|key| !key.is_empty()).map(|key| key_hash(key.as_bytes())),
    }
}
