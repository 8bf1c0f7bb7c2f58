//! Adds rows of usage: the one thing of the store that is done thousands of times a second.
//!
//! What it is done with is prepared once and kept by the thread that writes. Changes with the columns, and where
//! `cargo x bench micro usage` says that another way is cheaper.

use std::cell::RefMut;

use rusqlite::{Connection, Statement, ToSql, params};

use crate::error::StoreError;
use crate::store::Tx;
use crate::usage::{UsageRow, hour_of};
use crate::usage_batch::{Batch, Packed};

/// Rows in one statement.
const TOGETHER: usize = 10;
/// Values of a row.
const COLUMNS: usize = 19;
/// More tokens, or milliseconds, than this in one record are written as this many: sums must not run over.
const COUNT_MAX: u64 = 1 << 40;
/// More micro-units than this in one record are written as this many; the same bound that cores keep to.
const UNITS_MAX: u64 = llmgw_types::usage::UNITS_MICROS_MAX;

/// Statements that are prepared once a connection.
pub(crate) struct Inserts<'c> {
    one: Statement<'c>,
    together: Statement<'c>,
    kept_from: Statement<'c>,
    note_hour: Statement<'c>,
    open_hour: Statement<'c>,
}

impl<'c> Inserts<'c> {
    pub(crate) fn prepare(connection: &'c Connection) -> Result<Self, StoreError> {
        let note_hour = "INSERT INTO usage_hours (hour_ts, first_ts, last_ts, longest_ms) VALUES (?1, ?2, ?3, ?4) \
                         ON CONFLICT (hour_ts) DO UPDATE SET \
                         first_ts = CASE WHEN usage_hours.first_ts < excluded.first_ts \
                           THEN usage_hours.first_ts ELSE excluded.first_ts END, \
                         last_ts = CASE WHEN usage_hours.last_ts > excluded.last_ts \
                           THEN usage_hours.last_ts ELSE excluded.last_ts END, \
                         longest_ms = CASE WHEN usage_hours.longest_ms > excluded.longest_ms \
                           THEN usage_hours.longest_ms ELSE excluded.longest_ms END";
        let open_hour = "INSERT INTO usage_open_hours (hour_ts) VALUES (?1) ON CONFLICT DO NOTHING";
        Ok(Self {
            one: connection.prepare(&insert_sql(1))?,
            together: connection.prepare(&insert_sql(TOGETHER))?,
            kept_from: connection.prepare("SELECT value FROM meta WHERE name = 'usage_kept_from'")?,
            note_hour: connection.prepare(note_hour)?,
            open_hour: connection.prepare(open_hour)?,
        })
    }
}

/// Adds so many rows; one that is there already stays as it is.
///
/// A statement that fails leaves what it did before (`OR FAIL`), which is undone with its transaction: to undo it alone
/// SQLite would keep a copy of every page that the statement changes.
fn insert_sql(rows: usize) -> String {
    let row = format!("({})", ["?"; COLUMNS].join(", "));
    format!(
        "INSERT OR FAIL INTO usage (ts, record_id, admitted_at, key_id, project_id, model, served_model, pool, \
         replica, status, reason, prompt_tokens, completion_tokens, cached_tokens, units_micros, is_estimated, \
         ttft_ms, duration_ms, queue_ms) VALUES {} ON CONFLICT (ts, record_id) DO NOTHING",
        vec![row; rows].join(", ")
    )
}

fn clamped(value: u64, max: u64) -> i64 {
    i64::try_from(value.min(max)).unwrap_or(i64::MAX)
}

/// Values of a statement, bound one after the other.
struct Values<'s, 'c> {
    statement: &'s mut Statement<'c>,
    /// The next one's number, counted from 1.
    next: usize,
}

impl Values<'_, '_> {
    fn bind(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.next += 1;
        self.statement.raw_bind_parameter(self.next - 1, value)
    }

    /// The columns of [`insert_sql`], each by its own type: a list of values of any type costs a tenth of the row.
    fn bind_row(&mut self, row: &UsageRow<&str>) -> rusqlite::Result<()> {
        let count = |value: u64| clamped(value, COUNT_MAX);
        self.bind(row.ts)?;
        self.bind(row.record_id.as_slice())?;
        self.bind(row.admitted_at)?;
        self.bind(row.key_id)?;
        self.bind(row.project_id)?;
        self.bind(row.model)?;
        self.bind(Some(row.served_model).filter(|served| *served != row.model))?;
        self.bind(row.pool)?;
        self.bind(row.replica)?;
        self.bind(row.status)?;
        self.bind(row.reason)?;
        self.bind(count(row.prompt_tokens))?;
        self.bind(count(row.completion_tokens))?;
        self.bind(count(row.cached_tokens))?;
        self.bind(clamped(row.units_micros, UNITS_MAX))?;
        self.bind(row.is_estimated)?;
        self.bind(row.ttft_ms.map(count))?;
        self.bind(count(row.duration_ms))?;
        self.bind(row.queue_ms.map(count))
    }
}

/// What is noted of an hour of which there are new rows.
struct Hour {
    hour_ts: i64,
    first_ts: i64,
    last_ts: i64,
    longest_ms: i64,
}

/// The hours of which there are new rows: one or two.
#[derive(Default)]
struct Hours(Vec<Hour>);

impl Hours {
    fn note(&mut self, row: &Packed) {
        let (hour_ts, longest_ms) = (hour_of(row.admitted_at), clamped(row.duration_ms, COUNT_MAX));
        match self.0.iter_mut().find(|hour| hour.hour_ts == hour_ts) {
            Some(hour) => {
                hour.first_ts = hour.first_ts.min(row.ts);
                hour.last_ts = hour.last_ts.max(row.ts);
                hour.longest_ms = hour.longest_ms.max(longest_ms);
            }
            None => self.0.push(Hour { hour_ts, first_ts: row.ts, last_ts: row.ts, longest_ms }),
        }
    }
}

impl Tx<'_> {
    /// Writes records; one that is there already changes nothing. Answer: how many were new.
    ///
    /// A record of an hour whose rows were let go is added to that hour's sum at once.
    pub fn add_usage(&self, batch: &Batch) -> Result<usize, StoreError> {
        let mut inserts = self.inserts()?;
        let kept_from = inserts.kept_from.query_row([], |row| row.get(0))?;
        let is_late = |row: &Packed| hour_of(row.admitted_at) < kept_from;
        let (mut hours, mut added) = (Hours::default(), 0);
        for rows in batch.packed().chunks(TOGETHER) {
            if rows.len() == TOGETHER && !rows.iter().any(is_late) {
                let new = add(&mut inserts.together, batch, rows)?;
                // Which of them are new is not said; of the others this was noted before.
                rows.iter().filter(|_| new > 0).for_each(|row| hours.note(row));
                added += new;
                continue;
            }
            for row in rows {
                let new = add(&mut inserts.one, batch, std::slice::from_ref(row))?;
                if new > 0 {
                    hours.note(row);
                    added += new;
                }
                if new > 0 && is_late(row) {
                    self.add_late(&batch.shown(row))?;
                }
            }
        }
        note(inserts, hours, kept_from)?;
        Ok(added)
    }

    fn add_late(&self, row: &UsageRow<&str>) -> Result<(), StoreError> {
        let sql = "INSERT INTO usage_rollup (hour_ts, key_id, project_id, model, requests, prompt_tokens, \
                   completion_tokens, cached_tokens, units_micros, estimated_requests) \
                   VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (hour_ts, key_id, model) DO UPDATE SET \
                   requests = usage_rollup.requests + 1, \
                   prompt_tokens = usage_rollup.prompt_tokens + excluded.prompt_tokens, \
                   completion_tokens = usage_rollup.completion_tokens + excluded.completion_tokens, \
                   cached_tokens = usage_rollup.cached_tokens + excluded.cached_tokens, \
                   units_micros = usage_rollup.units_micros + excluded.units_micros, \
                   estimated_requests = usage_rollup.estimated_requests + excluded.estimated_requests";
        let values = params![
            hour_of(row.admitted_at),
            row.key_id,
            row.project_id,
            row.model,
            clamped(row.prompt_tokens, COUNT_MAX),
            clamped(row.completion_tokens, COUNT_MAX),
            clamped(row.cached_tokens, COUNT_MAX),
            clamped(row.units_micros, UNITS_MAX),
            row.is_estimated,
        ];
        self.0.execute(sql, values)?;
        Ok(())
    }
}

/// Adds rows by a statement for as many. Answer: how many were new.
fn add(statement: &mut Statement<'_>, batch: &Batch, rows: &[Packed]) -> Result<usize, StoreError> {
    let mut values = Values { statement, next: 1 };
    rows.iter().try_for_each(|row| values.bind_row(&batch.shown(row)))?;
    Ok(statement.raw_execute()?)
}

/// Notes where rows of these hours lie, and that they are in no sum yet.
fn note(mut inserts: RefMut<'_, Inserts<'_>>, hours: Hours, kept_from: i64) -> Result<(), StoreError> {
    for Hour { hour_ts, first_ts, last_ts, longest_ms } in hours.0 {
        inserts.note_hour.execute([hour_ts, first_ts, last_ts, longest_ms])?;
        if hour_ts >= kept_from {
            inserts.open_hour.execute([hour_ts])?;
        }
    }
    Ok(())
}
