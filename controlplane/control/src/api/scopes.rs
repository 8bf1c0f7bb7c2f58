//! Organisations, teams and projects. None is ever deleted: what was recorded refers to it.

use llmgw_tenancy::id::id;
use llmgw_tenancy::scope::{Organization, Project, Team};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{checked_word, given};
use crate::desk::{Desk, Request};
use crate::find;
use crate::refusal::Refusal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOrganization {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTeam {
    organization: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewProject {
    team: String,
    name: String,
    #[serde(default)]
    band: Option<String>,
    #[serde(default)]
    routing_profile: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectChange {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    band: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    routing_profile: Option<Option<String>>,
}

pub(crate) fn organizations(desk: &Desk, _: &Request<'_>) -> Result<Value, Refusal> {
    let rows = desk.store()?.read(|rows| rows.organizations())?;
    Ok(json!({ "organizations": rows }))
}

pub(crate) fn add_organization(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let NewOrganization { name } = request.body()?;
    find::checked_name("name", &name)?;
    let row = Organization { id: id("org", desk.random()?), name, created_at: request.now };
    let event = request.event("org.create", ("org", &row.id), None, Some(json!(row)));
    desk.write(move |tx| {
        tx.add_organization(&row)?;
        tx.audit(&event)?;
        Ok(json!(row))
    })
}

pub(crate) fn rename_organization(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let NewOrganization { name } = request.body()?;
    find::checked_name("name", &name)?;
    let (wanted, event) = (request.part(0).to_owned(), request.event("org.rename", ("org", ""), None, None));
    desk.write(move |tx| {
        let before = find::organization(tx, &wanted)?;
        let after = Organization { name, ..before.clone() };
        tx.change_organization(&after)?;
        tx.audit(&event.about(&after.id, Some(json!(before)), Some(json!(after))))?;
        Ok(json!(after))
    })
}

pub(crate) fn teams(desk: &Desk, _: &Request<'_>) -> Result<Value, Refusal> {
    let rows = desk.store()?.read(|rows| rows.teams())?;
    Ok(json!({ "teams": rows }))
}

pub(crate) fn add_team(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let NewTeam { organization, name } = request.body()?;
    find::checked_name("name", &name)?;
    let (team_id, now) = (id("team", desk.random()?), request.now);
    let event = request.event("team.create", ("team", &team_id), None, None);
    desk.write(move |tx| {
        let org_id = find::organization(tx, &organization)?.id;
        let row = Team { id: team_id, org_id, name, created_at: now };
        tx.add_team(&row)?;
        tx.audit(&event.about(&row.id, None, Some(json!(row))))?;
        Ok(json!(row))
    })
}

pub(crate) fn rename_team(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let NewOrganization { name } = request.body()?;
    find::checked_name("name", &name)?;
    let (wanted, event) = (request.part(0).to_owned(), request.event("team.rename", ("team", ""), None, None));
    desk.write(move |tx| {
        let before = find::team(tx, &wanted)?;
        let after = Team { name, ..before.clone() };
        tx.change_team(&after)?;
        tx.audit(&event.about(&after.id, Some(json!(before)), Some(json!(after))))?;
        Ok(json!(after))
    })
}

pub(crate) fn projects(desk: &Desk, _: &Request<'_>) -> Result<Value, Refusal> {
    let rows = desk.store()?.read(|rows| rows.projects())?;
    Ok(json!({ "projects": rows }))
}

pub(crate) fn add_project(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let NewProject { team, name, band, routing_profile } = request.body()?;
    find::checked_name("name", &name)?;
    checked_word("band", band.as_deref())?;
    checked_word("routing_profile", routing_profile.as_deref())?;
    let (project_id, now) = (id("proj", desk.random()?), request.now);
    let event = request.event("project.create", ("project", &project_id), None, None);
    desk.write(move |tx| {
        let team_id = find::team(tx, &team)?.id;
        let row = Project { id: project_id, team_id, name, band, routing_profile, created_at: now };
        tx.add_project(&row)?;
        tx.audit(&event.about(&row.id, None, Some(json!(row))))?;
        Ok(json!(row))
    })
}

pub(crate) fn change_project(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let ProjectChange { name, band, routing_profile } = request.body()?;
    name.as_deref().map_or(Ok(()), |name| find::checked_name("name", name))?;
    checked_word("band", band.as_ref().and_then(Option::as_deref))?;
    checked_word("routing_profile", routing_profile.as_ref().and_then(Option::as_deref))?;
    let (wanted, event) = (request.part(0).to_owned(), request.event("project.change", ("project", ""), None, None));
    desk.write(move |tx| {
        let before = find::project(tx, &wanted)?;
        let mut after = before.clone();
        after.name = name.unwrap_or(after.name);
        after.band = band.unwrap_or(after.band);
        after.routing_profile = routing_profile.unwrap_or(after.routing_profile);
        tx.change_project(&after)?;
        tx.audit(&event.about(&after.id, Some(json!(before)), Some(json!(after))))?;
        Ok(json!(after))
    })
}
