//! Whose segments lie in a folder: each process writes its own, and takes over those of processes that are gone.
//!
//! A process holds a lock on a file of its name for its life; the system lets go of it however the process ends. So two
//! servers on one store, as during a restart without a gap, do not touch each other's segments.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use llmgw_kit::clock::Wall;

const LOCK: &str = "lock";
const SEGMENT: &str = "segment";
/// Names that are tried: others are in use only where processes of one id start in one millisecond.
const NAMES_MAX: u32 = 64;

/// This process as a writer of segments.
#[derive(Debug)]
pub(crate) struct Owner {
    name: String,
    /// Held by being open.
    _lock: File,
}

/// Segments of a process that is gone, in the order in which they were written.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(crate) segments: Vec<String>,
    /// The name of its lock file.
    pub(crate) lock_name: String,
    /// Held by being open.
    _lock: File,
}

impl Owner {
    /// Makes the folder, if it is not there, and a name in it.
    ///
    /// Errors: the folder cannot be made or written.
    pub(crate) fn enter(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        for number in 0..NAMES_MAX {
            let name = format!("{:012x}-{:x}-{number:x}", Wall::now().0, std::process::id());
            if let Some(lock) = locked(&folder.join(format!("{name}.{LOCK}")))? {
                return Ok(Self { name, _lock: lock });
            }
        }
        Err(io::Error::other("no name is free for this process's segments"))
    }

    /// The name of its segment of that number.
    pub(crate) fn segment(&self, number: u64) -> String {
        segment_name(&self.name, number)
    }

    /// The name of its lock file, to be taken away when nothing is left of its segments.
    pub(crate) fn lock_name(&self) -> String {
        format!("{}.{LOCK}", self.name)
    }

    /// Takes over the segments of processes that are gone, oldest process first.
    ///
    /// Errors: the folder cannot be read.
    pub(crate) fn adopt(&self, folder: &Path) -> io::Result<Vec<Orphans>> {
        let mut names: Vec<String> = Vec::new();
        for file in fs::read_dir(folder)? {
            names.push(file?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        let mut owners: Vec<&str> = names.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
        owners.dedup();
        let mut adopted = Vec::new();
        for owner in owners.into_iter().filter(|owner| *owner != self.name) {
            let lock_name = format!("{owner}.{LOCK}");
            let Some(lock) = locked(&folder.join(&lock_name))? else { continue };
            let is_its = |name: &&String| {
                name.strip_prefix(owner).is_some_and(|rest| rest.starts_with('.')) && name.ends_with(SEGMENT)
            };
            let segments = names.iter().filter(is_its).cloned().collect();
            adopted.push(Orphans { segments, lock_name, _lock: lock });
        }
        Ok(adopted)
    }
}

fn segment_name(owner: &str, number: u64) -> String {
    format!("{owner}.{number:08}.{SEGMENT}")
}

/// The lock file of that path, made if it is not there, and locked; nothing where somebody else holds it, or took it
/// away meanwhile.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let is_same = fs::metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|own| own.ino() == there.ino()));
    Ok(is_same.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_process_that_lives_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("made/on/the/way");
        let first = Owner::enter(&folder).expect("entered");
        for number in [2, 10, 1] {
            fs::write(folder.join(first.segment(number)), b"x").expect("written");
        }
        let lock = locked(&folder.join("0-other.lock")).expect("a file").expect("free");
        let second = Owner { name: "0-other".into(), _lock: lock };
        assert!(second.adopt(&folder).expect("a look").is_empty());
        let (name, lock_name) = (first.name.clone(), first.lock_name());
        drop(first);
        let adopted = second.adopt(&folder).expect("a look");
        let expected: Vec<_> = [1, 2, 10].map(|number| segment_name(&name, number)).into();
        assert_eq!(adopted.len(), 1);
        assert_eq!((&adopted[0].segments, &adopted[0].lock_name), (&expected, &lock_name));
        // Nobody else takes them meanwhile.
        let third = Owner::enter(&folder).expect("entered");
        assert!(third.adopt(&folder).expect("a look").iter().all(|orphans| orphans.segments.is_empty()));
    }
}
