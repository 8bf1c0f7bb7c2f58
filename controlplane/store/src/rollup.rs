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
        // A key stays in its project, so there is but one to choose.
        let sql = "INSERT INTO usage_rollup (hour_ts, key_id, project_id, model, requests, prompt_tokens, \
                   completion_tokens, cached_tokens, units_micros, estimated_requests) \
                   SELECT ?1, key_id, MIN(project_id), model, COUNT(*), SUM(prompt_tokens), SUM(completion_tokens), \
                   SUM(cached_tokens), SUM(units_micros), SUM(is_estimated) FROM usage \
                   WHERE admitted_at >= ?1 AND admitted_at < ?1 + ?2 GROUP BY key_id, model";
        self.0.execute(sql, params![hour, HOUR])?;
        self.0.execute("DELETE FROM usage_open_hours WHERE hour_ts = ?1", [hour])?;
        Ok(())
    }
}
