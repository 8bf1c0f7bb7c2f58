//! The journal at work: one thread that writes, one that hands on, and their end.

use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use llmgw_kit::clock::Mono;
use llmgw_types::UsageRecord;

use crate::files::{Files, StdFiles};
use crate::hands::{self, block_on};
use crate::metrics::Cells;
use crate::owner::{Orphans, Owner};
use crate::reader::{Did, Outlet, Reader};
#[cfg(feature = "glommio")]
use crate::ring_files::{self, RingFiles};
use crate::rings::{NewestNames, Rings};
use crate::tail::{Segment, Tail};
use crate::writer::{Options, Writer};

/// How often the cores' rings are emptied: what `kill -9` takes of answers that have ended.
const EMPTY_EVERY: Duration = Duration::from_millis(5);
/// The same after a while without a record.
const EMPTY_IDLE: Duration = Duration::from_millis(10);
/// How long that while is.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// The wait between two turns at the least, however long they take.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// What the writer's files are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A ring of its own, where there is one; else as `Thread`.
    Ring,
    /// Calls that block.
    Thread,
}

/// What a journal is started with.
pub struct Setup<O> {
    /// Where its segments are; made if it is not there.
    pub folder: PathBuf,
    /// One a core.
    pub rings: Vec<Arc<ArrayQueue<UsageRecord>>>,
    pub names: NewestNames,
    pub outlet: O,
    pub cells: Arc<Cells>,
    pub options: Options,
    pub driver: Driver,
}

/// A journal that runs. Dropping it ends it, without a wait for the store.
#[derive(Debug)]
pub struct Journal {
    tail: Arc<Tail>,
    is_stopped: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
}

impl Journal {
    /// Takes over what processes that are gone left in the folder, and begins to write.
    ///
    /// Errors: the folder cannot be used, or there is no thread.
    pub fn start<O: Outlet + Send + 'static>(setup: Setup<O>) -> io::Result<Self> {
        let Setup { folder, rings, names, outlet, cells, options, driver } = setup;
        let in_folder = |error: io::Error| {
            let message = format!("usage journal {}: {error}", folder.display());
            io::Error::new(error.kind(), message)
        };
        let owner = Arc::new(Owner::enter(&folder).map_err(in_folder)?);
        let orphans = owner.adopt(&folder).map_err(in_folder)?;
        let tail = Arc::new(Tail::default());
        adopt(&orphans, &folder, &tail, &cells);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let writer = {
            let (folder, tail, is_stopped) = (folder.clone(), tail.clone(), is_stopped.clone());
            let (cells, owner) = (cells.clone(), owner.clone());
            let source = Source { rings, names, is_stopped };
            let sink = Sink { folder, options, tail, cells, owner };
            Builder::new().name("llmgw-journal".into()).spawn(move || run(driver, source, &sink))?
        };
        let reader = {
            let tail = tail.clone();
            Builder::new().name("llmgw-usage".into()).spawn(move || {
                let reader = Reader::new(StdFiles::new(&folder), outlet, tail, cells);
                hand_on(reader, &folder, orphans, &owner);
            })?
        };
        Ok(Self { tail, is_stopped, writer: Some(writer), reader: Some(reader) })
    }

    /// Waits until everything that an earlier run had written is in the store. Answer: whether that is so.
    pub fn wait_replayed(&self, limit: Duration) -> bool {
        self.tail.wait_replayed(limit)
    }

    /// Ends: what lies in the rings is written, and stored if that is done within the limit; else the next start does
    /// it. Call when the cores have ended.
    pub fn stop(mut self, limit: Duration) {
        self.end(limit);
    }

    fn end(&mut self, limit: Duration) {
        self.is_stopped.store(true, Ordering::Release);
        join(self.writer.take());
        let deadline = Mono::now() + limit;
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) && Mono::now() < deadline {
            std::thread::sleep(EMPTY_EVERY);
        }
        self.tail.hurry();
        join(self.reader.take());
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // A panic of it was said when it happened.
        let _ = thread.join();
    }
}

/// What others left is read first, oldest first.
fn adopt(orphans: &[Orphans], folder: &Path, tail: &Tail, cells: &Cells) {
    let (mut count, mut all_bytes) = (0, 0);
    for name in orphans.iter().flat_map(|orphans| &orphans.segments) {
        let bytes = std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
        tail.add(Segment { name: name.clone(), bytes, is_sealed: true, is_orphan: true });
        cells.bytes_gone.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        (count, all_bytes) = (count + 1, all_bytes + bytes);
    }
    if count > 0 {
        tracing::info!(segments = count, bytes = all_bytes, "usage records of a run before are being stored");
    }
}

/// Where records come from.
struct Source {
    rings: Vec<Arc<ArrayQueue<UsageRecord>>>,
    names: NewestNames,
    is_stopped: Arc<AtomicBool>,
}

/// Where they go.
struct Sink {
    folder: PathBuf,
    options: Options,
    tail: Arc<Tail>,
    cells: Arc<Cells>,
    owner: Arc<Owner>,
}

impl Sink {
    fn writer<F: Files>(&self, files: F) -> Writer<F> {
        let owner = self.owner.clone();
        let name = move |number| owner.segment(number);
        Writer::new(files, self.options, self.tail.clone(), self.cells.clone(), name)
    }
}

/// The writer's thread, to its end.
fn run(driver: Driver, source: Source, sink: &Sink) {
    #[cfg(feature = "glommio")]
    if driver == Driver::Ring {
        match ring_files::executor() {
            Ok(executor) => {
                tracing::debug!("the usage journal is written over a ring");
                let writer = sink.writer(RingFiles::new(&sink.folder));
                return executor.run(write(writer, source, ring_files::pause));
            }
            Err(error) => tracing::info!(%error, "no ring for the usage journal: a plain thread writes it"),
        }
    }
    let _ = driver;
    block_on(write(sink.writer(StdFiles::new(&sink.folder)), source, hands::pause));
}

/// Empties the rings and writes until it is stopped.
async fn write<F: Files, P: Future<Output = ()>>(mut writer: Writer<F>, source: Source, pause: impl Fn(Duration) -> P) {
    let Source { rings, names, is_stopped } = source;
    let mut rings = Rings::new(rings, names, writer.waiting());
    loop {
        // Seen before the rings are emptied: what came before the stop is written.
        let is_last = is_stopped.load(Ordering::Acquire);
        let now = Mono::now();
        for at in 0..rings.count() {
            rings.empty(at);
            if rings.waiting.is_half_full() {
                // Before the next one, so that memory need not hold them all.
                turn(&mut writer, &mut rings, &pause).await;
            }
        }
        if is_last {
            return writer.end(now).await;
        }
        // What is due to be committed, or tried again, is so without a new record too.
        turn(&mut writer, &mut rings, &pause).await;
        let is_idle = now.since(rings.busy_at) >= IDLE_AFTER;
        let every = if is_idle { EMPTY_IDLE } else { EMPTY_EVERY };
        // What a turn takes is no part of what a record waits.
        let time = every.saturating_sub(Mono::now().since(now)).max(PAUSE_MIN);
        if writer.is_committing() {
            // Lets a ring take the commit's steps.
            pause(time).await;
        } else {
            // There is nobody to listen to, and a ring listens at three times the price.
            std::thread::sleep(time);
        }
    }
}

/// A turn of the writer. While that waits for the disk the rings are emptied: a disk that stands still costs memory
/// first.
async fn turn<F: Files, P: Future<Output = ()>>(
    writer: &mut Writer<F>,
    rings: &mut Rings,
    pause: &impl Fn(Duration) -> P,
) {
    let mut turn = pin!(writer.turn(Mono::now()));
    while !is_through(turn.as_mut(), pause(EMPTY_EVERY)).await {
        for at in 0..rings.count() {
            rings.empty(at);
        }
    }
}

/// Whether `work` is through before the time is over.
async fn is_through<W: Future<Output = ()>>(mut work: Pin<&mut W>, time: impl Future<Output = ()>) -> bool {
    let mut time = pin!(time);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => time.as_mut().poll(cx).map(|()| false),
    })
    .await
}

/// Hands records on until nothing more comes; then takes away what locks of processes that are gone are left.
fn hand_on<O: Outlet>(mut reader: Reader<StdFiles, O>, folder: &Path, orphans: Vec<Orphans>, owner: &Owner) {
    let mut orphans = Some(orphans);
    loop {
        match reader.turn(Mono::now()) {
            Did::Something => {}
            Did::Wait(time) => reader.wait(time),
            Did::Ended => break,
        }
        if orphans.is_some() && reader.is_replayed() {
            for gone in orphans.take().into_iter().flatten() {
                // A lock that stays says nothing about segments that are not there.
                let _ = std::fs::remove_file(folder.join(&gone.lock_name));
            }
        }
    }
    if reader.is_empty() {
        let _ = std::fs::remove_file(folder.join(owner.lock_name()));
    }
}
