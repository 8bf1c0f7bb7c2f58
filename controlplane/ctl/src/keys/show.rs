//! Answers as people read them. Pure.

use serde::Deserialize;

use crate::api::{Failure, read};
use crate::keys::{Command, Level, LimitsAct, ProjectAct};
use crate::render::table;
use crate::when::moment;

#[derive(Deserialize)]
struct Key {
    id: String,
    prefix: String,
    name: String,
    band: Option<String>,
    routing_profile: Option<String>,
    may_pin_replica: bool,
    state: String,
    expires_at: Option<i64>,
    last_used_at: Option<i64>,
    #[serde(default)]
    project: Option<String>,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Made {
    key: String,
    record: Key,
}

#[derive(Deserialize)]
struct Shown {
    record: Key,
    project: Option<String>,
    effective: Effective,
    old_secrets: Vec<OldSecret>,
}

#[derive(Deserialize)]
struct Effective {
    band: Option<String>,
    routing_profile: Option<String>,
    allowed_models: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct OldSecret {
    prefix: String,
    expires_at: i64,
}

#[derive(Deserialize)]
struct Named {
    id: String,
    name: String,
    #[serde(default, alias = "org_id", alias = "team_id")]
    above: Option<String>,
    #[serde(default)]
    band: Option<String>,
    #[serde(default)]
    routing_profile: Option<String>,
}

#[derive(Deserialize)]
struct NamedList {
    #[serde(alias = "organizations", alias = "teams", alias = "projects")]
    rows: Vec<Named>,
}

#[derive(Deserialize)]
struct LimitsList {
    limits: Vec<LimitsRow>,
}

#[derive(Deserialize)]
struct LimitsRow {
    level: String,
    scope_id: String,
    model: Option<String>,
    limits: Limits,
}

#[derive(Deserialize)]
struct Limits {
    rpm: Option<u64>,
    tpm: Option<u64>,
    parallel: Option<u64>,
    budget_micros: Option<u64>,
    budget_period: Option<String>,
    time_zone: Option<String>,
    allowed_models: Option<Vec<String>>,
}

/// What a command's answer says.
pub(crate) fn answer(command: &Command, text: &str) -> Result<String, Failure> {
    Ok(match command {
        Command::Create { .. } => made(&read(text)?, "made"),
        Command::Rotate { .. } => made(&read(text)?, "rotated"),
        Command::List { .. } => keys(&read::<Keys>(text)?.keys),
        Command::Show { .. } => shown(&read(text)?),
        Command::Change { .. } | Command::Revoke { .. } => keys(&[read(text)?]),
        Command::Org { act: Level::List } | Command::Team { act: Level::List } => named(&read::<NamedList>(text)?.rows),
        Command::Project { act: ProjectAct::List } => named(&read::<NamedList>(text)?.rows),
        Command::Org { .. } | Command::Team { .. } | Command::Project { .. } => named(&[read(text)?]),
        Command::Limits { act: LimitsAct::Set(_) } => limits(&[read(text)?]),
        Command::Limits { .. } => limits(&read::<LimitsList>(text)?.limits),
    })
}

/// The key stands alone in the first line, to be cut or piped.
fn made(Made { key, record }: &Made, what: &str) -> String {
    let until = record.expires_at.map_or("never expires".to_owned(), |at| format!("expires {}", moment(at)));
    format!(
        "{key}\n{} ({}) {what}; it {until}. This is the only time the key is shown: only its hash is kept.\n",
        record.name, record.id
    )
}

fn or_dash(value: Option<&String>) -> String {
    value.cloned().unwrap_or_else(|| "-".to_owned())
}

fn keys(keys: &[Key]) -> String {
    let head = ["ID", "NAME", "KEY", "STATE", "BAND", "PROFILE", "PROJECT", "EXPIRES", "LAST USED"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(keys.iter().map(|key| {
        [
            key.id.clone(),
            key.name.clone(),
            key.prefix.clone(),
            if key.may_pin_replica { format!("{}, may pin", key.state) } else { key.state.clone() },
            or_dash(key.band.as_ref()),
            or_dash(key.routing_profile.as_ref()),
            or_dash(key.project.as_ref()),
            key.expires_at.map_or("never".to_owned(), moment),
            key.last_used_at.map_or("never".to_owned(), moment),
        ]
    }));
    table(&rows)
}

fn shown(Shown { record, project, effective, old_secrets }: &Shown) -> String {
    let models = match effective.allowed_models.as_deref() {
        None => "every model".to_owned(),
        Some([]) => "no model".to_owned(),
        Some(names) => names.join(", "),
    };
    let mut text = keys(std::slice::from_ref(record));
    text.push_str(&format!(
        "project {}; band {}; routing profile {}; may use {models}\n",
        or_dash(project.as_ref()),
        or_dash(effective.band.as_ref()),
        or_dash(effective.routing_profile.as_ref()),
    ));
    for old in old_secrets {
        text.push_str(&format!("the old secret {} works until {}\n", old.prefix, moment(old.expires_at)));
    }
    text
}

fn named(named: &[Named]) -> String {
    let mut rows = vec![["ID", "NAME", "OF", "BAND", "PROFILE"].map(str::to_owned)];
    rows.extend(named.iter().map(|row| {
        let above = or_dash(row.above.as_ref());
        [row.id.clone(), row.name.clone(), above, or_dash(row.band.as_ref()), or_dash(row.routing_profile.as_ref())]
    }));
    table(&rows)
}

fn limits(limits: &[LimitsRow]) -> String {
    let head = ["LEVEL", "SCOPE", "MODEL", "RPM", "TPM", "PARALLEL", "BUDGET (MICROS)", "MODELS ALLOWED"];
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(limits.iter().map(|row| {
        let Limits { rpm, tpm, parallel, budget_micros, budget_period, time_zone, allowed_models } = &row.limits;
        let budget = budget_micros.map_or("-".to_owned(), |budget| {
            let (period, zone) = (or_dash(budget_period.as_ref()), time_zone.as_deref().unwrap_or("UTC"));
            format!("{budget} a {period}, {zone}")
        });
        let allowed = match allowed_models.as_deref() {
            None => "-".to_owned(),
            Some([]) => "none".to_owned(),
            Some(names) => names.join(","),
        };
        let model = row.model.clone().unwrap_or_else(|| "all".to_owned());
        let (level, scope) = (row.level.clone(), row.scope_id.clone());
        [level, scope, model, number(*rpm), number(*tpm), number(*parallel), budget, allowed]
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_stands_alone_in_the_first_line() {
        let text = r#"{"key":"sk-llmgw-x","record":{"id":"key-1","prefix":"sk-llmgw-0…","name":"alice","band":null,
            "routing_profile":null,"may_pin_replica":false,"state":"active","expires_at":null,"last_used_at":null,
            "project_id":"proj-1","created_at":1,"revoked_at":null}}"#;
        let command = Command::Rotate { key: "alice".into(), overlap: None };
        let shown = answer(&command, text).unwrap_or_else(|failure| panic!("{failure}"));
        let (first, rest) = shown.split_once('\n').expect("two lines");
        assert_eq!(first, "sk-llmgw-x");
        assert!(rest.starts_with("alice (key-1) rotated; it never expires."), "{rest}");
    }

    #[test]
    fn limits_tell_none_from_no_limit() {
        let text = r#"{"limits":[{"level":"team","scope_id":"team-1","model":null,"limits":{"rpm":0,"tpm":null,
            "parallel":2,"budget_micros":5,"budget_period":"day","time_zone":null,"allowed_models":[]}}]}"#;
        let command = Command::Limits { act: LimitsAct::List };
        let shown = answer(&command, text).unwrap_or_else(|failure| panic!("{failure}"));
        let expected = "\
LEVEL  SCOPE   MODEL  RPM  TPM  PARALLEL  BUDGET (MICROS)  MODELS ALLOWED
team   team-1  all    0    -    2         5 a day, UTC     none
";
        assert_eq!(shown, expected);
    }
}
