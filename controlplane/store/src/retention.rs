//! Letting go of old rows, when their sums stand.

use std::time::Duration;

use rusqlite::params;

use crate::error::StoreError;
use crate::store::Tx;
use crate::usage::hour_of;

/// Rows let go in one transaction, so that nobody waits long for it.
const ROWS_MAX: i64 = 5000;
/// How long rows are kept. Longer than a month: a budget whose month begins within an hour, as in India, is loaded
/// from that hour's rows.
const USAGE_ROWS: Duration = Duration::from_secs(35 * 24 * 3600);

/// Lets go of ?2 rows that were admitted before the hour ?1. They lie at the front, with few others among them.
pub(crate) const OLD_ROWS: &str = "DELETE FROM usage WHERE (ts, record_id) IN ( \
                          SELECT ts, record_id FROM usage WHERE admitted_at < ?1 \
                            AND ts <= (SELECT MAX(last_ts) FROM usage_hours WHERE hour_ts < ?1) \
                          ORDER BY ts, record_id LIMIT ?2)";

/// How long what is kept. Sums, keys and the audit trail are kept for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// A row a request.
    pub usage_rows: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { usage_rows: USAGE_ROWS }
    }
}

impl Tx<'_> {
    /// Lets go of rows that are old enough and stand in the sums. Answer: whether there are more.
    pub fn forget(&self, now: i64, retention: Retention) -> Result<bool, StoreError> {
        let age = i64::try_from(retention.usage_rows.as_millis()).unwrap_or(i64::MAX);
        let before = hour_of(now.saturating_sub(age));
        // An open hour's sums are made from its rows: nothing from the first of them on may go.
        let sql = "SELECT MIN(hour_ts) FROM usage_open_hours";
        let first_open: Option<i64> = self.0.query_row(sql, [], |row| row.get(0))?;
        let before = before.min(first_open.unwrap_or(before));
        let sql = "UPDATE meta SET value = ?1 WHERE name = 'usage_kept_from' AND value < ?1";
        self.0.execute(sql, [before])?;
        let gone = self.0.execute(OLD_ROWS, params![before, ROWS_MAX])?;
        let has_more = i64::try_from(gone).unwrap_or(i64::MAX) == ROWS_MAX;
        if !has_more {
            self.0.execute("DELETE FROM usage_hours WHERE hour_ts < ?1", [before])?;
        }
        Ok(has_more)
    }
}
