//! The whole table of what operators can ask of the control plane. The API's description is made from it.

use llmgw_kit::percent::decoded;
use serde_json::Value;

use crate::api::{audit, backup, keys, limits, scopes, usage};
use crate::desk::{Desk, Request, Verb};
use crate::refusal::Refusal;

/// One thing to ask.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Below the API's root; parts in braces are open.
    pub(crate) path: &'static str,
    /// Unique; names the operation.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// What may stand in the query, and what it means.
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// Schema of the body.
    pub(crate) body: Option<&'static str>,
    /// Schema of the answer.
    pub(crate) answer: &'static str,
    pub(crate) act: fn(&Desk, &Request<'_>) -> Result<Value, Refusal>,
}

const fn route(
    verb: Verb,
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    answer: &'static str,
    act: fn(&Desk, &Request<'_>) -> Result<Value, Refusal>,
) -> Route {
    Route { verb, path, name, summary, query: &[], body: None, answer, act }
}

impl Route {
    const fn takes(self, body: &'static str) -> Self {
        Self { body: Some(body), ..self }
    }

    const fn asks(self, query: &'static [(&'static str, &'static str)]) -> Self {
        Self { query, ..self }
    }
}

use Verb::{Delete, Get, Patch, Post, Put};

pub(crate) static ROUTES: &[Route] = &[
    route(Get, "/organizations", "listOrganizations", "All organisations", "Organizations", scopes::organizations),
    route(
        Post,
        "/organizations",
        "createOrganization",
        "Make an organisation",
        "Organization",
        scopes::add_organization,
    )
    .takes("NewOrganization"),
    route(
        Patch,
        "/organizations/{organization}",
        "renameOrganization",
        "Rename an organisation",
        "Organization",
        scopes::rename_organization,
    )
    .takes("Rename"),
    route(Get, "/teams", "listTeams", "All teams", "Teams", scopes::teams),
    route(Post, "/teams", "createTeam", "Make a team", "Team", scopes::add_team).takes("NewTeam"),
    route(Patch, "/teams/{team}", "renameTeam", "Rename a team", "Team", scopes::rename_team).takes("Rename"),
    route(Get, "/projects", "listProjects", "All projects", "Projects", scopes::projects),
    route(Post, "/projects", "createProject", "Make a project", "Project", scopes::add_project).takes("NewProject"),
    route(
        Patch,
        "/projects/{project}",
        "changeProject",
        "Change a project's name, band or profile",
        "Project",
        scopes::change_project,
    )
    .takes("ProjectChange"),
    route(Get, "/keys", "listKeys", "Keys, oldest first; those of no more use on request", "Keys", keys::list)
        .asks(&[("project", "of this project alone"), ("all", "true: revoked and expired ones too")]),
    route(
        Post,
        "/keys",
        "createKey",
        "Make a key; the answer is the only place where it is ever shown",
        "MadeKey",
        keys::create,
    )
    .takes("NewKey"),
    route(Get, "/keys/{key}", "showKey", "A key and what follows from its levels", "KeyWithChain", keys::show),
    route(Patch, "/keys/{key}", "changeKey", "Change what a key is called and what it may", "Key", keys::change)
        .takes("KeyChange"),
    route(
        Post,
        "/keys/{key}/rotate",
        "rotateKey",
        "Give a key a new secret; the old one works on for a while",
        "MadeKey",
        keys::rotate,
    )
    .takes("Rotation"),
    route(Post, "/keys/{key}/revoke", "revokeKey", "Let a key work no more, for good", "Key", keys::revoke),
    route(Get, "/limits", "listLimits", "All limits", "LimitsList", limits::list),
    route(Get, "/limits/{level}/{scope}", "showLimits", "The limits on one level", "LimitsList", limits::show),
    route(
        Put,
        "/limits/{level}/{scope}",
        "setLimits",
        "Set the limits on one level, in place of those there",
        "LimitsRow",
        limits::set,
    )
    .takes("Limits")
    .asks(&[("model", "for this model alone")]),
    route(
        Delete,
        "/limits/{level}/{scope}",
        "clearLimits",
        "Take the limits on one level away",
        "LimitsList",
        limits::clear,
    )
    .asks(&[("model", "those for this model alone")]),
    route(Get, "/audit", "listAudit", "The audit trail, newest first", "Audit", audit::list).asks(&[
        ("target", "of this id alone"),
        ("before", "older than this number"),
        ("limit", "as many at most; 100 unless told, 1000 at most"),
    ]),
    route(Get, "/usage", "sumUsage", "What was used, summed up over whole hours", "Usage", usage::sums).asks(&[
        (
            "by",
            "what sums are told apart by, with commas: day, organization, team, project, key, model; key,model unless \
          told; days are those of UTC",
        ),
        ("since", "admitted from then on; 30 days before until unless told"),
        ("until", "admitted until then; now unless told"),
        ("key", "of this key alone"),
        ("project", "of this project alone"),
        ("model", "of this model alone, as it was asked for"),
    ]),
    route(
        Get,
        "/usage/requests/{request}",
        "showRequest",
        "What is known of one request, by its x-request-id, as long as rows are kept",
        "RequestUsage",
        usage::one,
    ),
    route(
        Post,
        "/backup",
        "backup",
        "Copy the store, in use, to a new file on the server's machine",
        "Backup",
        backup::make,
    )
    .takes("BackupTo"),
];

/// What a verb and a path come to.
pub(crate) enum Found {
    Route(&'static Route, Vec<String>),
    OtherVerbs(String),
    Nothing,
}

pub(crate) fn find(verb: &str, path: &str) -> Found {
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(parts) = matched(route.path, path) else { continue };
        if route.verb.word() == verb {
            return Found::Route(route, parts);
        }
        others.push(route.verb.word());
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherVerbs(others.join(", ")) }
}

/// What stands for the open parts of a pattern; `None` where the path is another.
fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let (mut wanted, mut written) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), written.next()) {
            (None, None) => return Some(parts),
            (Some(open), Some(part)) if open.starts_with('{') => {
                parts.push(decoded(part).filter(|part| !part.is_empty())?);
            }
            (Some(word), Some(part)) if word == part => {}
            _ => return None,
        }
    }
}
