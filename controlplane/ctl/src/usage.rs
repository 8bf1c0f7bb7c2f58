//! `llmgw ctl usage`: what was used, as a question of the admin API and as people read the answer. Pure but for the
//! clock, which "since" counts back from.

use clap::Args;
use llmgw_kit::clock::Wall;
use serde::Deserialize;

use crate::api::{Failure, encoded, read};
use crate::render::table;
use crate::when::{Moment, day, moment, past};

/// Show what was used: requests, tokens and units, summed up by hours
#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// What sums are told apart by, with commas: day, organization, team, project, key, model
    #[arg(long, value_name = "WHAT", default_value = "key,model")]
    by: String,
    /// From then on: a day (2026-11-30, in UTC) or a span back from now (36h, 7d)
    #[arg(long, value_name = "WHEN", default_value = "30d", value_parser = past)]
    since: Moment,
    /// Until then, as with --since; now unless told
    #[arg(long, value_name = "WHEN", value_parser = past)]
    until: Option<Moment>,
    /// Only of this key: its id, or its name
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only of this project: its id, or its path
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// Only of this model, as it was asked for
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// What is known of one request, by its x-request-id, in place of sums
    #[arg(long, value_name = "ID", conflicts_with_all = ["by", "since", "until", "key", "project", "model"])]
    request: Option<String>,
}

impl Usage {
    /// What the admin API is asked.
    pub(crate) fn path(&self, now: Wall) -> String {
        if let Some(id) = &self.request {
            return format!("/usage/requests/{}", encoded(id));
        }
        let until = self.until.unwrap_or(Moment::Ago(0)).unix_ms(now);
        let mut path = format!("/usage?by={}&since={}&until={until}", encoded(&self.by), self.since.unix_ms(now));
        for (name, value) in [("key", &self.key), ("project", &self.project), ("model", &self.model)] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        path
    }

    /// The answer for people.
    pub(crate) fn shown(&self, answer: &str) -> Result<String, Failure> {
        match self.request {
            Some(_) => Ok(request(&read(answer)?)),
            None => Ok(sums(&read(answer)?)),
        }
    }
}

#[derive(Deserialize)]
struct Sums {
    since: i64,
    until: i64,
    is_cut: bool,
    usage: Vec<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    day: Option<i64>,
    organization_id: Option<String>,
    organization: Option<String>,
    team_id: Option<String>,
    team: Option<String>,
    project_id: Option<String>,
    project: Option<String>,
    key_id: Option<String>,
    key: Option<String>,
    model: Option<String>,
    requests: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    units_micros: u64,
    estimated_requests: u64,
}

#[derive(Deserialize)]
struct Request {
    request_id: String,
    admitted_at: i64,
    key_id: String,
    project_id: String,
    model: String,
    served_model: String,
    pool: Option<String>,
    replica: Option<String>,
    status: u16,
    reason: Option<String>,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    units_micros: u64,
    is_estimated: bool,
    ttft_ms: Option<u64>,
    duration_ms: u64,
    queue_ms: Option<u64>,
}

/// What an id is called: its name, else itself; requests without a key have none.
fn called(id: &Option<String>, name: &Option<String>) -> Option<String> {
    let id = id.as_ref()?;
    Some(name.clone().unwrap_or_else(|| if id.is_empty() { "-".to_owned() } else { id.clone() }))
}

fn sums(answer: &Sums) -> String {
    let names = |sum: &Sum| {
        [
            ("DAY", sum.day.map(day)),
            ("ORGANIZATION", called(&sum.organization_id, &sum.organization)),
            ("TEAM", called(&sum.team_id, &sum.team)),
            ("PROJECT", called(&sum.project_id, &sum.project)),
            ("KEY", called(&sum.key_id, &sum.key)),
            ("MODEL", sum.model.clone()),
        ]
    };
    let said = format!("from {} to {}", moment(answer.since), moment(answer.until));
    let Some(first) = answer.usage.first() else { return format!("nothing was used {said}\n") };
    let columns = ["REQUESTS", "PROMPT", "CACHED", "COMPLETION", "UNITS", "ESTIMATED"];
    let head = names(first).into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.to_owned());
    let mut rows = vec![head.chain(columns.map(str::to_owned)).collect::<Vec<_>>()];
    for sum in &answer.usage {
        let counts = [
            sum.requests.to_string(),
            sum.prompt_tokens.to_string(),
            sum.cached_tokens.to_string(),
            sum.completion_tokens.to_string(),
            units(sum.units_micros),
            sum.estimated_requests.to_string(),
        ];
        rows.push(names(sum).into_iter().filter_map(|(_, value)| value).chain(counts).collect());
    }
    let cut = if answer.is_cut { "; there is more, ask for less" } else { "" };
    format!("{}{said}, in whole hours{cut}\n", table(&rows))
}

fn request(row: &Request) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let named = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let ms = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
    let estimated = if row.is_estimated { " (some of it estimated)" } else { "" };
    let fields = [
        ("request", row.request_id.clone()),
        ("admitted", moment(row.admitted_at)),
        ("key", named(&row.key_id)),
        ("project", named(&row.project_id)),
        ("model", row.model.clone()),
        ("served by", format!("{}, pool {}, replica {}", row.served_model, or_none(&row.pool), or_none(&row.replica))),
        ("status", row.reason.as_ref().map_or(row.status.to_string(), |reason| format!("{} {reason}", row.status))),
        (
            "tokens",
            format!(
                "{} prompt, {} of them cached, {} completion{estimated}",
                row.prompt_tokens, row.cached_tokens, row.completion_tokens
            ),
        ),
        ("units", units(row.units_micros)),
        ("first token", ms(row.ttft_ms)),
        ("waited", ms(row.queue_ms)),
        ("took", ms(Some(row.duration_ms))),
    ];
    table(&fields.map(|(name, value)| vec![name.to_owned(), value]))
}

/// Units with as many decimals as there are.
fn units(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(change: impl FnOnce(&mut Usage)) -> Usage {
        let mut usage = Usage {
            by: "key,model".into(),
            since: Moment::Ago(3600),
            until: None,
            key: None,
            project: None,
            model: None,
            request: None,
        };
        change(&mut usage);
        usage
    }

    #[test]
    fn a_command_becomes_one_question() {
        let now = Wall(10_000_000);
        assert_eq!(usage(|_| ()).path(now), "/usage?by=key%2Cmodel&since=6400000&until=10000000");
        let some = usage(|u| (u.project, u.until) = (Some("acme/x".into()), Some(Moment::At(7))));
        assert_eq!(some.path(now), "/usage?by=key%2Cmodel&since=6400000&until=7&project=acme%2Fx");
        assert_eq!(usage(|u| u.request = Some("req-0f".into())).path(now), "/usage/requests/req-0f");
    }

    #[test]
    fn sums_stand_in_columns_of_what_was_asked_for() {
        let sum = json!({
            "day": 0, "organization_id": null, "organization": null, "team_id": null, "team": null, "project_id": null,
            "project": null, "key_id": "key-1", "key": "alice", "model": null, "requests": 2, "prompt_tokens": 30,
            "cached_tokens": 4, "completion_tokens": 5, "units_micros": 35_250_000, "estimated_requests": 1,
        });
        let mut keyless = sum.clone();
        (keyless["key_id"], keyless["key"]) = (json!(""), json!(null));
        let answer = json!({ "since": 0, "until": 86_400_000, "is_cut": false, "usage": [sum, keyless] });
        let expected = "\
DAY         KEY    REQUESTS  PROMPT  CACHED  COMPLETION  UNITS  ESTIMATED
1970-01-01  alice  2         30      4       5           35.25  1
1970-01-01  -      2         30      4       5           35.25  1
from 1970-01-01 00:00:00Z to 1970-01-02 00:00:00Z, in whole hours
";
        let shown = |answer: &serde_json::Value| usage(|_| ()).shown(&answer.to_string()).ok();
        assert_eq!(shown(&answer).as_deref(), Some(expected));
        let nothing = json!({ "since": 0, "until": 86_400_000, "is_cut": false, "usage": [] });
        let said = "nothing was used from 1970-01-01 00:00:00Z to 1970-01-02 00:00:00Z\n";
        assert_eq!(shown(&nothing).as_deref(), Some(said));
    }

    #[test]
    fn units_have_no_more_decimals_than_they_need() {
        for (micros, text) in [(0, "0"), (1, "0.000001"), (1_500_000, "1.5"), (20_000_000, "20")] {
            assert_eq!(units(micros), text);
        }
    }
}
