//! From any older schema to the newest, one step a transaction.
//!
//! Steps are numbered alike for every database; only their text differs. A step is never changed once it was released:
//! what follows is a new one. A process that dies in the middle of a step leaves the one before it.

use std::path::Path;

use llmgw_kit::clock::Wall;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::error::StoreError;

/// One step.
pub(crate) struct Step {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// All steps, in order.
pub(crate) const STEPS: &[Step] = &[
    Step { version: 1, name: "tenancy", sql: include_str!("migrations/sqlite/0001_tenancy.sql") },
    Step { version: 2, name: "usage", sql: include_str!("migrations/sqlite/0002_usage.sql") },
    Step { version: 3, name: "audit", sql: include_str!("migrations/sqlite/0003_audit.sql") },
    Step { version: 4, name: "usage_where", sql: include_str!("migrations/sqlite/0004_usage_where.sql") },
    Step { version: 5, name: "usage_in_order", sql: include_str!("migrations/sqlite/0005_usage_in_order.sql") },
    Step { version: 6, name: "usage_by_end", sql: include_str!("migrations/sqlite/0006_usage_by_end.sql") },
];

/// Marks the file as ours: `llgw`.
const APPLICATION_ID: i32 = 0x6c6c_6777;

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Nobody's: there is nothing in it.
    Nobodys,
    Ours,
    Foreign,
}

/// Looks whose file it is. Errors: it cannot be read, or is no database.
pub(crate) fn whose(connection: &Connection) -> Result<Whose, StoreError> {
    let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (id, tables) {
        (APPLICATION_ID, _) => Whose::Ours,
        (0, 0) => Whose::Nobodys,
        _ => Whose::Foreign,
    })
}

/// Takes the steps that were not taken. Two processes that do it at once take each step once.
///
/// Errors: the schema is newer than the last step, or a step failed and was undone.
pub(crate) fn migrate(connection: &mut Connection, steps: &[Step], file: &Path) -> Result<(), StoreError> {
    let known = steps.last().map_or(0, |step| step.version);
    loop {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = version(&tx)?;
        if found > known {
            return Err(StoreError::Newer { path: file.to_owned(), found, known });
        }
        let Some(step) = steps.iter().find(|step| step.version > found) else { return Ok(()) };
        take(&tx, step)?;
        tx.commit()?;
        tracing::info!(version = step.version, name = step.name, "store schema brought up");
    }
}

/// The last step that was taken; 0 for none.
fn version(tx: &Transaction<'_>) -> Result<i64, StoreError> {
    let is_there = tx
        .query_row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'", [], |_| Ok(()))
        .optional()?
        .is_some();
    if !is_there {
        return Ok(0);
    }
    Ok(tx.query_row("SELECT COALESCE(MAX(version), 0) FROM schema_migrations", [], |row| row.get(0))?)
}

pub(crate) fn take(tx: &Transaction<'_>, step: &Step) -> Result<(), StoreError> {
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migrations (
             version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL
         )",
    )?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.execute_batch(step.sql)?;
    let now = i64::try_from(Wall::now().0).unwrap_or(i64::MAX);
    tx.execute(
        "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?1, ?2, ?3)",
        params![step.version, step.name, now],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FIRST: Step = Step { version: 1, name: "first", sql: "CREATE TABLE a (x BIGINT); INSERT INTO a VALUES (7);" };
    /// Enough rows to reach the file long before the end.
    const LONG: Step = Step {
        version: 2,
        name: "long",
        sql: "CREATE TABLE b (x BIGINT, y TEXT);
              WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
              INSERT INTO b SELECT i, hex(zeroblob(200)) FROM n;
              ALTER TABLE a ADD COLUMN z TEXT;",
    };
    const FAULTY: Step = Step { version: 2, name: "faulty", sql: "CREATE TABLE b (x BIGINT); DROP TABLE nowhere;" };

    fn opened(file: &Path) -> Connection {
        let connection = Connection::open(file).expect("a file");
        connection.pragma_update(None, "journal_mode", "WAL").expect("WAL");
        connection
    }

    fn tables(connection: &Connection) -> Vec<String> {
        let mut statement =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").expect("a query");
        let rows = statement.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("names")
    }

    #[test]
    fn steps_are_numbered_without_a_gap() {
        for (at, step) in (1..).zip(STEPS) {
            assert_eq!(step.version, at, "{}", step.name);
        }
    }

    #[test]
    fn a_step_is_taken_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("s.db");
        let mut connection = opened(&file);
        for _ in 0..2 {
            migrate(&mut connection, &[FIRST], &file).expect("taken");
        }
        migrate(&mut connection, &[FIRST, LONG], &file).expect("taken");
        assert_eq!(tables(&connection), ["a", "b", "schema_migrations"]);
        let rows: i64 = connection.query_row("SELECT COUNT(*) FROM a", [], |row| row.get(0)).expect("a count");
        assert_eq!(rows, 1);
    }

    #[test]
    fn a_step_that_fails_leaves_the_one_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("s.db");
        let mut connection = opened(&file);
        let error = migrate(&mut connection, &[FIRST, FAULTY], &file).expect_err("no such table");
        assert!(error.to_string().contains("nowhere"), "{error}");
        assert_eq!(tables(&connection), ["a", "schema_migrations"]);
    }

    #[test]
    fn a_crash_in_the_middle_of_a_step_leaves_the_one_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("s.db");
        let mut connection = opened(&file);
        migrate(&mut connection, &[FIRST], &file).expect("taken");
        // So few pages in memory that those of the step reach the log before its end.
        connection.pragma_update(None, "cache_size", 10).expect("set");
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
        take(&tx, &LONG).expect("taken, not committed");
        // What a process leaves that is killed here.
        let left = folder.path().join("left.db");
        fs::copy(&file, &left).expect("a copy");
        let log = fs::copy(folder.path().join("s.db-wal"), folder.path().join("left.db-wal")).expect("a copy");
        assert!(log > 1 << 20, "the step did not reach the file: {log} bytes");
        drop(tx);

        let mut after = opened(&left);
        assert_eq!(tables(&after), ["a", "schema_migrations"]);
        migrate(&mut after, &[FIRST, LONG], &left).expect("taken from the start");
        let rows: i64 = after.query_row("SELECT COUNT(*) FROM b", [], |row| row.get(0)).expect("a count");
        assert_eq!(rows, 20_000);
    }

    #[test]
    fn a_newer_schema_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("s.db");
        let mut connection = opened(&file);
        migrate(&mut connection, &[FIRST, LONG], &file).expect("taken");
        let error = migrate(&mut connection, &[FIRST], &file).expect_err("newer");
        assert_eq!(error, StoreError::Newer { path: file, found: 2, known: 1 });
        assert_eq!(tables(&connection), ["a", "b", "schema_migrations"]);
    }
}
