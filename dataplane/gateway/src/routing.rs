//! What a request says about where it may go: its routing profile, its session, whether it wants to know why.
//!
//! Made once when the model is known; asked for a place as often as the request is tried. Called by `serve`.

use std::time::Duration;

use llmgw_http::head::RequestHead;
use llmgw_kit::clock::Mono;
use llmgw_router::Wanted;
use llmgw_router::scheduler::explain::Explanation;
use llmgw_router::session::{in_model, key_hash};
use llmgw_router::session_table::Subject;
use llmgw_types::admission::ArchivedAdmission;
use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};
use llmgw_types::tenants::Caller;

use crate::error::{ApiError, Reason};
use crate::explain;
use crate::finish::Finish;
use crate::gates::AtGates;
use crate::identity::{Rights, scope};
use crate::intake::Intake;
use crate::snapshot::Tables;

/// Names a routing profile of the configuration, in place of the model's own.
const PROFILE: &str = "x-llmgw-profile";
/// With the value 1: the answer says why it went where it went.
const EXPLAIN: &str = "x-llmgw-explain";
/// Names a priority band of the model, in place of its highest. Where keys are on they alone say it.
const BAND: &str = "x-llmgw-band";
/// What an answer is taken to cost that has no limit of its own. Units: tokens.
pub(crate) const OUTPUT_TOKENS: u64 = 512;
/// Profiles listed in a message; more are not.
const NAMES_SHOWN: usize = 64;

/// A request's wishes.
pub(crate) struct Routing {
    /// Position among its model's bands.
    band: usize,
    profile: Option<u32>,
    session: Option<u64>,
    /// The session's name among those of all models.
    subject: Option<Subject>,
    explanation: Option<Box<Explanation>>,
}

impl Routing {
    /// The wishes of a request to row `model` of the table.
    ///
    /// Errors: a profile or band that is not there; the message lists the ones there are.
    pub(crate) fn of(
        head: &RequestHead,
        intake: &Intake,
        table: &ArchivedRouteTable,
        model: u32,
        caller: Option<(Rights<'_>, &Caller)>,
    ) -> Result<Self, ApiError> {
        let rights = caller.map(|(rights, _)| rights);
        let profile = match head.header(PROFILE) {
            Some(name) => Some(profile(table, name)?),
            // One that is not there any more is none.
            None => rights.and_then(|rights| profile_row(table, rights.profile()?.as_bytes())),
        };
        let route = table.models.get(model as usize);
        let session = route.and_then(|route| session(head, intake, route));
        let session = session.map(|session| session.wrapping_add(scope(caller.map(|(_, caller)| caller))));
        let subject = session.zip(route).map(|(session, route)| Subject::Session(in_model(session, &route.name)));
        let band = match (route, rights) {
            (None, _) => 0,
            (Some(route), None) => band(&route.admission, head.header(BAND))?,
            (Some(route), Some(rights)) => band_of_key(&route.admission, rights.band()),
        };
        let explanation = (head.header(EXPLAIN) == Some(b"1")).then(Box::default);
        Ok(Self { band, profile, session, subject, explanation })
    }

    /// What the request wants of the dispatcher.
    pub(crate) fn wanted(&self, model: u32, tokens: u32, now: Mono) -> Wanted<'static> {
        Wanted { model, profile: self.profile, session: self.session, tokens, now, ..Wanted::default() }
    }

    /// The priority of its band at row `model`, which may be a model that stands in for its own.
    pub(crate) fn priority(&self, table: &ArchivedRouteTable, model: u32) -> Option<i32> {
        let admission = &table.models.get(model as usize)?.admission;
        Some(admission.bands.get(self.band)?.priority.to_native())
    }

    /// Its session, as it is asked for where it may be away from its own engine.
    pub(crate) fn subject(&self) -> Option<Subject> {
        self.subject
    }

    /// What the decision is to be explained in, for a client that asked.
    pub(crate) fn explanation(&mut self) -> Option<&mut Explanation> {
        self.explanation.as_deref_mut()
    }

    /// It has waited for a place, so long in all.
    pub(crate) fn waited(&mut self, time: Duration) {
        if let Some(look) = self.explanation.as_mut().and_then(|explanation| explanation.admission.as_mut()) {
            look.waited_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        }
    }

    /// What it is at the gates of its pools.
    pub(crate) fn at_gates(
        &self,
        intake: &Intake,
        caller: Option<&Caller>,
        tokens: u32,
        takes_places: bool,
        deadline: Mono,
    ) -> AtGates {
        let tenant = match caller {
            Some(caller) => caller.project.0.wrapping_add(1),
            // Two who collide share a turn; nobody is shut out by it.
            None => intake.user().map_or(0, |user| key_hash(user.as_bytes()) as u32),
        };
        let output = u32::try_from(intake.output_limit().unwrap_or(OUTPUT_TOKENS)).unwrap_or(u32::MAX);
        let bytes = u32::try_from(intake.size_bytes()).unwrap_or(u32::MAX);
        AtGates { band: self.band, takes_places, tenant, cost: tokens.saturating_add(output), bytes, deadline }
    }

    /// Has the decision told with the answer, if that was asked for.
    pub(crate) fn tell(&self, tables: &Tables, finish: &mut Finish) {
        if let Some(explanation) = &self.explanation {
            finish.explain(explain::text(explanation, tables.routes()));
        }
    }
}

/// The band that a request names, by its position; the highest where it names none: whoever does not say that it can
/// wait is taken for somebody who waits.
fn band(admission: &ArchivedAdmission, name: Option<&[u8]>) -> Result<usize, ApiError> {
    let Some(name) = name else { return Ok(admission.bands.len().saturating_sub(1)) };
    admission.band(name).ok_or_else(|| {
        let known: Vec<&str> = admission.bands.iter().rev().map(|band| band.name.as_str()).collect();
        let shown: String = String::from_utf8_lossy(name).chars().take(64).collect();
        let message = format!("{BAND}: no band is called `{shown}`; bands: {}", known.join(", "));
        ApiError::new(Reason::BadRequest, message)
    })
}

/// The band of a key, by its position; the highest where it has none. One that the model does not have is the lowest:
/// whoever was held back by a band must not gain by its removal.
fn band_of_key(admission: &ArchivedAdmission, name: Option<&str>) -> usize {
    match name {
        None => admission.bands.len().saturating_sub(1),
        Some(name) => admission.band(name.as_bytes()).unwrap_or(0),
    }
}

fn profile_row(table: &ArchivedRouteTable, name: &[u8]) -> Option<u32> {
    let row = table.profiles.iter().position(|profile| profile.name.as_bytes() == name)?;
    // Rows are counted in 32 bits; profiles are bounded far below.
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

/// The hash of the session's key: the header's value, else what the body says. None where sessions are not kept
/// together.
fn session(head: &RequestHead, intake: &Intake, route: &ArchivedModelRoute) -> Option<u64> {
    let spec = route.placement.session.as_ref()?;
    match head.header(&spec.header) {
        Some(key) if !key.is_empty() => Some(key_hash(key)),
        _ => intake.session_key().filter(|key| !key.is_empty()).map(|key| key_hash(key.as_bytes())),
    }
}
