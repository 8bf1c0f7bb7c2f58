//! What can go wrong with a store, told so that an operator knows what to do.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the store did not do it. Whatever was begun is undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file or its folder is not to be had.
    #[error("store {}: cannot be opened: {why}", .path.display())]
    Open { path: PathBuf, why: String },
    /// It is a SQLite file, and not one of ours.
    #[error("store {}: this is the database of another program; name another file as store.path", .path.display())]
    Foreign { path: PathBuf },
    /// A newer program wrote it.
    #[error(
        "store {}: its schema is {found} and this program knows {known} at most: start the newer llmgw again, or \
         restore a backup from before it", .path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// The file is damaged.
    #[error(
        "store {}: the file is damaged ({what}); move it and its -wal and -shm files away and put a backup in its \
         place (llmgw ctl backup makes them)", .path.display()
    )]
    Damaged { path: PathBuf, what: String },
    /// Another process holds it longer than we wait.
    #[error("the store is locked by another process")]
    Locked,
    /// No room.
    #[error("the disk of the store is full")]
    Full,
    /// It may not be written.
    #[error("the store cannot be written: its file or disk is read-only")]
    ReadOnly,
    /// As many acts wait as may.
    #[error("the store has too much to do; try again")]
    Busy,
    /// Whether it was done is not known.
    #[error("the store did not answer in time; look whether it was done")]
    NoAnswer,
    /// It is closed, or its thread met a fault of its own.
    #[error("the store is closed")]
    Closed,
    /// Something of that name or hash is there already.
    #[error("there is one already")]
    Exists,
    /// It names something that is not there, or something names it.
    #[error("it refers to something that is not there")]
    Dangling,
    /// Anything else the database says.
    #[error("the store failed: {0}")]
    Other(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(failure, message) = &error else { return Self::Other(error.to_string()) };
        match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Locked,
            ErrorCode::DiskFull => Self::Full,
            // The index of the log finds no room: SQLite tells no reason, and there is hardly another.
            ErrorCode::SystemIoFailure if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => Self::Full,
            ErrorCode::ReadOnly => Self::ReadOnly,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                Self::Damaged { path: PathBuf::new(), what: message.clone().unwrap_or_else(|| error.to_string()) }
            }
            ErrorCode::ConstraintViolation => match failure.extended_code {
                rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY => Self::Exists,
                rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Self::Dangling,
                _ => Self::Other(error.to_string()),
            },
            _ => Self::Other(error.to_string()),
        }
    }
}

impl StoreError {
    /// The same, with the file it is about where it did not know it.
    pub(crate) fn of(self, file: &Path) -> Self {
        match self {
            Self::Damaged { what, .. } => Self::Damaged { path: file.to_owned(), what },
            Self::Other(why) => Self::Open { path: file.to_owned(), why },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn what_sqlite_says_is_told_by_what_an_operator_can_do_about_it() {
        let check = |code: i32, expected: StoreError| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(std::mem::discriminant(&StoreError::from(error)), std::mem::discriminant(&expected), "{code}");
        };
        let other = || StoreError::Other(String::new());
        check(ffi::SQLITE_FULL, StoreError::Full);
        check(ffi::SQLITE_IOERR_SHMSIZE, StoreError::Full);
        check(ffi::SQLITE_IOERR_READ, other());
        check(ffi::SQLITE_BUSY, StoreError::Locked);
        check(ffi::SQLITE_READONLY_DBMOVED, StoreError::ReadOnly);
        check(ffi::SQLITE_CORRUPT, StoreError::Damaged { path: PathBuf::new(), what: String::new() });
        check(ffi::SQLITE_CONSTRAINT_PRIMARYKEY, StoreError::Exists);
        check(ffi::SQLITE_CONSTRAINT_FOREIGNKEY, StoreError::Dangling);
        check(ffi::SQLITE_CONSTRAINT_CHECK, other());
    }
}
