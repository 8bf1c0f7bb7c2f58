//! The audit trail: who changed what, as it was before and after. Rows are added and read, and never changed.

use rusqlite::{Row, params};
use serde_json::Value;

use crate::error::StoreError;
use crate::store::{Rows, Tx};

/// Events in one answer.
pub const EVENTS_MAX: u32 = 1000;

/// One administrative act.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, without a gap; of an event that is to be added, it is given.
    pub seq: i64,
    /// Unix milliseconds.
    pub ts: i64,
    /// Who did it, as far as is known.
    pub actor: String,
    /// What was done: `key.create`, `limits.set`.
    pub action: String,
    /// To what: `key`, `team`.
    pub target_type: String,
    pub target_id: String,
    /// None: it was not there.
    pub before: Option<Value>,
    /// None: it is there no more.
    pub after: Option<Value>,
}

impl Event {
    /// The same act by the same person, on a target that is known only now.
    pub fn about(&self, target_id: &str, before: Option<Value>, after: Option<Value>) -> Self {
        Self { target_id: target_id.to_owned(), before, after, ..self.clone() }
    }

    /// What else was done on the way.
    pub fn of(&self, action: &str, target_type: &str) -> Self {
        Self { action: action.to_owned(), target_type: target_type.to_owned(), ..self.clone() }
    }
}

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of this target alone.
    pub target_id: Option<String>,
    /// Not at or after this one.
    pub before_seq: Option<i64>,
    /// As many at most, up to [`EVENTS_MAX`].
    pub limit: Option<u32>,
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    // Only whole JSON was ever written; something else is shown as the text it is.
    let json = |text: Option<String>| text.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    Ok(Event {
        seq: row.get(0)?,
        ts: row.get(1)?,
        actor: row.get(2)?,
        action: row.get(3)?,
        target_type: row.get(4)?,
        target_id: row.get(5)?,
        before: json(row.get(6)?),
        after: json(row.get(7)?),
    })
}

impl Rows<'_> {
    /// Events, newest first.
    pub fn events(&self, wanted: &Wanted) -> Result<Vec<Event>, StoreError> {
        let sql = "SELECT seq, ts, actor, action, target_type, target_id, before, after FROM audit \
                   WHERE (?1 IS NULL OR target_id = ?1) AND (?2 IS NULL OR seq < ?2) ORDER BY seq DESC LIMIT ?3";
        let limit = wanted.limit.unwrap_or(100).min(EVENTS_MAX);
        self.list(sql, params![wanted.target_id, wanted.before_seq, limit], event)
    }
}

impl Tx<'_> {
    /// Adds an event, in the transaction of what it tells. Answer: its number.
    pub fn audit(&self, event: &Event) -> Result<i64, StoreError> {
        // Only one transaction writes at a time, so no two take the same number.
        let seq: i64 = self.0.query_row("SELECT COALESCE(MAX(seq), 0) + 1 FROM audit", [], |row| row.get(0))?;
        let sql = "INSERT INTO audit (seq, ts, actor, action, target_type, target_id, before, after) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        let Event { ts, actor, action, target_type, target_id, before, after, .. } = event;
        self.0.execute(sql, params![seq, ts, actor, action, target_type, target_id, text(before), text(after)])?;
        Ok(seq)
    }
}
