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
        let sql = "DELETE FROM usage WHERE record_id IN \
                   (SELECT record_id FROM usage WHERE admitted_at < ?1 ORDER BY admitted_at LIMIT ?2)";
        let gone = self.0.execute(sql, params![before, ROWS_MAX])?;
        Ok(i64::try_from(gone).unwrap_or(i64::MAX) == ROWS_MAX)
    }
}
