//! What the journal asks of a disk: for its writer, and for whoever reads it back. Two traits, since the writer may run
//! on a ring and the reader is a plain thread; a simulated disk is both.
//!
//! Names are those of segments, without their folder.

use std::fs::{self, File, OpenOptions};
use std::future::{Future, ready};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use crate::hands::Hand;

/// Something under way at a disk: it is through when this is. Dropping it changes nothing about it.
pub type Syncing = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// What a commit brings onto the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bring {
    /// What was written to a file.
    Bytes,
    /// And the fact that the file is there.
    BytesAndName,
}

/// What the writer asks for. Owner: the writer's thread, which must be free meanwhile: only what is awaited waits.
pub trait Files {
    /// An open segment.
    type File;

    /// Makes a segment; there is none of that name.
    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<Self::File>>;
    /// Writes at a place in it. What is written may be lost until it was synced.
    fn write(&mut self, file: &mut Self::File, at: u64, bytes: &[u8]) -> impl Future<Output = io::Result<()>>;
    /// Brings what was written to it until now onto the disk, whatever happens to the machine then. More may be
    /// written meanwhile, of which this says nothing. One at a time.
    fn sync(&mut self, file: &mut Self::File, bring: Bring) -> Syncing;
    /// Takes a segment away of which nothing is needed; what comes of it is of no concern.
    fn discard(&mut self, name: &str) -> impl Future<Output = ()>;
    /// Closes it.
    fn close(&mut self, file: Self::File) -> impl Future<Output = ()>;
}

/// What the reader asks for. Owner: any one thread that may wait.
pub trait Folder {
    /// The files there are.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// Reads at a place; fewer bytes at the end, none behind it.
    fn read(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Takes a file away; one that is gone is no error.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// A folder of the system, by calls that block. Of the writer's, other threads make those that may take long.
#[derive(Debug)]
pub struct StdFiles {
    folder: PathBuf,
    writes: Hand,
    /// Another, since a write does not wait for a commit.
    commits: Hand,
}

impl StdFiles {
    /// The folder is there.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), writes: Hand::new("llmgw-write"), commits: Hand::new("llmgw-commit") }
    }
}

impl Files for StdFiles {
    type File = Arc<File>;

    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<Arc<File>>> {
        let path = self.folder.join(name);
        ready(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(Arc::new))
    }

    fn write(&mut self, file: &mut Arc<File>, at: u64, bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        let (file, bytes) = (file.clone(), bytes.to_vec());
        self.writes.make(move || file.write_all_at(&bytes, at))
    }

    fn sync(&mut self, file: &mut Arc<File>, bring: Bring) -> Syncing {
        let (file, folder) = (file.clone(), self.folder.clone());
        self.commits.make(move || {
            file.sync_data()?;
            match bring {
                Bring::Bytes => Ok(()),
                Bring::BytesAndName => File::open(folder)?.sync_all(),
            }
        })
    }

    fn discard(&mut self, name: &str) -> impl Future<Output = ()> {
        let _ = fs::remove_file(self.folder.join(name));
        ready(())
    }

    fn close(&mut self, file: Arc<File>) -> impl Future<Output = ()> {
        drop(file);
        ready(())
    }
}

impl Folder for StdFiles {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let files = fs::read_dir(&self.folder)?;
        files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = File::open(self.folder.join(name))?;
        let mut read = 0;
        while let Some(rest) = into.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
