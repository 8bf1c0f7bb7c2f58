//! Sums by the hour: what budgets are loaded from, and what is left when rows are let go.
//!
//! An hour that got rows since it was summed up is open. Summing it up makes its sums anew from its rows, so doing it
//! twice is doing it once.

use rusqlite::params;

use crate::error::StoreError;
use crate::store::Tx;
use crate::usage::{HOUR, hour_of};

/// Hours summed up in one transaction.
const HOURS_MAX: u32 = 4;

/// The sums of the hour ?1, ?2 long, from its rows. A key stays in its project, so there is but one to choose.
pub(crate) const HOUR_SUMS: &str = "INSERT INTO usage_rollup (hour_ts, key_id, project_id, model, requests, \
       prompt_tokens, completion_tokens, cached_tokens, units_micros, estimated_requests) \
     SELECT ?1, u.key_id, MIN(u.project_id), u.model, COUNT(*), SUM(u.prompt_tokens), SUM(u.completion_tokens), \
       SUM(u.cached_tokens), SUM(u.units_micros), SUM(u.is_estimated) \
     FROM usage_hours AS h JOIN usage AS u ON u.ts >= h.first_ts AND u.ts <= h.last_ts \
     WHERE h.hour_ts = ?1 AND u.admitted_at >= ?1 AND u.admitted_at < ?1 + ?2 GROUP BY u.key_id, u.model";

impl Tx<'_> {
    /// Sums up open hours that are over. Answer: whether there are more.
    pub fn roll_up(&self, now: i64) -> Result<bool, StoreError> {
        let hours: Vec<i64> = self.list(
            "SELECT hour_ts FROM usage_open_hours WHERE hour_ts < ?1 ORDER BY hour_ts LIMIT ?2",
            params![hour_of(now), HOURS_MAX],
            |row| row.get(0),
        )?;
        for &hour in &hours {
            self.roll_up_hour(hour)?;
        }
        Ok(hours.len() as u32 == HOURS_MAX)
    }

    fn roll_up_hour(&self, hour: i64) -> Result<(), StoreError> {
        self.0.execute("DELETE FROM usage_rollup WHERE hour_ts = ?1", [hour])?;
        self.0.execute(HOUR_SUMS, params![hour, HOUR])?;
        self.0.execute("DELETE FROM usage_open_hours WHERE hour_ts = ?1", [hour])?;
        Ok(())
    }
}
