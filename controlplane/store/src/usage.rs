//! Usage: a row a request, and how much was used since a moment.

use rusqlite::{Row, params};

use crate::error::StoreError;
use crate::store::{Rows, Tx};

/// Rows in one transaction at most; a caller that has more begins another.
pub const BATCH_MAX: usize = 500;
/// More tokens, or milliseconds, than this in one record are written as this many: sums must not run over.
const COUNT_MAX: u64 = 1 << 40;
/// More micro-units than this in one record are written as this many; the same bound that cores keep to.
const UNITS_MAX: u64 = llmgw_types::usage::UNITS_MICROS_MAX;
pub(crate) const HOUR: i64 = 3_600_000;

/// What one request used. Times are unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The same in every copy of this record.
    pub record_id: [u8; 16],
    /// When it ended.
    pub ts: i64,
    /// When it began; hours and budgets go by it.
    pub admitted_at: i64,
    pub key_id: String,
    pub project_id: String,
    /// As it was asked for.
    pub model: String,
    /// As it was served: another where one stood in.
    pub served_model: String,
    pub pool: Option<String>,
    /// The endpoint that was asked last.
    pub replica: Option<String>,
    pub status: u16,
    /// Why it failed, in the words of the errors' table.
    pub reason: Option<String>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Of the prompt's, those that the engine had in its cache.
    pub cached_tokens: u64,
    /// Millionths of a unit.
    pub units_micros: u64,
    /// The engine did not say how many tokens.
    pub is_estimated: bool,
    pub ttft_ms: Option<u64>,
    pub duration_ms: u64,
    pub queue_ms: Option<u64>,
}

/// What several requests used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub requests: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub cached_tokens: u64,
    pub units_micros: u64,
    pub estimated_requests: u64,
}

/// What was used by a key of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub key_id: String,
    pub model: String,
    pub used: Used,
}

/// The columns of a [`Used`], summed up.
pub(crate) const USED_SUMS: &str = "SUM(requests), SUM(prompt_tokens), SUM(completion_tokens), SUM(cached_tokens), \
                                    SUM(units_micros), SUM(estimated_requests)";

/// Reads [`USED_SUMS`], of which the first column is at that place.
pub(crate) fn used(row: &Row<'_>, first: usize) -> rusqlite::Result<Used> {
    // Nothing below 0 was ever written.
    let count = |at: usize| row.get::<_, i64>(first + at).map(|value| u64::try_from(value).unwrap_or_default());
    Ok(Used {
        requests: count(0)?,
        prompt_tokens: count(1)?,
        completion_tokens: count(2)?,
        cached_tokens: count(3)?,
        units_micros: count(4)?,
        estimated_requests: count(5)?,
    })
}

fn total(row: &Row<'_>) -> rusqlite::Result<Total> {
    Ok(Total { key_id: row.get(0)?, model: row.get(1)?, used: used(row, 2)? })
}

fn clamped(value: u64, max: u64) -> i64 {
    i64::try_from(value.min(max)).unwrap_or(i64::MAX)
}

/// The hour a moment lies in.
pub(crate) const fn hour_of(ts: i64) -> i64 {
    ts - ts.rem_euclid(HOUR)
}

impl Tx<'_> {
    /// Writes records; one that is there already changes nothing. Answer: how many were new.
    ///
    /// A record of an hour whose rows were let go is added to that hour's sum at once.
    pub fn add_usage(&self, rows: &[UsageRow]) -> Result<usize, StoreError> {
        let mut insert = self.0.prepare(
            "INSERT INTO usage (record_id, ts, admitted_at, key_id, project_id, model, served_model, pool, status, \
             prompt_tokens, completion_tokens, cached_tokens, units_micros, is_estimated, ttft_ms, duration_ms, \
             queue_ms, replica, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) \
             ON CONFLICT (record_id) DO NOTHING",
        )?;
        let mut open = self.0.prepare("INSERT INTO usage_open_hours (hour_ts) VALUES (?1) ON CONFLICT DO NOTHING")?;
        let (kept_from, mut opened, mut added) = (self.kept_from()?, Vec::new(), 0);
        for row in rows {
            let is_new = insert.execute(params![
                row.record_id,
                row.ts,
                row.admitted_at,
                row.key_id,
                row.project_id,
                row.model,
                row.served_model,
                row.pool,
                row.status,
                clamped(row.prompt_tokens, COUNT_MAX),
                clamped(row.completion_tokens, COUNT_MAX),
                clamped(row.cached_tokens, COUNT_MAX),
                clamped(row.units_micros, UNITS_MAX),
                row.is_estimated,
                row.ttft_ms.map(|ms| clamped(ms, COUNT_MAX)),
                clamped(row.duration_ms, COUNT_MAX),
                row.queue_ms.map(|ms| clamped(ms, COUNT_MAX)),
                row.replica,
                row.reason,
            ])? == 1;
            if !is_new {
                continue;
            }
            added += 1;
            let hour = hour_of(row.admitted_at);
            if hour < kept_from {
                self.add_late(hour, row)?;
            } else if !opened.contains(&hour) {
                open.execute([hour])?;
                opened.push(hour);
            }
        }
        Ok(added)
    }

    fn add_late(&self, hour: i64, row: &UsageRow) -> Result<(), StoreError> {
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
            hour,
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

impl Rows<'_> {
    /// What was admitted since a moment, by key and model: sums where there are, rows where there are none yet.
    ///
    /// Exact as long as the rows of the hour in which `since` lies are kept; on a full hour, always.
    pub fn used_since(&self, since: i64) -> Result<Vec<Total>, StoreError> {
        let sql = format!(
            "SELECT key_id, model, {USED_SUMS} FROM ( \
               SELECT key_id, model, requests, prompt_tokens, completion_tokens, cached_tokens, units_micros, \
                 estimated_requests \
               FROM usage_rollup WHERE hour_ts >= ?2 \
                 AND hour_ts NOT IN (SELECT hour_ts FROM usage_open_hours) \
               UNION ALL \
               SELECT u.key_id, u.model, 1, u.prompt_tokens, u.completion_tokens, u.cached_tokens, \
                 u.units_micros, u.is_estimated \
               FROM usage_open_hours AS o JOIN usage AS u \
                 ON u.admitted_at >= o.hour_ts AND u.admitted_at < o.hour_ts + ?3 \
               WHERE o.hour_ts >= ?2 \
               UNION ALL \
               SELECT key_id, model, 1, prompt_tokens, completion_tokens, cached_tokens, units_micros, \
                 is_estimated \
               FROM usage WHERE admitted_at >= ?1 AND admitted_at < ?2 \
             ) AS used GROUP BY key_id, model ORDER BY key_id, model"
        );
        let whole_hours = hour_of(since.saturating_add(HOUR - 1));
        self.list(&sql, params![since, whole_hours, HOUR], total)
    }

    /// The first hour whose rows are all kept.
    pub(crate) fn kept_from(&self) -> Result<i64, StoreError> {
        Ok(self.0.query_row("SELECT value FROM meta WHERE name = 'usage_kept_from'", [], |row| row.get(0))?)
    }
}
