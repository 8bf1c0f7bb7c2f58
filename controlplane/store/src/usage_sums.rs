//! Usage for people: sums over a time by whatever they ask for, and what is known of one request.

use llmgw_types::RequestId;
use rusqlite::{OptionalExtension, Row, ToSql, params};

use crate::error::StoreError;
use crate::store::Rows;
use crate::usage::{BY_HOUR, HOUR, USED_SUMS, UsageRow, Used, hour_of, used};

/// Sums in one answer at most.
pub const SUMS_MAX: usize = 10_000;
const DAY: i64 = 24 * HOUR;

/// What sums are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    /// The day in UTC that a request was admitted on.
    Day,
    Organization,
    Team,
    Project,
    Key,
    /// As it was asked for.
    Model,
}

impl Dimension {
    /// All of them, in the order of answers.
    pub const ALL: [Self; 6] = [Self::Day, Self::Organization, Self::Team, Self::Project, Self::Key, Self::Model];

    /// As operators write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Organization => "organization",
            Self::Team => "team",
            Self::Project => "project",
            Self::Key => "key",
            Self::Model => "model",
        }
    }

    const fn column(self) -> &'static str {
        match self {
            Self::Day => "used.hour_ts - used.hour_ts % 86400000",
            Self::Organization => "COALESCE(t.org_id, '')",
            Self::Team => "COALESCE(p.team_id, '')",
            Self::Project => "used.project_id",
            Self::Key => "used.key_id",
            Self::Model => "used.model",
        }
    }
}

/// What is to be summed up. Times are unix milliseconds, by admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// From the hour in which this lies on.
    pub since: i64,
    /// To the end of the hour in which this lies.
    pub until: i64,
    pub by: Vec<Dimension>,
    /// Of this one alone.
    pub key_id: Option<String>,
    pub project_id: Option<String>,
    pub model: Option<String>,
}

/// A sum. Of what it was not asked by there is nothing; an empty id stands for requests without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The day's first millisecond.
    pub day: Option<i64>,
    pub org_id: Option<String>,
    pub team_id: Option<String>,
    pub project_id: Option<String>,
    pub key_id: Option<String>,
    pub model: Option<String>,
    pub used: Used,
}

fn sum(row: &Row<'_>) -> rusqlite::Result<Sum> {
    Ok(Sum {
        day: row.get(0)?,
        org_id: row.get(1)?,
        team_id: row.get(2)?,
        project_id: row.get(3)?,
        key_id: row.get(4)?,
        model: row.get(5)?,
        used: used(row, Dimension::ALL.len())?,
    })
}

fn usage_row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let count = |at: usize| row.get::<_, i64>(at).map(|value| u64::try_from(value).unwrap_or_default());
    let some = |at: usize| row.get::<_, Option<i64>>(at).map(|value| value.and_then(|value| u64::try_from(value).ok()));
    Ok(UsageRow {
        ts: row.get(0)?,
        record_id: row.get(1)?,
        admitted_at: row.get(2)?,
        key_id: row.get(3)?,
        project_id: row.get(4)?,
        model: row.get(5)?,
        served_model: row.get(6)?,
        pool: row.get(7)?,
        replica: row.get(8)?,
        status: row.get(9)?,
        reason: row.get(10)?,
        prompt_tokens: count(11)?,
        completion_tokens: count(12)?,
        cached_tokens: count(13)?,
        units_micros: count(14)?,
        is_estimated: row.get(15)?,
        ttft_ms: some(16)?,
        duration_ms: count(17)?,
        queue_ms: some(18)?,
    })
}

impl Rows<'_> {
    /// Sums by what is wanted, of what was admitted in whole hours; [`SUMS_MAX`] at most, the first in order.
    pub fn usage_sums(&self, wanted: &Wanted) -> Result<Vec<Sum>, StoreError> {
        let sql = sums_sql(&wanted.by);
        let (since, until) = (hour_of(wanted.since), hour_of(wanted.until.saturating_sub(1)).saturating_add(HOUR));
        let most = i64::try_from(SUMS_MAX).unwrap_or(i64::MAX);
        let values: [&dyn ToSql; 6] = [&since, &until, &wanted.key_id, &wanted.project_id, &wanted.model, &most];
        self.list(&sql, values, sum)
    }

    /// What is known of one request, as long as rows are kept.
    ///
    /// Cost: up to two looks into the table for every millisecond that the request took, for its id says when it came
    /// and rows lie by when they ended; of an id that is not there, for as long as a request of that time may take.
    pub fn usage_row(&self, record_id: [u8; 16]) -> Result<Option<UsageRow>, StoreError> {
        let began = i64::try_from(RequestId(u128::from_be_bytes(record_id)).unix_ms()).unwrap_or(i64::MAX);
        let hour = hour_of(began);
        let longest: Option<i64> = self.0.query_row(LONGEST, [hour - HOUR, hour + DAY], |row| row.get(0))?;
        let Some(longest) = longest else { return Ok(None) };
        let mut next = self.0.prepare(NEXT)?;
        let (mut ts, last) = (began, began.saturating_add(longest));
        loop {
            let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 16]>(1)?));
            match next.query_row(params![ts, record_id, last], read).optional()? {
                None => return Ok(None),
                Some((ts, found)) if found == record_id => return self.one(ONE, params![ts, record_id], usage_row),
                // Behind where this id would be, of those that ended then.
                Some((found_ts, _)) if found_ts == ts => ts += 1,
                Some((found_ts, _)) => ts = found_ts,
            }
        }
    }
}

/// The longest that a request took of those that were let in from ?1 to ?2.
const LONGEST: &str = "SELECT MAX(longest_ms) FROM usage_hours WHERE hour_ts >= ?1 AND hour_ts <= ?2";
/// The first row from a place on, up to a time.
pub(crate) const NEXT: &str = "SELECT ts, record_id FROM usage WHERE (ts, record_id) >= (?1, ?2) AND ts <= ?3 \
                    ORDER BY ts, record_id LIMIT 1";
pub(crate) const ONE: &str = "SELECT ts, record_id, admitted_at, key_id, project_id, model, \
                                COALESCE(served_model, model), pool, replica, status, reason, prompt_tokens, \
                                completion_tokens, cached_tokens, units_micros, is_estimated, ttft_ms, \
                                duration_ms, queue_ms FROM usage WHERE ts = ?1 AND record_id = ?2";

pub(crate) fn sums_sql(by: &[Dimension]) -> String {
    let of = |dimension: Dimension| if by.contains(&dimension) { dimension.column() } else { "NULL" };
    let columns = Dimension::ALL.map(of).join(", ");
    format!(
        "SELECT {columns}, {USED_SUMS} FROM ({BY_HOUR}) AS used \
           LEFT JOIN projects AS p ON p.id = used.project_id LEFT JOIN teams AS t ON t.id = p.team_id \
         WHERE (?3 IS NULL OR used.key_id = ?3) AND (?4 IS NULL OR used.project_id = ?4) \
           AND (?5 IS NULL OR used.model = ?5) \
         GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6 LIMIT ?6"
    )
}

const _: () = assert!(DAY == 86_400_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::{World, add, add_tree, usage};

    fn sums(world: &World, wanted: &Wanted) -> Vec<Sum> {
        world.store.read(|rows| rows.usage_sums(wanted)).expect("sums")
    }

    /// Two days of rows, one an hour, by two keys; then the first hours summed up.
    fn world() -> World {
        let world = World::new();
        world.store.write(add_tree).expect("a tree");
        let rows: Vec<_> = (0..48).map(|at| usage(at, at as i64 * HOUR + 5, (at % 2) as u8, at)).collect();
        add(&world, &rows);
        world.store.write(|tx| tx.roll_up(20 * HOUR)).expect("summed up");
        world
    }

    #[test]
    fn sums_are_the_same_over_rows_and_over_what_was_summed_up() {
        let world = world();
        let all = Wanted { until: 48 * HOUR, ..Wanted::default() };
        let whole = sums(&world, &all);
        assert_eq!(whole.len(), 1);
        assert_eq!((whole[0].used.requests, whole[0].used.prompt_tokens), (48, (0..48).sum()));
        for by in Dimension::ALL {
            let parts = sums(&world, &Wanted { by: vec![by], ..all.clone() });
            assert_eq!(parts.iter().map(|sum| sum.used.requests).sum::<u64>(), 48, "{by:?}");
            assert_eq!(
                parts.iter().map(|sum| sum.used.units_micros).sum::<u64>(),
                whole[0].used.units_micros,
                "{by:?}"
            );
        }
        let days = sums(&world, &Wanted { by: vec![Dimension::Day, Dimension::Organization], ..all.clone() });
        let expected = [(Some(0), 24), (Some(DAY), 24)];
        assert_eq!(days.iter().map(|sum| (sum.day, sum.used.requests)).collect::<Vec<_>>(), expected);
        assert!(days.iter().all(|sum| sum.org_id.as_deref() == Some("org-1") && sum.key_id.is_none()));
    }

    #[test]
    fn a_time_is_widened_to_whole_hours_and_filters_hold() {
        let world = world();
        let some = Wanted { since: 3 * HOUR + 9, until: 5 * HOUR + 1, ..Wanted::default() };
        assert_eq!(sums(&world, &some)[0].used.requests, 3);
        let even = Wanted { key_id: Some("key-0".into()), until: 48 * HOUR, ..Wanted::default() };
        assert_eq!(sums(&world, &even)[0].used.requests, 24);
        let odd = Wanted { model: Some("odd".into()), key_id: Some("key-0".into()), ..even };
        assert!(sums(&world, &odd).is_empty());
        let none = Wanted { project_id: Some("proj-2".into()), until: 48 * HOUR, ..Wanted::default() };
        assert!(sums(&world, &none).is_empty());
    }

    fn found(world: &World, id: [u8; 16]) -> Option<UsageRow> {
        world.store.read(|rows| rows.usage_row(id)).expect("a look")
    }

    #[test]
    fn one_request_is_found_by_its_id() {
        let world = world();
        for at in 0..48 {
            let row = usage(at, at as i64 * HOUR + 5, (at % 2) as u8, at);
            assert_eq!(found(&world, row.record_id), Some(row), "{at}");
        }
        for none in [usage(99, 7 * HOUR + 5, 1, 7), usage(7, 7 * HOUR + 6, 1, 7), usage(7, 99 * HOUR, 1, 7)] {
            assert_eq!(found(&world, none.record_id), None);
        }
    }

    /// Many end in the millisecond of the one that is looked for, and in those before.
    #[test]
    fn one_request_is_found_among_many_that_end_with_it() {
        let world = World::new();
        let rows: Vec<_> = (0..300).map(|at| UsageRow { ts: 1_000 + at / 50, ..usage(at as u64, 995, 1, 1) }).collect();
        add(&world, &rows);
        rows.iter().for_each(|row| assert_eq!(found(&world, row.record_id).as_ref(), Some(row)));
    }

    /// A request is let in when its body has come, and its hour is that of this moment.
    #[test]
    fn one_request_is_found_that_was_let_in_long_after_it_came() {
        let world = World::new();
        let row = UsageRow {
            admitted_at: 3 * HOUR,
            ts: 3 * HOUR + 9,
            duration_ms: 9 + 2 * HOUR as u64,
            ..usage(1, HOUR, 1, 1)
        };
        add(&world, &[usage(7, 3 * HOUR, 1, 1), row.clone()]);
        add(&world, &[usage(14, 3 * HOUR, 1, 1)]);
        assert_eq!(found(&world, row.record_id), Some(row));
    }
}
