//! Whether the configuration file, or a certificate, key or authority it names, is another than before: replaced in
//! place, by rename or by a link that points elsewhere.
//!
//! Each path is followed to its end every second and the file found there is compared by device, number, times and
//! size; so links in any of its folders count, as Kubernetes swaps them for mounted config maps, and no file system
//! needs to tell. Asks `reload` for the rest.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmgw_config::ServerConfig;
use tokio::sync::{mpsc, watch};

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
}

/// The files that a configuration names and that may be replaced without it: certificates, keys, authorities.
fn named(config: &ServerConfig) -> Vec<PathBuf> {
    let of_clients = config.tls.iter().flat_map(|pair| [&pair.cert_file, &pair.key_file]);
    let of_engines = config.endpoints.iter().filter_map(|endpoint| Some(&endpoint.tls_ca.as_ref()?.file));
    let mut paths: Vec<PathBuf> = of_clients.chain(of_engines).map(PathBuf::from).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// What is watched, and how it was when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched(Vec<(PathBuf, Stamp)>);

impl Watched {
    /// Looks at the configuration file first, then at the others.
    async fn look(file: &Path, others: Vec<PathBuf>) -> io::Result<Self> {
        let paths = std::iter::once(file.to_owned()).chain(others).collect::<Vec<_>>();
        let stamped = |path: PathBuf| {
            let stamp = Stamp::of(&path);
            (path, stamp)
        };
        tokio::task::spawn_blocking(move || Self(paths.into_iter().map(stamped).collect()))
            .await
            .map_err(io::Error::other)
    }

    /// Those that are another than before, of those that were watched before.
    fn changed<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a (PathBuf, Stamp)> {
        let was = |path: &Path| before.0.iter().find(|(other, _)| other == path).map(|(_, stamp)| *stamp);
        self.0.iter().filter(move |(path, stamp)| was(path).is_some_and(|was| was != *stamp))
    }
}

/// Watches until the side runtime ends.
pub(crate) async fn watch(
    file: ConfigFile,
    running: watch::Receiver<Arc<ServerConfig>>,
    requests: mpsc::Sender<Request>,
) {
    let look = async || {
        let others = named(&running.borrow());
        Watched::look(&file.path, others).await
    };
    let Ok(mut seen) = look().await else { return };
    if let Some((_, stamp)) = seen.0.first_mut() {
        *stamp = file.seen;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(mut found) = look().await else { return };
        if found.changed(&seen).next().is_none() {
            // The configuration may name others than before.
            seen = found;
            continue;
        }
        for _ in 0..SETTLE_TRIES {
            tokio::time::sleep(SETTLE).await;
            let Ok(again) = look().await else { return };
            if std::mem::replace(&mut found, again.clone()) == again {
                break;
            }
        }
        let mut is_there = false;
        for (path, stamp) in found.changed(&seen) {
            is_there |= *stamp != Stamp::Absent;
            if *stamp == Stamp::Absent {
                tracing::warn!(path = %path.display(), "configuration file is gone, the running configuration stays");
            }
        }
        seen = found;
        if is_there {
            // What came of it is said where it is done.
            let _ = ask(&requests, Cause::File).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn of_files_that_come_and_go_from_the_configuration_only_those_that_stay_can_change() {
        let stamp = |size_bytes| Stamp::There { device: 1, number: 1, modified: (0, 0), changed: (0, 0), size_bytes };
        let of = |files: &[(&str, Stamp)]| Watched(files.iter().map(|(path, at)| (PathBuf::from(path), *at)).collect());
        let before = of(&[("a", stamp(1)), ("b", stamp(1)), ("c", Stamp::Absent)]);
        let check = |now: &[(&str, Stamp)], expected: &[&str]| {
            let now = of(now);
            let changed: Vec<&Path> = now.changed(&before).map(|(path, _)| path.as_path()).collect();
            assert_eq!(changed, expected.iter().map(Path::new).collect::<Vec<_>>());
        };
        check(&[("a", stamp(1)), ("b", stamp(1)), ("c", Stamp::Absent)], &[]);
        check(&[("a", stamp(2)), ("c", stamp(1))], &["a", "c"]);
        check(&[("a", stamp(1)), ("b", Stamp::Absent), ("new", stamp(9))], &["b"]);
    }

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
