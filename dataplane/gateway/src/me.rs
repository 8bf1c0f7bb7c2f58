//! `GET /me`: whose key this is, what it may, and what it is held to.

use llmgw_openai::json::write_string;
use llmgw_router::limiter::Standing;
use llmgw_types::tenants::{ArchivedLevel, NEVER};
use llmgw_types::{LevelIdx, ProjectIdx};

use crate::error::{ApiError, Reason};
use crate::identity::Rights;

/// The body.
///
/// Errors: nobody is asked for a key here, so there is nothing to tell.
pub fn show(rights: Option<Rights<'_>>, standings: &[(u32, Standing)]) -> Result<Vec<u8>, ApiError> {
    let off = || ApiError::new(Reason::UnknownRoute, "keys are off here: whoever reaches this address may use it");
    let rights = rights.ok_or_else(off)?;
    let (table, key) = (rights.table(), rights.key);
    let project = table.project(ProjectIdx(key.project.to_native()));
    let mut out = Object::begin(Vec::with_capacity(1024));
    out.object("key", |key_out| {
        key_out.text("id", Some(&key.id));
        key_out.text("name", Some(&key.name));
        key_out.number("expires_at", Some(key.expires_at.to_native()).filter(|at| *at != NEVER));
    });
    out.object("project", |out| {
        out.text("id", project.map(|project| project.id.as_str()));
        out.text("path", project.map(|project| project.path.as_str()));
    });
    out.text("band", rights.band());
    out.text("routing_profile", rights.profile());
    out.raw("may_pin_replica", if rights.may_pin_replica() { "true" } else { "false" });
    match table.allowlist(key) {
        None => out.raw("allowed_models", "null"),
        Some(list) => out.list("allowed_models", list.iter(), |out, name| write_string(out, name)),
    }
    let levels = key.levels.iter().map(|row| row.to_native()).filter_map(|row| {
        let standing = standings.iter().find(|(known, _)| *known == row).map(|(_, standing)| standing);
        Some((table.levels.get(LevelIdx(row).idx())?, standing))
    });
    out.list("limits", levels, level);
    Ok(out.end())
}

fn level(out: &mut Vec<u8>, (level, standing): (&ArchivedLevel, Option<&Standing>)) {
    let limits = &level.limits;
    let mut object = Object::begin(std::mem::take(out));
    object.text("level", Some(level.kind.word()));
    object.text("id", Some(&level.scope_id));
    object.text("model", level.model.as_deref());
    object.number("rpm", limits.rpm.as_ref().map(|value| value.to_native()));
    object.number("tpm", limits.tpm.as_ref().map(|value| value.to_native()));
    object.number("parallel", limits.parallel.as_ref().map(|value| value.to_native()));
    match limits.budget.as_ref() {
        None => object.raw("budget", "null"),
        Some(budget) => object.object("budget", |out| {
            out.number("micros", Some(budget.micros.to_native()));
            out.text("period", Some(budget.period.word()));
            out.text("time_zone", Some(&budget.time_zone));
        }),
    }
    match standing {
        // Its owner did not say in time, or holds nobody to anything.
        None => object.raw("used", "null"),
        Some(standing) => object.object("used", |out| {
            // What is not limited is not counted either.
            let (rpm, tpm) = (limits.rpm.is_some(), limits.tpm.is_some());
            let (parallel, budget) = (limits.parallel.is_some(), limits.budget.is_some());
            let of = |is_limited: bool, amount: i64| count(amount).filter(|_| is_limited);
            out.number("requests", of(rpm, standing.requests));
            out.number("tokens", of(tpm, standing.tokens));
            out.number("spent_micros", of(budget, standing.units));
            let ends = (budget && standing.period_end < u32::MAX).then(|| u64::from(standing.period_end) * 1000);
            out.number("budget_begins_anew_at", ends);
            out.object("held", |out| {
                out.number("requests", of(rpm, standing.held.requests.into()));
                out.number("tokens", of(tpm, standing.held.tokens));
                out.number("parallel", of(parallel, standing.held.parallel.into()));
                out.number("budget_micros", of(budget, standing.held.units));
            });
        }),
    }
    *out = object.end();
}

/// What is given back before its use is reported may stand below nothing for a moment.
fn count(amount: i64) -> Option<u64> {
    Some(u64::try_from(amount).unwrap_or(0))
}

/// A JSON object being written.
struct Object {
    out: Vec<u8>,
    is_first: bool,
}

impl Object {
    fn begin(mut out: Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    fn end(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        write_string(&mut self.out, name);
        self.out.push(b':');
    }

    fn raw(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.extend_from_slice(value.as_bytes());
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        match value {
            None => self.raw(name, "null"),
            Some(text) => {
                self.name(name);
                write_string(&mut self.out, text);
            }
        }
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        match value {
            None => self.raw(name, "null"),
            Some(number) => self.raw(name, &number.to_string()),
        }
    }

    fn object(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.name(name);
        let mut inner = Self::begin(std::mem::take(&mut self.out));
        write(&mut inner);
        self.out = inner.end();
    }

    fn list<T>(&mut self, name: &str, items: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
        self.name(name);
        self.out.push(b'[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            write(&mut self.out, item);
        }
        self.out.push(b']');
    }
}
