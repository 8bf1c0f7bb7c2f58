//! Whether the configuration file, or a certificate, key or authority it names, is another than before: replaced in
//! place, by rename or by a link that points elsewhere.
//!
//! Each path is followed to its end every second and the file found there is compared by device, number, times and
//! size; so links in any of its folders count, as Kubernetes swaps them for mounted config maps, and no file system
//! needs to tell. Asks `reload` for the rest.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmgw_config::ServerConfig;
use llmgw_kit::secret::Secret;
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
    There {
        device: u64,
        number: u64,
        modified: (i64, i64),
        changed: (i64, i64),
        size_bytes: u64,
    },
    Absent,
    /// Replaced between the load of the configuration that names it and the first look at it.
    NotAsLoaded,
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

/// A file that a configuration names and that may be replaced without it, and what was loaded from it.
struct Named {
    path: PathBuf,
    text: Secret,
}

/// All of them: certificates, keys, authorities.
fn named(config: &ServerConfig) -> Vec<Named> {
    let file = |path: &str, text: &str| Named { path: PathBuf::from(path), text: Secret::new(text) };
    let of_clients = config
        .tls
        .iter()
        .flat_map(|pair| [file(&pair.cert_file, &pair.cert_pem), file(&pair.key_file, pair.key_pem.expose())]);
    let of_engines = config.endpoints.iter().filter_map(|endpoint| endpoint.tls_ca.as_ref());
    let mut all: Vec<Named> = of_clients.chain(of_engines.map(|ca| file(&ca.file, &ca.pem))).collect();
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all.dedup_by(|one, other| one.path == other.path);
    all
}

impl Named {
    /// How it is, where nobody has looked at it before. Its stamp is taken first: what is written while it is read is
    /// another than it.
    fn first_stamp(&self) -> Stamp {
        let stamp = Stamp::of(&self.path);
        let is_as_loaded = match (stamp, self.read()) {
            (Stamp::Absent, _) => true,
            (_, Ok(text)) => text == self.text.expose().as_bytes(),
            (_, Err(_)) => false,
        };
        if is_as_loaded { stamp } else { Stamp::NotAsLoaded }
    }

    /// As much of it as tells whether it is the same.
    fn read(&self) -> io::Result<Vec<u8>> {
        let (mut text, most) = (Vec::new(), self.text.expose().len() as u64 + 1);
        File::open(&self.path)?.take(most).read_to_end(&mut text)?;
        Ok(text)
    }
}

/// What is watched, and how it was when it was last looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Watched(Vec<(PathBuf, Stamp)>);

impl Watched {
    /// Looks at the configuration file first, then at the others; closer at those that were not known before.
    async fn look(file: &Path, others: Vec<Named>, before: Self) -> io::Result<Self> {
        let file = file.to_owned();
        let look = move || {
            let first = (file.clone(), Stamp::of(&file));
            let stamped = others.into_iter().map(|named| {
                let is_known = before.0.iter().any(|(path, _)| *path == named.path);
                let stamp = if is_known { Stamp::of(&named.path) } else { named.first_stamp() };
                (named.path, stamp)
            });
            Self(std::iter::once(first).chain(stamped).collect())
        };
        tokio::task::spawn_blocking(look).await.map_err(io::Error::other)
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
    let look = async |before: &Watched| {
        let others = named(&running.borrow());
        Watched::look(&file.path, others, before.clone()).await
    };
    let Ok(mut seen) = look(&Watched::default()).await else { return };
    if let Some((_, stamp)) = seen.0.first_mut() {
        *stamp = file.seen;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(mut found) = look(&seen).await else { return };
        if found.changed(&seen).next().is_none() {
            // The configuration may name others than before.
            seen = found;
            continue;
        }
        for _ in 0..SETTLE_TRIES {
            tokio::time::sleep(SETTLE).await;
            let Ok(again) = look(&seen).await else { return };
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

    #[tokio::test]
    async fn a_file_replaced_between_its_load_and_the_first_look_is_another_and_said_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (config, cert) = (folder.path().join("server.yaml"), folder.path().join("cert.pem"));
        fs::write(&config, "x").expect("written");
        let loaded = |text: &str| vec![Named { path: cert.clone(), text: Secret::new(text) }];
        for (there, was_replaced) in [("old", false), ("new", true), ("older", true), ("ol", true)] {
            fs::write(&cert, there).expect("written");
            let first = Watched::look(&config, loaded("old"), Watched::default()).await.expect("a look");
            assert_eq!(first.0[1].1 == Stamp::NotAsLoaded, was_replaced, "{there}");
            let second = Watched::look(&config, loaded("old"), first.clone()).await.expect("a look");
            assert_eq!(second.changed(&first).count(), usize::from(was_replaced), "{there}");
            let third = Watched::look(&config, loaded("old"), second.clone()).await.expect("a look");
            assert_eq!(third.changed(&second).count(), 0, "{there}");
        }
        // One that a newer configuration names is looked at in the same way.
        let before = Watched(vec![(config.clone(), Stamp::of(&config))]);
        let found = Watched::look(&config, loaded("another"), before).await.expect("a look");
        assert_eq!(found.0[1].1, Stamp::NotAsLoaded);
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
