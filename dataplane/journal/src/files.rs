//! What the journal asks of a disk: for its writer, and for whoever reads it back. Two traits, since the writer may run
//! on a ring and the reader is a plain thread; a simulated disk is both.
//!
//! Names are those of segments, without their folder.

use std::fs::{self, File, OpenOptions};
use std::future::{Future, poll_fn, ready};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// A commit under way: it is through when this is. Dropping it changes nothing about it.
pub type Syncing = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// What the writer asks for. Owner: the writer's thread.
pub trait Files {
    /// An open segment.
    type File;

    /// Makes a segment; there is none of that name.
    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<Self::File>>;
    /// Writes at a place in it. What is written may be lost until it was synced.
    fn write(&mut self, file: &mut Self::File, at: u64, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>>;
    /// Brings what was written to it until now onto the disk, whatever happens to the machine then. More may be
    /// written meanwhile, of which this says nothing. One at a time.
    fn sync(&mut self, file: &mut Self::File) -> Syncing;
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

/// A folder of the system, by calls that block; but for commits, which a second thread makes when there is one.
#[derive(Debug)]
pub struct StdFiles {
    folder: PathBuf,
    committer: Option<Sender<(Arc<File>, Arc<Told>)>>,
}

/// How a commit ended, and who waits for that.
#[derive(Debug, Default)]
struct Told(Mutex<(Option<io::Result<()>>, Option<Waker>)>);

impl StdFiles {
    /// The folder is there.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), committer: None }
    }
}

impl Told {
    fn tell(&self, outcome: io::Result<()>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(outcome);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A thread that brings files onto the disk, until nobody asks any more. Errors: there is none to be had.
fn committer() -> io::Result<Sender<(Arc<File>, Arc<Told>)>> {
    let (ask, asked) = channel::<(Arc<File>, Arc<Told>)>();
    thread::Builder::new().name("llmgw-commit".into()).spawn(move || {
        for (file, told) in asked {
            told.tell(file.sync_data());
        }
    })?;
    Ok(ask)
}

impl Files for StdFiles {
    type File = Arc<File>;

    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<Arc<File>>> {
        let path = self.folder.join(name);
        ready(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(Arc::new))
    }

    fn write(&mut self, file: &mut Arc<File>, at: u64, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>> {
        ready(file.write_all_at(&bytes, at))
    }

    fn sync(&mut self, file: &mut Arc<File>) -> Syncing {
        if self.committer.is_none() {
            self.committer = committer().ok();
        }
        let told = Arc::<Told>::default();
        let asked = self.committer.as_ref().map(|committer| committer.send((file.clone(), told.clone())));
        if !matches!(asked, Some(Ok(()))) {
            // Slower, and the same.
            return Box::pin(ready(file.sync_data()));
        }
        Box::pin(poll_fn(move |cx| told.poll(cx)))
    }

    fn sync_folder(&mut self) -> impl Future<Output = io::Result<()>> {
        ready(File::open(&self.folder).and_then(|folder| folder.sync_all()))
    }

    fn discard(&mut self, name: &str) -> impl Future<Output = ()> {
        let _ = fs::remove_file(self.folder.join(name));
        ready(())
    }

    fn close(&mut self, file: Arc<File>) -> impl Future<Output = ()> {
        drop(file);
        ready(())
    }

    fn pause(&mut self, time: Duration) -> impl Future<Output = ()> {
        thread::sleep(time);
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

/// Runs work to its end on this thread, which sleeps while that waits for another.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let waker = Waker::from(Arc::new(Woken(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut cx) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// Wakes a thread.
struct Woken(Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
