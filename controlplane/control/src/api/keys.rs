//! Keys: made, listed, changed, given a new secret, revoked. The key itself is in two answers, and nowhere else.

use std::collections::HashMap;
use std::time::Duration;

use llmgw_store::{Rows, StoreError, Tx};
use llmgw_tenancy::id::{ID_BYTES, id};
use llmgw_tenancy::key::{KeyRow, KeyState, NewKey, OldSecret};
use llmgw_tenancy::limits::intersection;
use llmgw_tenancy::scope::{Organization, Project, Scope, ScopeKind, Team};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{checked_word, given};
use crate::desk::{Desk, Request};
use crate::find;
use crate::refusal::Refusal;

/// How long a rotated key's old secret works on unless it is told.
const OVERLAP: Duration = Duration::from_secs(24 * 3600);
/// Old secrets that work at once.
const OVERLAPS_MAX: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKeyBody {
    name: String,
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    band: Option<String>,
    #[serde(default)]
    routing_profile: Option<String>,
    #[serde(default)]
    may_pin_replica: bool,
    #[serde(default)]
    expires_at: Option<i64>,
    #[serde(default)]
    expires_in_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyChange {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    band: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    routing_profile: Option<Option<String>>,
    #[serde(default)]
    may_pin_replica: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    expires_at: Option<Option<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotation {
    #[serde(default)]
    overlap_seconds: Option<u64>,
}

/// A key as operators see it: everything but the hash.
fn shown(key: &KeyRow, now: i64) -> Value {
    json!({
        "id": key.id,
        "prefix": key.prefix,
        "name": key.name,
        "project_id": key.project_id,
        "band": key.band,
        "routing_profile": key.routing_profile,
        "may_pin_replica": key.may_pin_replica,
        "state": key.state(now),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    })
}

pub(crate) fn list(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let has_all = request.query("all") == Some("true");
    desk.store()?.read(|rows| {
        let project = request.query("project").map(|wanted| find::project(rows, wanted)).transpose()?;
        let paths = paths(rows)?;
        let keys = rows.keys()?.into_iter().filter(|key| {
            let is_of_project = project.as_ref().is_none_or(|project| key.project_id == project.id);
            is_of_project && (has_all || key.state(request.now) == KeyState::Active)
        });
        let shown = keys.map(|key| {
            let mut shown = shown(&key, request.now);
            shown["project"] = json!(paths.get(&key.project_id));
            shown
        });
        Ok(json!({ "keys": shown.collect::<Vec<_>>() }))
    })
}

/// Projects' paths by their ids.
fn paths(rows: &Rows<'_>) -> Result<HashMap<String, String>, StoreError> {
    let organizations: HashMap<_, _> = rows.organizations()?.into_iter().map(|row| (row.id, row.name)).collect();
    let teams: HashMap<_, _> = rows.teams()?.into_iter().map(|row| (row.id, (row.org_id, row.name))).collect();
    let path = |project: &Project| {
        let (org_id, team) = teams.get(&project.team_id)?;
        Some(format!("{}/{team}/{}", organizations.get(org_id)?, project.name))
    };
    Ok(rows.projects()?.into_iter().filter_map(|row| Some((row.id.clone(), path(&row)?))).collect())
}

pub(crate) fn create(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let body: NewKeyBody = request.body()?;
    find::checked_name("name", &body.name)?;
    checked_word("band", body.band.as_deref())?;
    checked_word("routing_profile", body.routing_profile.as_deref())?;
    let expires_at = match (body.expires_at, body.expires_in_seconds) {
        (Some(_), Some(_)) => return Err(Refusal::wrong("write expires_at or expires_in_seconds, not both")),
        (at, None) => at,
        (None, Some(seconds)) => Some(request.later(Duration::from_secs(seconds))?),
    };
    if expires_at.is_some_and(|at| at <= request.now) {
        return Err(Refusal::wrong("the key would have expired already"));
    }
    let new = NewKey::of(&desk.random()?);
    let row = KeyRow {
        id: id("key", desk.random()?),
        hash: new.hash,
        prefix: new.prefix.clone(),
        name: body.name,
        project_id: String::new(),
        band: body.band,
        routing_profile: body.routing_profile,
        may_pin_replica: body.may_pin_replica,
        created_at: request.now,
        expires_at,
        revoked_at: None,
        last_used_at: None,
    };
    let defaults = Defaults { ids: [desk.random()?, desk.random()?, desk.random()?], now: request.now };
    let event = request.event("key.create", ("key", &row.id), None, None);
    let (project, now) = (body.project, request.now);
    let shown = desk.write(move |tx| {
        let project = match project {
            Some(wanted) => find::project(tx, &wanted)?,
            None => defaults.project(tx, &event)?,
        };
        let row = KeyRow { project_id: project.id, ..row };
        tx.add_key(&row)?;
        let shown = shown(&row, now);
        tx.audit(&event.about(&row.id, None, Some(shown.clone())))?;
        Ok(shown)
    })?;
    Ok(json!({ "key": new.secret.expose(), "record": shown }))
}

/// The project of keys that name none, `default/default/default`, made with the first of them.
struct Defaults {
    ids: [[u8; ID_BYTES]; 3],
    now: i64,
}

impl Defaults {
    fn project(&self, tx: &Tx<'_>, event: &llmgw_store::audit::Event) -> Result<Project, Refusal> {
        let name = || "default".to_owned();
        let organization = match tx.organization("default")? {
            Some(there) => there,
            None => {
                let row = Organization { id: id("org", self.ids[0]), name: name(), created_at: self.now };
                tx.add_organization(&row)?;
                tx.audit(&event.of("org.create", "org").about(&row.id, None, Some(json!(row))))?;
                row
            }
        };
        let team = match tx.team_named(&organization.id, "default")? {
            Some(there) => there,
            None => {
                let row =
                    Team { id: id("team", self.ids[1]), org_id: organization.id, name: name(), created_at: self.now };
                tx.add_team(&row)?;
                tx.audit(&event.of("team.create", "team").about(&row.id, None, Some(json!(row))))?;
                row
            }
        };
        if let Some(there) = tx.project_named(&team.id, "default")? {
            return Ok(there);
        }
        let row = Project {
            id: id("proj", self.ids[2]),
            team_id: team.id,
            name: name(),
            band: None,
            routing_profile: None,
            created_at: self.now,
        };
        tx.add_project(&row)?;
        tx.audit(&event.of("project.create", "project").about(&row.id, None, Some(json!(row))))?;
        Ok(row)
    }
}

pub(crate) fn show(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    desk.store()?.read(|rows| {
        let key = find::key(rows, request.part(0), request.now)?;
        let project = rows.project(&key.project_id)?.ok_or_else(|| Refusal::missing("project", &key.project_id))?;
        let team = rows.team(&project.team_id)?.ok_or_else(|| Refusal::missing("team", &project.team_id))?;
        let chain = [
            Scope::new(ScopeKind::Key, &key.id),
            Scope::new(ScopeKind::Project, &project.id),
            Scope::new(ScopeKind::Team, &team.id),
            Scope::new(ScopeKind::Org, &team.org_id),
        ];
        let mut lists = Vec::new();
        for scope in &chain {
            let of_all = rows.limits_of(scope)?.into_iter().find(|row| row.model.is_none());
            lists.push(of_all.and_then(|row| row.limits.allowed_models));
        }
        let overlaps = rows.overlaps(request.now)?.into_iter().filter(|old| old.key_id == key.id);
        let overlaps = overlaps.map(|old| json!({ "prefix": old.prefix, "expires_at": old.expires_at }));
        Ok(json!({
            "record": shown(&key, request.now),
            "project": paths(rows)?.get(&project.id),
            "effective": {
                "band": key.band.as_ref().or(project.band.as_ref()),
                "routing_profile": key.routing_profile.as_ref().or(project.routing_profile.as_ref()),
                "allowed_models": intersection(lists.iter().map(Option::as_deref)),
            },
            "old_secrets": overlaps.collect::<Vec<_>>(),
        }))
    })
}

pub(crate) fn change(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let KeyChange { name, band, routing_profile, may_pin_replica, expires_at } = request.body()?;
    name.as_deref().map_or(Ok(()), |name| find::checked_name("name", name))?;
    checked_word("band", band.as_ref().and_then(Option::as_deref))?;
    checked_word("routing_profile", routing_profile.as_ref().and_then(Option::as_deref))?;
    let (wanted, now) = (request.part(0).to_owned(), request.now);
    let event = request.event("key.change", ("key", ""), None, None);
    desk.write(move |tx| {
        let before = find::key(tx, &wanted, now)?;
        if before.revoked_at.is_some() {
            return Err(Refusal::conflict("the key is revoked; make another one"));
        }
        let mut after = before.clone();
        after.name = name.unwrap_or(after.name);
        after.band = band.unwrap_or(after.band);
        after.routing_profile = routing_profile.unwrap_or(after.routing_profile);
        after.may_pin_replica = may_pin_replica.unwrap_or(after.may_pin_replica);
        after.expires_at = expires_at.unwrap_or(after.expires_at);
        tx.change_key(&after)?;
        let after_shown = shown(&after, now);
        tx.audit(&event.about(&after.id, Some(shown(&before, now)), Some(after_shown.clone())))?;
        Ok(after_shown)
    })
}

pub(crate) fn rotate(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let Rotation { overlap_seconds } = request.body()?;
    let overlap = overlap_seconds.map_or(OVERLAP, Duration::from_secs);
    let (until, new) = (request.later(overlap)?, NewKey::of(&desk.random()?));
    let (hash, prefix) = (new.hash, new.prefix.clone());
    let (wanted, now) = (request.part(0).to_owned(), request.now);
    let event = request.event("key.rotate", ("key", ""), None, None);
    let shown = desk.write(move |tx| {
        let before = find::key(tx, &wanted, now)?;
        if before.state(now) != KeyState::Active {
            return Err(Refusal::conflict("the key works no more; make another one"));
        }
        if overlap.is_zero() {
            // For a key that leaked: nothing it ever was may work on.
            tx.end_overlaps(&before.id)?;
        } else {
            let working = tx.overlaps(now)?.iter().filter(|old| old.key_id == before.id).count();
            if working >= OVERLAPS_MAX {
                let message = format!("{working} old secrets of this key still work; wait, or rotate without overlap");
                return Err(Refusal::conflict(message));
            }
            tx.add_overlap(&OldSecret {
                hash: before.hash,
                key_id: before.id.clone(),
                prefix: before.prefix.clone(),
                expires_at: until,
            })?;
        }
        let after = KeyRow { hash, prefix, ..before.clone() };
        tx.change_key(&after)?;
        let mut after_shown = shown(&after, now);
        let record = after_shown.clone();
        after_shown["old_secret_expires_at"] = json!((!overlap.is_zero()).then_some(until));
        tx.audit(&event.about(&after.id, Some(shown(&before, now)), Some(after_shown)))?;
        Ok(record)
    })?;
    Ok(json!({ "key": new.secret.expose(), "record": shown }))
}

pub(crate) fn revoke(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let (wanted, now) = (request.part(0).to_owned(), request.now);
    let event = request.event("key.revoke", ("key", ""), None, None);
    desk.write(move |tx| {
        let before = find::key(tx, &wanted, now)?;
        if before.revoked_at.is_some() {
            // Done already, and on the record.
            return Ok(shown(&before, now));
        }
        let after = KeyRow { revoked_at: Some(now), ..before.clone() };
        tx.change_key(&after)?;
        tx.end_overlaps(&after.id)?;
        let after_shown = shown(&after, now);
        tx.audit(&event.about(&after.id, Some(shown(&before, now)), Some(after_shown.clone())))?;
        Ok(after_shown)
    })
}
