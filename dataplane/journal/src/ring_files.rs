//! The writer's files on a ring of glommio's, where the system has io_uring and lets us use it.
//!
//! The executor is the writer's thread's own: nothing else runs on it. Its ring takes no registered memory worth
//! speaking of, since segments go through the page cache.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use glommio::io::{BufferedFile, Directory, OpenOptions};
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement};

use crate::files::{Bring, Files, Syncing};

/// Operations under way at once; there is one at a time.
const RING_DEPTH: usize = 8;
/// Registered memory, of which nothing is used; glommio takes no less.
const MEMORY_BYTES: usize = 64 << 10;

/// An executor for this thread. Errors: the system refuses one.
pub(crate) fn executor() -> io::Result<LocalExecutor> {
    let make = || LocalExecutorBuilder::new(Placement::Unbound).ring_depth(RING_DEPTH).io_memory(MEMORY_BYTES).make();
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(made) => made.map_err(io::Error::from),
        Err(_) => Err(io::Error::other("its set-up met a fault of its own")),
    }
}

/// A folder, from within an executor.
pub(crate) struct RingFiles {
    folder: PathBuf,
}

impl RingFiles {
    /// The folder is there.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }
}

/// Waits, and lets others of this thread go on.
pub(crate) async fn pause(time: Duration) {
    glommio::timer::sleep(time).await;
}

async fn sync_folder(folder: &Path) -> Result<(), GlommioError<()>> {
    let folder = Directory::open(folder).await?;
    let synced = folder.sync().await;
    folder.close().await?;
    synced
}

fn plain(error: GlommioError<()>) -> io::Error {
    error.into()
}

impl Files for RingFiles {
    type File = Rc<BufferedFile>;

    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<Rc<BufferedFile>>> {
        let path = self.folder.join(name);
        async move {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.buffered_open(path).await.map(Rc::new).map_err(plain)
        }
    }

    async fn write(&mut self, file: &mut Rc<BufferedFile>, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match file.write_at(rest.to_vec(), at + done as u64).await.map_err(plain)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => done += written,
            }
        }
        Ok(())
    }

    fn sync(&mut self, file: &mut Rc<BufferedFile>, bring: Bring) -> Syncing {
        let (file, folder) = (file.clone(), self.folder.clone());
        // A task of its own: it takes its steps while nobody looks.
        let synced = glommio::spawn_local(async move {
            file.fdatasync().await.map_err(plain)?;
            match bring {
                Bring::Bytes => Ok(()),
                Bring::BytesAndName => sync_folder(&folder).await.map_err(plain),
            }
        });
        let synced = synced.detach();
        // A task is cancelled only by whoever holds it.
        Box::pin(async move { synced.await.unwrap_or_else(|| Err(io::Error::other("the commit was given up"))) })
    }

    async fn discard(&mut self, name: &str) {
        // What comes of it is of no concern.
        let _ = glommio::io::remove(self.folder.join(name)).await;
    }

    async fn close(&mut self, file: Rc<BufferedFile>) {
        // A commit that was given up may hold it still, and lets go of it.
        if let Some(file) = Rc::into_inner(file) {
            // All of it that counts was synced.
            let _ = file.close().await;
        }
    }
}
