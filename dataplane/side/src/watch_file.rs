//! Whether the configuration file is another than before: replaced in place, by rename or by a link that points
//! elsewhere.
//!
//! The path is followed to its end every second and the file found there is compared by device, number, times and
//! size; so links in any of its folders count, as Kubernetes swaps them for mounted config maps, and no file system
//! needs to tell. Asks `reload` for the rest.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::reload::{Cause, Request, ask};

/// How often the path is followed.
const LOOK: Duration = Duration::from_secs(1);
/// How long a changed file must stay the same before it is loaded: one that is being written may by chance be a whole
/// configuration, and another than is meant.
const SETTLE: Duration = Duration::from_millis(200);
/// How often a file that never stays the same is waited for before it is loaded as it is.
const SETTLE_TRIES: u32 = 50;

/// A file to be loaded and watched.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    seen: Stamp,
}

impl ConfigFile {
    /// The file as it is now. To be called before it is loaded for the first time, so that no change is missed.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: Stamp::of(path) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What tells one file from another at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    There { device: u64, number: u64, modified: (i64, i64), changed: (i64, i64), size_bytes: u64 },
    Absent,
}

impl Stamp {
    fn of(path: &Path) -> Self {
        let described = |found: std::fs::Metadata| Self::There {
            device: found.dev(),
            number: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            size_bytes: found.size(),
        };
        std::fs::metadata(path).map_or(Self::Absent, described)
    }

    async fn look(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || Self::of(&path)).await.map_err(io::Error::other)
    }
}

/// Watches until the side runtime ends.
pub(crate) async fn watch(mut file: ConfigFile, requests: mpsc::Sender<Request>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(mut stamp) = Stamp::look(&file.path).await else { return };
        if stamp == file.seen {
            continue;
        }
        for _ in 0..SETTLE_TRIES {
            tokio::time::sleep(SETTLE).await;
            let Ok(again) = Stamp::look(&file.path).await else { return };
            if std::mem::replace(&mut stamp, again) == again {
                break;
            }
        }
        file.seen = stamp;
        if stamp == Stamp::Absent {
            tracing::warn!(path = %file.path.display(), "configuration file is gone, the running configuration stays");
            continue;
        }
        // What came of it is said where it is done.
        let _ = ask(&requests, Cause::File).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_written_renamed_over_or_linked_elsewhere_is_another() {
        let dir = std::env::temp_dir().join(format!("llmgw-stamp-{}", std::process::id()));
        fs::create_dir_all(dir.join("one")).expect("a folder");
        fs::create_dir_all(dir.join("two")).expect("a folder");
        let path = dir.join("data").join("server.yaml");
        let link = |to: &str| {
            let _ = fs::remove_file(dir.join("next"));
            std::os::unix::fs::symlink(to, dir.join("next")).expect("a link");
            fs::rename(dir.join("next"), dir.join("data")).expect("swapped");
        };
        for folder in ["one", "two"] {
            fs::write(dir.join(folder).join("server.yaml"), "x").expect("written");
        }
        assert_eq!(Stamp::of(&path), Stamp::Absent);
        link("one");
        let mut seen = vec![Stamp::of(&path)];
        link("two");
        seen.push(Stamp::of(&path));
        fs::write(dir.join("two/server.yaml"), "longer").expect("written");
        seen.push(Stamp::of(&path));
        fs::write(dir.join("two/other"), "longer").expect("written");
        fs::rename(dir.join("two/other"), dir.join("two/server.yaml")).expect("renamed");
        seen.push(Stamp::of(&path));
        for (at, stamp) in seen.iter().enumerate() {
            assert!(!seen.iter().skip(at + 1).any(|other| other == stamp), "{seen:?}");
            assert_ne!(*stamp, Stamp::Absent);
        }
        assert_eq!(seen.last(), Some(&Stamp::of(&path)), "nothing happened since");
        fs::remove_dir_all(&dir).expect("removed");
    }
}
