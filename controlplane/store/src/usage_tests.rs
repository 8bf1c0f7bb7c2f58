//! How rows of usage lie in the file: found without a look at all of them, and brought there from older schemas.

use std::time::Duration;

use rusqlite::{Connection, params};

use crate::migrate::{STEPS, migrate};
use crate::retention::{OLD_ROWS, Retention};
use crate::rollup::HOUR_SUMS;
use crate::test_world::{World, add, options, usage};
use crate::usage::{HOUR, Total, UsageRow, hour_of, since_sql};
use crate::usage_sums::{Dimension, NEXT, ONE, sums_sql};
use crate::{Rows, Store, StoreError};

/// How SQLite would go about it, step by step.
fn plan(connection: &Connection, sql: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let (mut rows, mut steps) = (statement.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        steps.push(row.get(3)?);
    }
    Ok(steps)
}

#[test]
fn whoever_wants_rows_of_usage_looks_where_they_lie() {
    let world = World::new();
    let all = [sums_sql(&[]), sums_sql(&Dimension::ALL), since_sql()];
    for sql in [NEXT, ONE, HOUR_SUMS, OLD_ROWS].into_iter().chain(all.iter().map(String::as_str)) {
        let steps = world.store.read(|rows| plan(rows.0, sql)).expect("a plan");
        let of_rows: Vec<_> = steps.iter().filter(|step| step.contains(" u ") || step.contains(" usage ")).collect();
        let is_sought = |step: &&String| step.starts_with("SEARCH") && step.contains("USING PRIMARY KEY (");
        assert!(!of_rows.is_empty() && of_rows.iter().all(is_sought), "{sql}: {steps:#?}");
    }
}

/// Writes rows as a store of schema 5 has them.
fn add_to_5(connection: &Connection, rows: &[UsageRow]) {
    let sql = "INSERT INTO usage (record_id, ts, admitted_at, key_id, project_id, model, served_model, pool, status, \
               prompt_tokens, completion_tokens, cached_tokens, units_micros, is_estimated, ttft_ms, duration_ms, \
               queue_ms, replica, reason) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
    let signed = |value: u64| value as i64;
    for row in rows {
        let values = params![
            row.record_id,
            row.ts,
            row.admitted_at,
            row.key_id,
            row.project_id,
            row.model,
            row.served_model,
            row.pool,
            row.status,
            signed(row.prompt_tokens),
            signed(row.completion_tokens),
            signed(row.cached_tokens),
            signed(row.units_micros),
            row.is_estimated,
            row.ttft_ms.map(signed),
            signed(row.duration_ms),
            row.queue_ms.map(signed),
            row.replica,
            row.reason,
        ];
        connection.execute(sql, values).expect("written");
        let hour = [hour_of(row.admitted_at)];
        connection.execute("INSERT OR IGNORE INTO usage_open_hours (hour_ts) VALUES (?1)", hour).expect("written");
    }
}

#[test]
fn rows_of_an_older_schema_are_as_if_they_had_been_written_in_the_newest() {
    let mut rows: Vec<_> = (0..2000).map(|at| usage(at, at as i64 * 60_000, (at % 3) as u8, at)).collect();
    rows.push(UsageRow {
        pool: Some("a".into()),
        replica: None,
        reason: Some("b".into()),
        queue_ms: Some(4),
        ..usage(2000, 5, 1, 4)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = options(&folder).path;
    let mut old = Connection::open(&path).expect("a file");
    migrate(&mut old, &STEPS[..5], &path).expect("schema 5");
    add_to_5(&old, &rows);
    drop(old);
    let brought = World { store: Store::open(options(&folder)).expect("a store"), folder };
    let fresh = World::new();
    add(&fresh, &rows);

    let used =
        |world: &World, since: i64| -> Vec<Total> { world.store.read(|rows| rows.used_since(since)).expect("read") };
    let check_sums = || {
        for since in [0, 7 * HOUR, 7 * HOUR + 40_000, 900 * HOUR] {
            assert_eq!(used(&brought, since), used(&fresh, since), "{since}");
        }
    };
    check_sums();
    assert_eq!(used(&brought, 0).iter().map(|total| total.used.requests).sum::<u64>(), 2001);
    for row in &rows {
        let found = brought.store.read(|rows| rows.usage_row(row.record_id)).expect("a look");
        assert_eq!(found.as_ref(), Some(row));
    }
    assert_eq!(add(&brought, &rows), 0, "they are there already");
    for world in [&brought, &fresh] {
        while world.store.write(|tx| tx.roll_up(20 * HOUR)).expect("summed up") {}
    }
    check_sums();
}

fn count(world: &World, sql: &str) -> i64 {
    let look = |rows: &Rows<'_>| Ok::<i64, StoreError>(rows.0.query_row(sql, [], |row| row.get(0))?);
    world.store.read(look).expect("read")
}

#[test]
fn all_rows_that_are_old_enough_are_let_go_and_no_others() {
    let world = World::new();
    let rows: Vec<_> = (0..480).map(|at| usage(at, at as i64 * HOUR / 10, 1, 4)).collect();
    add(&world, &rows);
    while world.store.write(|tx| tx.roll_up(48 * HOUR)).expect("summed up") {}
    let kept = Retention { usage_rows: Duration::from_hours(24) };
    while world.store.write(move |tx| tx.forget(48 * HOUR, kept)).expect("let go") {}
    assert_eq!(count(&world, "SELECT MIN(admitted_at) FROM usage"), 24 * HOUR);
    assert_eq!(count(&world, "SELECT COUNT(*) FROM usage"), 240);
    assert_eq!(count(&world, "SELECT COUNT(*) FROM usage_hours"), 24);
}

#[test]
fn a_record_that_comes_late_is_in_the_sums_once_however_often_it_comes() {
    let world = World::new();
    let nothing = Retention { usage_rows: Duration::ZERO };
    world.store.write(move |tx| tx.forget(48 * HOUR, nothing)).expect("let go");
    let late = [usage(1, 5, 1, 4), usage(2, 6, 1, 4)];
    assert_eq!((add(&world, &late), add(&world, &late)), (2, 0));
    let used = world.store.read(|rows| rows.used_since(0)).expect("read");
    assert_eq!(used.iter().map(|total| total.used.requests).sum::<u64>(), 2);
}
