//! Commands as questions of the admin API. Pure.

use serde_json::{Map, Value, json};

use crate::api::{Failure, Method, encoded};
use crate::keys::{Command, Level, LimitsAct, ProjectAct, SetLimits};

/// What the API is asked.
#[derive(Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

fn get(path: impl Into<String>) -> Question {
    Question { method: Method::Get, path: path.into(), body: None }
}

fn send(method: Method, path: impl Into<String>, body: Value) -> Question {
    Question { method, path: path.into(), body: Some(body) }
}

/// Only the fields that are given.
fn given<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>())
}

fn text(value: Option<&String>) -> Option<Value> {
    value.map(|value| json!(value))
}

/// A value, nothing (as `null`), or no change.
fn or_none(value: Option<&String>, is_none: bool) -> Option<Value> {
    if is_none { Some(Value::Null) } else { text(value) }
}

/// Errors: a path with another number of names than the level has.
pub(crate) fn question(command: &Command) -> Result<Question, Failure> {
    Ok(match command {
        Command::Create { name, project, band, profile, may_pin, expires_in } => {
            let body = given([
                ("name", Some(json!(name))),
                ("project", text(project.as_ref())),
                ("band", text(band.as_ref())),
                ("routing_profile", text(profile.as_ref())),
                ("may_pin_replica", may_pin.then_some(json!(true))),
                ("expires_in_seconds", expires_in.map(|seconds| json!(seconds))),
            ]);
            send(Method::Post, "/keys", body)
        }
        Command::List { project, all } => {
            let project = project.as_ref().map(|project| format!("project={}", encoded(project)));
            let asked: Vec<_> = project.into_iter().chain(all.then(|| "all=true".to_owned())).collect();
            let mark = if asked.is_empty() { "" } else { "?" };
            get(format!("/keys{mark}{}", asked.join("&")))
        }
        Command::Show { key } => get(format!("/keys/{}", encoded(key))),
        Command::Change { key, name, band, no_band, profile, no_profile, may_pin, no_expiry } => {
            let body = given([
                ("name", text(name.as_ref())),
                ("band", or_none(band.as_ref(), *no_band)),
                ("routing_profile", or_none(profile.as_ref(), *no_profile)),
                ("may_pin_replica", may_pin.map(|may| json!(may))),
                ("expires_at", no_expiry.then_some(Value::Null)),
            ]);
            send(Method::Patch, format!("/keys/{}", encoded(key)), body)
        }
        Command::Rotate { key, overlap } => {
            let body = given([("overlap_seconds", overlap.map(|seconds| json!(seconds)))]);
            send(Method::Post, format!("/keys/{}/rotate", encoded(key)), body)
        }
        Command::Revoke { key } => send(Method::Post, format!("/keys/{}/revoke", encoded(key)), json!({})),
        Command::Org { act } => match act {
            Level::List => get("/organizations"),
            Level::Create { path } => send(Method::Post, "/organizations", json!({ "name": path })),
            Level::Rename { path, name } => {
                send(Method::Patch, format!("/organizations/{}", encoded(path)), json!({ "name": name }))
            }
        },
        Command::Team { act } => match act {
            Level::List => get("/teams"),
            Level::Create { path } => {
                let (organization, name) = split(path, "ORG/TEAM")?;
                send(Method::Post, "/teams", json!({ "organization": organization, "name": name }))
            }
            Level::Rename { path, name } => {
                send(Method::Patch, format!("/teams/{}", encoded(path)), json!({ "name": name }))
            }
        },
        Command::Project { act } => project(act)?,
        Command::Limits { act } => limits(act),
    })
}

fn project(act: &ProjectAct) -> Result<Question, Failure> {
    Ok(match act {
        ProjectAct::List => get("/projects"),
        ProjectAct::Create { path, band, profile } => {
            let (team, name) = split(path, "ORG/TEAM/PROJECT")?;
            let body = given([
                ("team", Some(json!(team))),
                ("name", Some(json!(name))),
                ("band", text(band.as_ref())),
                ("routing_profile", text(profile.as_ref())),
            ]);
            send(Method::Post, "/projects", body)
        }
        ProjectAct::Change { path, name, band, no_band, profile, no_profile } => {
            let body = given([
                ("name", text(name.as_ref())),
                ("band", or_none(band.as_ref(), *no_band)),
                ("routing_profile", or_none(profile.as_ref(), *no_profile)),
            ]);
            send(Method::Patch, format!("/projects/{}", encoded(path)), body)
        }
    })
}

fn limits(act: &LimitsAct) -> Question {
    let at = |level: &str, scope: &str, model: Option<&String>| {
        let model = model.map(|model| format!("?model={}", encoded(model))).unwrap_or_default();
        format!("/limits/{}/{}{model}", encoded(level), encoded(scope))
    };
    match act {
        LimitsAct::List => get("/limits"),
        LimitsAct::Show { level, scope } => get(at(level, scope, None)),
        LimitsAct::Clear { level, scope, model } => {
            Question { method: Method::Delete, path: at(level, scope, model.as_ref()), body: None }
        }
        LimitsAct::Set(set) => {
            let SetLimits { rpm, tpm, parallel, budget, period, time_zone, allowed, allow_none, .. } = set;
            let number = |value: &Option<u64>| value.map(|value| json!(value));
            let has_list = *allow_none || !allowed.is_empty();
            let body = given([
                ("rpm", number(rpm)),
                ("tpm", number(tpm)),
                ("parallel", number(parallel)),
                ("budget_micros", number(budget)),
                ("budget_period", text(period.as_ref())),
                ("time_zone", text(time_zone.as_ref())),
                ("allowed_models", has_list.then(|| json!(allowed))),
            ]);
            send(Method::Put, at(&set.level, &set.scope, set.model.as_ref()), body)
        }
    }
}

fn split<'p>(path: &'p str, shape: &str) -> Result<(&'p str, &'p str), Failure> {
    path.rsplit_once('/').ok_or_else(|| Failure::Usage(format!("{path:?} names no level above it; write {shape}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn check(line: &str, method: Method, path: &str, body: Option<Value>) {
        let words = std::iter::once("keys").chain(line.split(' '));
        let Line { command } = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        let question = question(&command).unwrap_or_else(|failure| panic!("{line}: {failure}"));
        assert_eq!(question, Question { method, path: path.to_owned(), body }, "{line}");
    }

    #[test]
    fn a_command_asks_for_what_was_given_and_nothing_else() {
        use Method::{Delete, Get, Patch, Post, Put};
        check("create alice", Post, "/keys", Some(json!({ "name": "alice" })));
        let all = json!({ "name": "a", "project": "o/t/p", "band": "gold", "routing_profile": "batch",
                          "may_pin_replica": true, "expires_in_seconds": 86_400 });
        let line = "create a --project o/t/p --band gold --profile batch --may-pin --expires-in 1d";
        check(line, Post, "/keys", Some(all));
        check("list", Get, "/keys", None);
        check("list --project o/t/p --all", Get, "/keys?project=o%2Ft%2Fp&all=true", None);
        check("show k", Get, "/keys/k", None);
        let change = json!({ "band": null, "may_pin_replica": false });
        check("change k --no-band --may-pin false", Patch, "/keys/k", Some(change));
        check("rotate k --overlap 0", Post, "/keys/k/rotate", Some(json!({ "overlap_seconds": 0 })));
        check("revoke k", Post, "/keys/k/revoke", Some(json!({})));
        check("org create acme", Post, "/organizations", Some(json!({ "name": "acme" })));
        check("team create acme/search", Post, "/teams", Some(json!({ "organization": "acme", "name": "search" })));
        check("team rename acme/search x", Patch, "/teams/acme%2Fsearch", Some(json!({ "name": "x" })));
        let project = json!({ "team": "o/t", "name": "p", "band": "b" });
        check("project create o/t/p --band b", Post, "/projects", Some(project));
        check("limits show team o/t", Get, "/limits/team/o%2Ft", None);
        check("limits set org o --rpm 0", Put, "/limits/org/o", Some(json!({ "rpm": 0 })));
        check("limits set key k --allow-none", Put, "/limits/key/k", Some(json!({ "allowed_models": [] })));
        let allowed = json!({ "tpm": 5, "allowed_models": ["a", "b"] });
        check("limits set key k --tpm 5 --allow a --allow b", Put, "/limits/key/k", Some(allowed));
        check("limits clear key k --model m/1", Delete, "/limits/key/k?model=m%2F1", None);
    }

    #[test]
    fn a_team_without_an_organisation_is_not_understood() {
        for (line, shape) in [("team create search", "ORG/TEAM"), ("project create chat", "ORG/TEAM/PROJECT")] {
            let words = std::iter::once("keys").chain(line.split(' '));
            let line = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
            match question(&line.command) {
                Err(Failure::Usage(message)) => assert!(message.contains(shape), "{message}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
