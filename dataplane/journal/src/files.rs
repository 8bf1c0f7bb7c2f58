//! What the journal asks of a disk: for its writer, and for whoever reads it back. Two traits, since the writer may run
//! on a ring and the reader is a plain thread; a simulated disk is both.
//!
//! Names are those of segments, without their folder.

use std::fs::{self, File, OpenOptions};
use std::future::{Future, ready};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the writer asks for. Owner: the writer's thread.
pub trait Files {
    /// An open segment.
    type File;

    /// Makes a segment; there is none of that name.
    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<Self::File>>;
    /// Writes at a place in it. What is written may be lost until it was synced.
    fn write(&mut self, file: &mut Self::File, at: u64, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>>;
    /// Brings what was written to it onto the disk, whatever happens to the machine then.
    fn sync(&mut self, file: &mut Self::File) -> impl Future<Output = io::Result<()>>;
    /// The same for the fact that it is there.
    fn sync_folder(&mut self) -> impl Future<Output = io::Result<()>>;
    /// Takes a segment away of which nothing is needed; what comes of it is of no concern.
    fn discard(&mut self, name: &str) -> impl Future<Output = ()>;
    /// Closes it.
    fn close(&mut self, file: Self::File) -> impl Future<Output = ()>;
    /// Waits.
    fn pause(&mut self, time: Duration) -> impl Future<Output = ()>;
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

/// A folder of the system, by calls that block.
#[derive(Debug, Clone)]
pub struct StdFiles {
    folder: PathBuf,
}

impl StdFiles {
    /// The folder is there.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }
}

impl Files for StdFiles {
    type File = File;

    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<File>> {
        let path = self.folder.join(name);
        ready(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path))
    }

    fn write(&mut self, file: &mut File, at: u64, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>> {
        ready(file.write_all_at(&bytes, at))
    }

    fn sync(&mut self, file: &mut File) -> impl Future<Output = io::Result<()>> {
        ready(file.sync_data())
    }

    fn sync_folder(&mut self) -> impl Future<Output = io::Result<()>> {
        ready(File::open(&self.folder).and_then(|folder| folder.sync_all()))
    }

    fn discard(&mut self, name: &str) -> impl Future<Output = ()> {
        let _ = fs::remove_file(self.folder.join(name));
        ready(())
    }

    fn close(&mut self, file: File) -> impl Future<Output = ()> {
        drop(file);
        ready(())
    }

    fn pause(&mut self, time: Duration) -> impl Future<Output = ()> {
        std::thread::sleep(time);
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

/// Runs what never waits for anything but calls that block, as all of [`StdFiles`] do.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = work.as_mut().poll(&mut cx) {
            return done;
        }
    }
}
