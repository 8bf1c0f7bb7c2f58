//! Sums, whatever the order in which rows come, are summed up and are let go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use crate::retention::Retention;
use crate::test_world::{World, add, usage};
use crate::usage::{HOUR, Total, UsageRow};
use crate::{Store, StoreError};

fn summed(rows: &[UsageRow]) -> Vec<Total> {
    let (mut totals, mut seen) = (BTreeMap::<_, Total>::new(), BTreeSet::new());
    for row in rows {
        if !seen.insert(row.record_id) {
            continue;
        }
        let total = totals.entry((row.key_id.clone(), row.model.clone())).or_default();
        (total.key_id, total.model) = (row.key_id.clone(), row.model.clone());
        total.used.requests += 1;
        total.used.prompt_tokens += row.prompt_tokens;
        total.used.completion_tokens += row.completion_tokens;
        total.used.cached_tokens += row.cached_tokens;
        total.used.units_micros += row.units_micros;
        total.used.estimated_requests += u64::from(row.is_estimated);
    }
    totals.into_values().collect()
}

fn used(store: &Store, since: i64) -> Vec<Total> {
    store.read(|rows| rows.used_since(since)).expect("read")
}

fn sums_and_rows(store: &Store) -> (i64, i64) {
    let count = |sql: &str| {
        store.read(|rows| Ok::<i64, StoreError>(rows.0.query_row(sql, [], |row| row.get(0))?)).expect("read")
    };
    (count("SELECT COUNT(*) FROM usage_rollup"), count("SELECT COUNT(*) FROM usage"))
}

fn roll_up(store: &Store, now: i64) {
    while store.write(move |tx| tx.roll_up(now)).expect("summed up") {}
}

fn forget(store: &Store, now: i64, kept: Duration) {
    while store.write(move |tx| tx.forget(now, Retention { usage_rows: kept })).expect("let go") {}
}

#[test]
fn summing_up_twice_is_summing_up_once_and_equals_the_rows() {
    let world = World::new();
    let rows: Vec<_> = (0..600).map(|at| usage(at, at as i64 * 40_000, (at % 3) as u8, at)).collect();
    let all = summed(&rows);
    assert_eq!(add(&world, &rows), 600);
    assert_eq!(used(&world.store, 0), all, "from rows alone");
    assert_eq!(sums_and_rows(&world.store).0, 0);
    for _ in 0..2 {
        roll_up(&world.store, 600 * 40_000 + HOUR);
        assert_eq!(used(&world.store, 0), all, "from sums alone");
    }
    assert_eq!(add(&world, &rows), 0, "records that come again");
    roll_up(&world.store, 600 * 40_000 + HOUR);
    assert_eq!(used(&world.store, 0), all);
}

#[test]
fn an_hour_that_is_not_over_is_read_from_its_rows() {
    let world = World::new();
    add(&world, &[usage(1, 10, 1, 4), usage(2, HOUR + 10, 1, 4)]);
    roll_up(&world.store, HOUR + 20);
    assert_eq!(sums_and_rows(&world.store), (1, 2));
    assert_eq!(used(&world.store, 0)[0].used.requests, 2);
}

#[test]
fn absurd_counts_do_not_break_the_sums() {
    let world = World::new();
    let rows: Vec<_> = (0..100)
        .map(|at| UsageRow { prompt_tokens: u64::MAX, units_micros: u64::MAX, ..usage(at, 10, 1, 4) })
        .collect();
    add(&world, &rows);
    roll_up(&world.store, 2 * HOUR);
    assert_eq!(used(&world.store, 0)[0].used.prompt_tokens, 100 << 40);
}

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<(u8, u8, u8, u16)>),
    RollUp(u8),
    Forget(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let row = (any::<u8>(), 0..12u8, 0..3u8, any::<u16>());
    prop_oneof![
        3 => prop::collection::vec(row, 1..20).prop_map(Step::Add),
        1 => (0..16u8).prop_map(Step::RollUp),
        1 => (0..12u8).prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn sums_and_rows_together_are_what_was_used(steps in prop::collection::vec(step(), 1..16), since in 0..12u8) {
        let world = World::new();
        let (mut all, mut gone_before) = (Vec::<UsageRow>::new(), 0);
        for step in steps {
            match step {
                Step::Add(rows) => {
                    // A record is the same each time it comes.
                    let known = |record: u8| all.iter().find(|row| row.record_id[15] == record).cloned();
                    let rows: Vec<_> = rows
                        .into_iter()
                        .map(|(record, hour, key, tokens)| {
                            let at = i64::from(hour) * HOUR + i64::from(tokens) * 50;
                            known(record).unwrap_or_else(|| usage(u64::from(record), at, key, tokens.into()))
                        })
                        // One that was let go may not come again: it would be counted again.
                        .filter(|row| row.admitted_at >= gone_before || known(row.record_id[15]).is_none())
                        .collect();
                    let mut fresh: Vec<UsageRow> = Vec::new();
                    for row in rows {
                        if !fresh.iter().any(|one| one.record_id[15] == row.record_id[15]) {
                            fresh.push(row);
                        }
                    }
                    all.extend(fresh.iter().cloned());
                    add(&world, &fresh);
                }
                Step::RollUp(hour) => roll_up(&world.store, i64::from(hour) * HOUR + 1),
                Step::Forget(hour) => {
                    forget(&world.store, i64::from(hour) * HOUR, Duration::ZERO);
                    gone_before = gone_before.max(i64::from(hour) * HOUR);
                }
            }
            prop_assert_eq!(used(&world.store, 0), summed(&all));
        }
        let since = i64::from(since) * HOUR;
        let late: Vec<_> = all.iter().filter(|row| row.admitted_at >= since).cloned().collect();
        prop_assert_eq!(used(&world.store, since), summed(&late));
        if gone_before == 0 {
            let late: Vec<_> = all.iter().filter(|row| row.admitted_at >= since + 1234).cloned().collect();
            prop_assert_eq!(used(&world.store, since + 1234), summed(&late));
        }
    }
}
