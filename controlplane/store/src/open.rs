//! A file becomes a store: found or made, looked over, brought to the newest schema.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;
use crate::migrate::{self, STEPS, Whose};

/// How long a call waits for another process that writes.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// How often the change to a write-ahead log is tried again while another process is at it.
const WAL_AGAIN: Duration = Duration::from_millis(20);
/// A file up to this size is looked over whole at the start, a larger one in the tables that decide who may ask.
const LOOKED_OVER_BYTES_MAX: u64 = 64 << 20;
/// The tables that are always looked over.
const SMALL_TABLES: &[&str] =
    &["organizations", "teams", "projects", "api_keys", "api_key_overlaps", "limits", "meta", "schema_migrations"];
/// Memory that one that reads keeps of the file: it reads through or looks up, and the system keeps the file's pages.
const READER_KEEPS_KIB: i64 = 256;
/// The pages of a new file: twice SQLite's own measure, so that a batch of usage writes half as many.
pub(crate) const PAGE_BYTES: u32 = 8 << 10;
/// The log is cut to this size when it was longer.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The file; made if it is not there, with access for its owner alone.
    pub path: PathBuf,
    /// How long a write or read waits while another process holds the file.
    pub busy_time: Duration,
    /// Pages that the file may have; none: as many as the disk holds.
    pub pages_max: Option<u32>,
}

impl OpenOptions {
    /// As a server opens it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), busy_time: BUSY_TIME, pages_max: None }
    }

    /// A connection that writes, to a file that is one of ours, sound and of the newest schema.
    pub(crate) fn writing(&self) -> Result<Connection, StoreError> {
        let path = &self.path;
        let mut made = fs::OpenOptions::new();
        made.read(true).append(true).create(true).mode(0o600);
        let made = made.open(path);
        made.map_err(|error| StoreError::Open { path: path.clone(), why: error.to_string() })?;
        let opened = || {
            let mut connection = self.connect()?;
            let whose = migrate::whose(&connection)?;
            if whose == Whose::Foreign {
                return Err(StoreError::Foreign { path: path.clone() });
            }
            if whose == Whose::Nobodys {
                connection.pragma_update(None, "page_size", PAGE_BYTES)?;
            }
            set_wal(&connection, self.busy_time)?;
            if whose == Whose::Ours {
                look_over(&connection, path)?;
                // That left as much of the file in memory as a connection keeps.
                connection.execute_batch("PRAGMA shrink_memory")?;
            }
            if let Some(pages) = self.pages_max {
                connection.pragma_update(None, "max_page_count", pages)?;
            }
            migrate::migrate(&mut connection, STEPS, path)?;
            Ok(connection)
        };
        opened().map_err(|error: StoreError| error.of(path))
    }

    /// A connection that reads. Errors: the file is gone, or no longer to be read.
    pub(crate) fn reading(&self) -> Result<Connection, StoreError> {
        let connection = self.connect()?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -READER_KEEPS_KIB)?;
        Ok(connection)
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.busy_time)?;
        // What was acknowledged survives a power failure; and nothing in the file is trusted to be harmless.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
        Ok(connection)
    }
}

/// Readers do not hold up the writer with a write-ahead log, nor it them. The file remembers it.
fn set_wal(connection: &Connection, time: Duration) -> Result<(), StoreError> {
    let deadline = Instant::now() + time;
    loop {
        // SQLite itself does not wait for this lock.
        let set = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match set.map_err(StoreError::from) {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => return Err(StoreError::Other(format!("no write-ahead log here, but {mode:?}"))),
            Err(StoreError::Locked) if Instant::now() < deadline => std::thread::sleep(WAL_AGAIN),
            Err(error) => return Err(error),
        }
    }
}

/// Errors: something in the file is not as SQLite wrote it.
pub(crate) fn look_over(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let is_small = fs::metadata(path).is_ok_and(|file| file.len() <= LOOKED_OVER_BYTES_MAX);
    if is_small {
        return look(connection, path, None);
    }
    SMALL_TABLES.iter().try_for_each(|table| look(connection, path, Some(table)))
}

/// Errors: the first thing that is wrong with the table, or with any.
pub(crate) fn look(connection: &Connection, path: &Path, table: Option<&str>) -> Result<(), StoreError> {
    let mut found: Option<String> = None;
    let of_row = |row: &rusqlite::Row<'_>| {
        found.get_or_insert(row.get::<_, String>(0)?);
        Ok(())
    };
    match table {
        Some(table) => connection.pragma(None, "quick_check", table, of_row)?,
        None => connection.pragma_query(None, "quick_check", of_row)?,
    }
    match found {
        Some(word) if word != "ok" => {
            let what = word.lines().find(|line| !line.starts_with("***")).unwrap_or(&word).to_owned();
            Err(StoreError::Damaged { path: path.to_owned(), what })
        }
        _ => Ok(()),
    }
}
