//! What was used: sums by whatever an operator asks for, and what is known of one request.

use std::collections::HashMap;

use llmgw_store::usage::UsageRow;
use llmgw_store::usage_sums::{Dimension, SUMS_MAX, Sum, Wanted};
use llmgw_store::{Rows, StoreError};
use serde_json::{Value, json};

use crate::desk::{Desk, Request};
use crate::find;
use crate::refusal::Refusal;

/// What sums are told apart by where nobody says it.
const BY: &str = "key,model";
/// How far back they go then. Units: milliseconds.
const SINCE: i64 = 30 * 24 * 3_600_000;

pub(crate) fn sums(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let by = dimensions(request.query("by").unwrap_or(BY))?;
    let until = request.number("until")?.unwrap_or(request.now);
    let since = request.number("since")?.unwrap_or_else(|| until.saturating_sub(SINCE));
    if since >= until {
        return Err(Refusal::wrong("since is not before until"));
    }
    let model = request.query("model").map(str::to_owned);
    desk.store()?.read(|rows| {
        let key = request.query("key").map(|key| find::key(rows, key, request.now)).transpose()?;
        let project = request.query("project").map(|project| find::project(rows, project)).transpose()?;
        let (key_id, project_id) = (key.map(|key| key.id), project.map(|project| project.id));
        let wanted = Wanted { since, until, by, key_id, project_id, model };
        let sums = rows.usage_sums(&wanted)?;
        let names = Names::of(rows)?;
        let shown: Vec<_> = sums.iter().map(|sum| names.shown(sum)).collect();
        Ok(json!({ "since": since, "until": until, "is_cut": sums.len() == SUMS_MAX, "usage": shown }))
    })
}

pub(crate) fn one(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let written = request.part(0);
    let digits = written.strip_prefix("req-").unwrap_or(written);
    let id = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32);
    let id = id.ok_or_else(|| Refusal::wrong("a request's id is req- and 32 digits, as x-request-id says it"))?;
    let row = desk.store()?.read(|rows| rows.usage_row(id.to_be_bytes()))?;
    row.map(|row| request_shown(&row)).ok_or_else(|| Refusal::missing("record of request", written))
}

/// Errors: a word that is none.
fn dimensions(written: &str) -> Result<Vec<Dimension>, Refusal> {
    let known = Dimension::ALL.map(Dimension::word).join(", ");
    let one = |word: &str| {
        let found = Dimension::ALL.into_iter().find(|dimension| dimension.word() == word.trim());
        found.ok_or_else(|| Refusal::wrong(format!("by: {word:?} is nothing to sum up by; there are {known}")))
    };
    written.split(',').filter(|word| !word.trim().is_empty()).map(one).collect()
}

/// What ids are called.
struct Names {
    organizations: HashMap<String, String>,
    /// As paths from the top.
    teams: HashMap<String, String>,
    projects: HashMap<String, String>,
    keys: HashMap<String, String>,
}

impl Names {
    fn of(rows: &Rows<'_>) -> Result<Self, StoreError> {
        let organizations: HashMap<_, _> = rows.organizations()?.into_iter().map(|row| (row.id, row.name)).collect();
        let below = |above: &HashMap<String, String>, id: &str, name: &str| {
            above.get(id).map_or_else(|| name.to_owned(), |above| format!("{above}/{name}"))
        };
        let teams = rows.teams()?.into_iter();
        let teams: HashMap<_, _> = teams.map(|row| (row.id, below(&organizations, &row.org_id, &row.name))).collect();
        let projects = rows.projects()?.into_iter();
        let projects = projects.map(|row| (row.id, below(&teams, &row.team_id, &row.name))).collect();
        let keys = rows.keys()?.into_iter().map(|row| (row.id, row.name)).collect();
        Ok(Self { organizations, teams, projects, keys })
    }

    fn shown(&self, sum: &Sum) -> Value {
        let name =
            |names: &HashMap<String, String>, id: &Option<String>| id.as_ref().and_then(|id| names.get(id)).cloned();
        json!({
            "day": sum.day,
            "organization_id": sum.org_id,
            "organization": name(&self.organizations, &sum.org_id),
            "team_id": sum.team_id,
            "team": name(&self.teams, &sum.team_id),
            "project_id": sum.project_id,
            "project": name(&self.projects, &sum.project_id),
            "key_id": sum.key_id,
            "key": name(&self.keys, &sum.key_id),
            "model": sum.model,
            "requests": sum.used.requests,
            "prompt_tokens": sum.used.prompt_tokens,
            "cached_tokens": sum.used.cached_tokens,
            "completion_tokens": sum.used.completion_tokens,
            "units_micros": sum.used.units_micros,
            "estimated_requests": sum.used.estimated_requests,
        })
    }
}

fn request_shown(row: &UsageRow) -> Value {
    json!({
        "request_id": format!("req-{:032x}", u128::from_be_bytes(row.record_id)),
        "admitted_at": row.admitted_at,
        "ended_at": row.ts,
        "key_id": row.key_id,
        "project_id": row.project_id,
        "model": row.model,
        "served_model": row.served_model,
        "pool": row.pool,
        "replica": row.replica,
        "status": row.status,
        "reason": row.reason,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "completion_tokens": row.completion_tokens,
        "units_micros": row.units_micros,
        "is_estimated": row.is_estimated,
        "ttft_ms": row.ttft_ms,
        "duration_ms": row.duration_ms,
        "queue_ms": row.queue_ms,
    })
}
