//! A copy of a store that is in use: as it stood at one moment, while it is written on.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::error::StoreError;
use crate::migrate::{self, Whose};
use crate::open;
use crate::store::Store;

/// Pages copied at a time.
const PAGES: i32 = 1024;

/// A copy that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Store {
    /// Copies the store to a new file, looks the copy over, and only then gives it its name.
    ///
    /// Owner: a thread that may wait for as long as it takes to read the store. Errors: there is a file of that name,
    /// it cannot be written, or the store is damaged; then nothing is left of the copy.
    pub fn backup(&self, to: &Path) -> Result<Copied, StoreError> {
        let refuse = |why: String| StoreError::Open { path: to.to_owned(), why };
        if to.file_name().is_none() || fs::symlink_metadata(to).is_ok() {
            return Err(refuse("a backup is a new file, and there is one of that name".to_owned()));
        }
        let mut partial = to.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let made = self.copy_to(&partial).and_then(|bytes| {
            let named = fs::hard_link(&partial, to).and_then(|()| sync_folder(to));
            named.map_err(|error| refuse(error.to_string()))?;
            Ok(Copied { path: to.to_owned(), bytes })
        });
        let _ = fs::remove_file(&partial);
        made
    }

    fn copy_to(&self, partial: &Path) -> Result<u64, StoreError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let refuse = |error: io::Error| StoreError::Open { path: partial.to_owned(), why: error.to_string() };
        let mut file = fs::OpenOptions::new();
        file.write(true).create_new(true).mode(0o600).open(partial).map_err(refuse)?;
        let from = self.options().reading()?;
        // One look for the whole copy: what is written meanwhile is in the log, and does not make it begin again.
        from.execute_batch("BEGIN; SELECT COUNT(*) FROM sqlite_schema")?;
        let mut into = Connection::open(partial)?;
        {
            let backup = Backup::new(&from, &mut into)?;
            loop {
                match backup.step(PAGES)? {
                    StepResult::Done => break,
                    StepResult::More => {}
                    _ => return Err(StoreError::Locked),
                }
            }
        }
        // One file, without a log beside it, until it is used as a store.
        into.pragma_update(None, "journal_mode", "DELETE")?;
        if migrate::whose(&into)? != Whose::Ours {
            return Err(StoreError::Foreign { path: partial.to_owned() });
        }
        open::look(&into, partial, None)?;
        into.close().map_err(|(_, error)| error)?;
        File::open(partial).and_then(|file| file.sync_all()).map_err(refuse)?;
        Ok(fs::metadata(partial).map_err(refuse)?.len())
    }
}

fn sync_folder(of: &Path) -> io::Result<()> {
    let folder = of.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
