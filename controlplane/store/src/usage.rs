//! Usage: a row a request, and how much was used since a moment.
//!
//! Rows lie in the order in which requests ended, and hours are those of their admission: in which part of the rows an
//! hour's lie is noted with them (`usage_hours`), and whoever wants an hour looks there.

use rusqlite::{Row, params};

use crate::error::StoreError;
use crate::store::Rows;

/// Rows in one transaction at most; a caller that has more begins another.
pub const BATCH_MAX: usize = 500;
pub(crate) const HOUR: i64 = 3_600_000;

/// What one request used. Times are unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow<T = String> {
    /// When it ended.
    pub ts: i64,
    /// The id of the request, which says when it came. With `ts` the same in every copy of this record.
    pub record_id: [u8; 16],
    /// When it was let in; hours and budgets go by it.
    pub admitted_at: i64,
    pub key_id: T,
    pub project_id: T,
    /// As it was asked for.
    pub model: T,
    /// As it was served: another where one stood in.
    pub served_model: T,
    pub pool: Option<T>,
    /// The endpoint that was asked last.
    pub replica: Option<T>,
    pub status: u16,
    /// Why it failed, in the words of the errors' table.
    pub reason: Option<T>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Of the prompt's, those that the engine had in its cache.
    pub cached_tokens: u64,
    /// Millionths of a unit.
    pub units_micros: u64,
    /// The engine did not say how many tokens.
    pub is_estimated: bool,
    pub ttft_ms: Option<u64>,
    /// From when it came to `ts`.
    pub duration_ms: u64,
    pub queue_ms: Option<u64>,
}

impl<T> UsageRow<T> {
    /// The same row with other texts.
    pub fn map<'r, U>(&'r self, mut of: impl FnMut(&'r T) -> U) -> UsageRow<U> {
        UsageRow {
            ts: self.ts,
            record_id: self.record_id,
            admitted_at: self.admitted_at,
            key_id: of(&self.key_id),
            project_id: of(&self.project_id),
            model: of(&self.model),
            served_model: of(&self.served_model),
            pool: self.pool.as_ref().map(&mut of),
            replica: self.replica.as_ref().map(&mut of),
            status: self.status,
            reason: self.reason.as_ref().map(of),
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_tokens: self.cached_tokens,
            units_micros: self.units_micros,
            is_estimated: self.is_estimated,
            ttft_ms: self.ttft_ms,
            duration_ms: self.duration_ms,
            queue_ms: self.queue_ms,
        }
    }
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

/// The hour a moment lies in.
pub(crate) const fn hour_of(ts: i64) -> i64 {
    ts - ts.rem_euclid(HOUR)
}

/// What was used, by the hour of its admission: `hour_ts`, whose it is and of what, and the columns of a [`Used`]. Of
/// whole hours from ?1 to before ?2: sums where there are, rows where there are none yet.
pub(crate) const BY_HOUR: &str = "SELECT hour_ts, key_id, project_id, model, requests, prompt_tokens, \
       completion_tokens, cached_tokens, units_micros, estimated_requests \
     FROM usage_rollup WHERE hour_ts >= ?1 AND hour_ts < ?2 \
       AND hour_ts NOT IN (SELECT hour_ts FROM usage_open_hours) \
     UNION ALL \
     SELECT h.hour_ts, u.key_id, u.project_id, u.model, 1, u.prompt_tokens, u.completion_tokens, u.cached_tokens, \
       u.units_micros, u.is_estimated \
     FROM usage_hours AS h JOIN usage AS u ON u.ts >= h.first_ts AND u.ts <= h.last_ts \
       AND u.admitted_at >= h.hour_ts AND u.admitted_at < h.hour_ts + 3600000 \
     WHERE h.hour_ts >= ?1 AND h.hour_ts < ?2 AND h.hour_ts IN (SELECT hour_ts FROM usage_open_hours)";
const _: () = assert!(HOUR == 3_600_000);

/// [`BY_HOUR`] by key and model, and what was admitted from ?3 to before ?1, in the hour ?4.
pub(crate) fn since_sql() -> String {
    format!(
        "SELECT key_id, model, {USED_SUMS} FROM ({BY_HOUR} \
           UNION ALL \
           SELECT h.hour_ts, u.key_id, u.project_id, u.model, 1, u.prompt_tokens, u.completion_tokens, \
             u.cached_tokens, u.units_micros, u.is_estimated \
           FROM usage_hours AS h JOIN usage AS u ON u.ts >= h.first_ts AND u.ts <= h.last_ts \
           WHERE h.hour_ts = ?4 AND u.admitted_at >= ?3 AND u.admitted_at < ?1 \
         ) AS used GROUP BY key_id, model ORDER BY key_id, model"
    )
}

impl Rows<'_> {
    /// What was admitted since a moment, by key and model: sums where there are, rows where there are none yet.
    ///
    /// Exact as long as the rows of the hour in which `since` lies are kept; on a full hour, always.
    pub fn used_since(&self, since: i64) -> Result<Vec<Total>, StoreError> {
        let whole_hours = hour_of(since.saturating_add(HOUR - 1));
        self.list(&since_sql(), params![whole_hours, i64::MAX, since, hour_of(since)], total)
    }
}
