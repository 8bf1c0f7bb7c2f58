//! From what an operator writes to a row: an id, or names from the top, as `acme/search/chat`.

use llmgw_store::Rows;
use llmgw_tenancy::key::{KeyRow, KeyState};
use llmgw_tenancy::name;
use llmgw_tenancy::scope::{Organization, Project, Scope, ScopeKind, Team};

use crate::refusal::Refusal;

/// Errors: there is none.
pub(crate) fn organization(rows: &Rows<'_>, wanted: &str) -> Result<Organization, Refusal> {
    rows.organization(wanted)?.ok_or_else(|| Refusal::missing("organization", wanted))
}

/// Errors: there is none.
pub(crate) fn team(rows: &Rows<'_>, wanted: &str) -> Result<Team, Refusal> {
    if let Some(team) = rows.team(wanted)? {
        return Ok(team);
    }
    let missing = || Refusal::missing("team", wanted);
    let (above, name) = wanted.rsplit_once('/').ok_or_else(missing)?;
    let organization = rows.organization(above)?.ok_or_else(missing)?;
    rows.team_named(&organization.id, name)?.ok_or_else(missing)
}

/// Errors: there is none.
pub(crate) fn project(rows: &Rows<'_>, wanted: &str) -> Result<Project, Refusal> {
    if let Some(project) = rows.project(wanted)? {
        return Ok(project);
    }
    let missing = || Refusal::missing("project", wanted);
    let (above, name) = wanted.rsplit_once('/').ok_or_else(missing)?;
    let team = team(rows, above).map_err(|refusal| if refusal.status == 404 { missing() } else { refusal })?;
    rows.project_named(&team.id, name)?.ok_or_else(missing)
}

/// A key by its id, or by its name if only one key that works has it.
///
/// Errors: there is none, or more than one.
pub(crate) fn key(rows: &Rows<'_>, wanted: &str, now: i64) -> Result<KeyRow, Refusal> {
    if let Some(key) = rows.key(wanted)? {
        return Ok(key);
    }
    if wanted.starts_with(llmgw_tenancy::key::KEY_START) {
        // Not repeated: it may be a whole key.
        return Err(Refusal::wrong("that looks like a key itself; name it by its id or its name"));
    }
    let mut named = rows.keys_named(wanted)?;
    named.retain(|key| key.state(now) == KeyState::Active);
    match named.len() {
        0 => Err(Refusal::missing("key that works of the id or name", wanted)),
        1 => Ok(named.remove(0)),
        more => Err(Refusal::conflict(format!("{more} keys are called {wanted:?}; name the one you mean by its id"))),
    }
}

/// Errors: there is no such level, or nothing of that name on it.
pub(crate) fn scope(rows: &Rows<'_>, level: &str, wanted: &str, now: i64) -> Result<Scope, Refusal> {
    let Some(kind) = ScopeKind::of(level) else {
        return Err(Refusal::wrong(format!("{level:?} is no level; there are org, team, project and key")));
    };
    let id = match kind {
        ScopeKind::Org => organization(rows, wanted)?.id,
        ScopeKind::Team => team(rows, wanted)?.id,
        ScopeKind::Project => project(rows, wanted)?.id,
        ScopeKind::Key => key(rows, wanted, now)?.id,
    };
    Ok(Scope { kind, id })
}

/// Errors: what is wrong with a name.
pub(crate) fn checked_name(what: &str, written: &str) -> Result<(), Refusal> {
    name::check(written).map_err(|fault| Refusal::wrong(format!("{what} {fault}")))
}
