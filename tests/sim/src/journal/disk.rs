//! A disk, and the store beside it, in one state: what was written may be lost until it was synced, a sync takes its
//! time, and a crash comes between any two of its operations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn, ready};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use llmgw_journal::files::{Bring, Files, Folder, Syncing};
use llmgw_journal::{Cells, Entry, Outlet};
use llmgw_kit::chance::Chance;

use super::{Mutant, record};

/// What a disk loses or keeps as one.
const SECTOR_BYTES: usize = 64;

/// How a process ends that does not end in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// The machine goes down: what was not synced may be gone, in part or whole.
    Power,
    /// The process is killed: all it wrote is there.
    Kill,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// As whoever reads it now sees it.
    seen: Vec<u8>,
    /// Bytes of that before the last write.
    seen_before: usize,
    /// As it is after a crash, at the least.
    kept: Vec<u8>,
    /// Bytes from there to there were given up by a sync that failed: later ones do not bring them.
    given_up: Option<(usize, usize)>,
    /// That it is there is on the disk.
    is_named: bool,
    /// It was taken away, and that is not on the disk.
    is_gone: bool,
}

/// What a crash leaves.
#[derive(Debug)]
pub(super) struct Left {
    files: BTreeMap<String, File>,
    /// Records that were said to be on the disk.
    pub(super) acknowledged: usize,
    pub(super) rows: BTreeMap<u128, bool>,
}

pub(super) struct State {
    pub(super) chance: Chance,
    files: BTreeMap<String, File>,
    /// Rows of the store: whether each is what was written.
    pub(super) rows: BTreeMap<u128, bool>,
    pub(super) mutant: Option<Mutant>,
    pub(super) bytes_max: usize,
    /// Operations fail now and then.
    pub(super) is_faulty: bool,
    pub(super) is_store_locked: bool,
    /// A crash after so many operations.
    pub(super) crash_in: Option<(u64, Crash)>,
    pub(super) left: Option<Left>,
    pub(super) cells: Arc<Cells>,
    pub(super) failed_ops: u64,
}

#[derive(Clone)]
pub(super) struct Disk(pub(super) Rc<RefCell<State>>);

impl Disk {
    pub(super) fn new(chance: Chance, mutant: Option<Mutant>) -> Self {
        Self(Rc::new(RefCell::new(State {
            chance,
            files: BTreeMap::new(),
            rows: BTreeMap::new(),
            mutant,
            bytes_max: usize::MAX,
            is_faulty: false,
            is_store_locked: false,
            crash_in: None,
            left: None,
            cells: Arc::default(),
            failed_ops: 0,
        })))
    }

    /// Goes on with what a crash left, or with all there is.
    pub(super) fn restart(&self, left: Option<Left>) {
        let mut state = self.0.borrow_mut();
        if let Some(left) = left {
            (state.files, state.rows) = (left.files, left.rows);
        }
        (state.crash_in, state.left, state.is_faulty) = (None, None, false);
        (state.bytes_max, state.is_store_locked) = (usize::MAX, false);
    }

    /// Files there are, with their lengths.
    pub(super) fn files(&self) -> Vec<(String, u64)> {
        let state = self.0.borrow();
        let there = state.files.iter().filter(|(_, file)| !file.is_gone);
        there.map(|(name, file)| (name.clone(), file.seen.len() as u64)).collect()
    }
}

impl State {
    /// One operation; it may be the last before the crash. Errors: it fails.
    fn op(&mut self) -> io::Result<()> {
        if let Some((left, crash)) = &mut self.crash_in {
            if *left == 0 {
                let crash = *crash;
                self.crash_in = None;
                self.crash(crash);
            } else {
                *left -= 1;
            }
        }
        if self.is_faulty && self.chance.below(3) == 0 {
            self.failed_ops += 1;
            return Err(io::Error::other("a fault of the disk"));
        }
        Ok(())
    }

    fn crash(&mut self, crash: Crash) {
        let mut files = BTreeMap::new();
        for (name, file) in &self.files {
            let is_there = match crash {
                Crash::Kill => !file.is_gone,
                Crash::Power if file.is_named => !file.is_gone || self.chance.below(2) == 0,
                Crash::Power => !file.is_gone && self.chance.below(2) == 0,
            };
            if !is_there {
                continue;
            }
            let bytes = match crash {
                Crash::Kill => file.seen.clone(),
                Crash::Power => torn(file, &mut self.chance),
            };
            files.insert(name.clone(), File { seen: bytes.clone(), kept: bytes, is_named: true, ..File::default() });
        }
        let acknowledged = usize::try_from(self.cells.journaled.value()).unwrap_or(usize::MAX);
        self.left = Some(Left { files, acknowledged, rows: self.rows.clone() });
    }

    /// A sync that began when the file had so many bytes ends. What was written to it since may be lost.
    fn synced(&mut self, name: &str, to: usize) -> io::Result<()> {
        let outcome = self.op();
        let is_skipped = self.mutant == Some(Mutant::NoSync);
        if let Some(file) = self.files.get_mut(name) {
            // What failed to be written is cut off again.
            let (from, to) = (file.kept.len(), to.min(file.seen.len()));
            if outcome.is_err() {
                file.given_up = Some((file.given_up.map_or(from, |(from, _)| from), to));
            } else if !is_skipped {
                file.kept = file.seen[..to].to_vec();
                if let Some((from, to)) = file.given_up {
                    let to = to.min(file.kept.len());
                    file.kept[from.min(to)..to].fill(0);
                }
            }
        }
        outcome
    }

    /// A sync of the folder ends.
    fn named(&mut self) -> io::Result<()> {
        let outcome = self.op();
        if outcome.is_ok() && self.mutant != Some(Mutant::NoFolderSync) {
            self.files.retain(|_, file| !file.is_gone);
            self.files.values_mut().for_each(|file| file.is_named = true);
        }
        outcome
    }

    fn used(&self) -> usize {
        self.files.values().filter(|file| !file.is_gone).map(|file| file.seen.len()).sum()
    }
}

/// What was kept, and of the rest each sector as it was written, or not at all.
fn torn(file: &File, chance: &mut Chance) -> Vec<u8> {
    let more = file.seen.len() - file.kept.len();
    let length = file.kept.len() + if more == 0 { 0 } else { chance.below(more as u32 + 1) as usize };
    let mut bytes = file.kept.clone();
    bytes.resize(length, 0);
    for at in (file.kept.len()..length).step_by(SECTOR_BYTES) {
        let end = (at + SECTOR_BYTES).min(length);
        if chance.below(2) == 0 {
            bytes[at..end].copy_from_slice(&file.seen[at..end]);
        }
    }
    bytes
}

impl Files for Disk {
    type File = String;

    fn create(&mut self, name: &str) -> impl Future<Output = io::Result<String>> {
        let mut state = self.0.borrow_mut();
        let made = state.op().map(|()| {
            let before = state.files.insert(name.to_owned(), File::default());
            assert!(before.is_none_or(|file| file.is_gone), "{name} is made twice");
            name.to_owned()
        });
        ready(made)
    }

    fn write(&mut self, file: &mut String, at: u64, bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        let mut state = self.0.borrow_mut();
        let mut outcome = state.op();
        let free = state.bytes_max.saturating_sub(state.used());
        let fits = if outcome.is_ok() { bytes.len().min(free) } else { bytes.len().min(free) / 2 };
        if fits < bytes.len() && outcome.is_ok() {
            outcome = Err(io::ErrorKind::StorageFull.into());
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if let Some(file) = state.files.get_mut(file) {
            assert!(at >= file.kept.len(), "what was committed is written over");
            assert!(at <= file.seen.len(), "a hole is left");
            file.seen_before = at;
            file.seen.truncate(at);
            file.seen.extend_from_slice(&bytes[..fits]);
        }
        ready(outcome)
    }

    fn sync(&mut self, file: &mut String, bring: Bring) -> Syncing {
        let (disk, name) = (self.0.clone(), file.clone());
        let is_late = self.0.borrow().mutant == Some(Mutant::WrittenLater);
        // To the writer it began with this call. With that mistake it began a write before.
        let length = |file: &File| if is_late { file.seen_before.max(file.kept.len()) } else { file.seen.len() };
        let to = self.0.borrow().files.get(file).map_or(0, length);
        let mut has_bytes = false;
        Box::pin(poll_fn(move |cx| {
            let mut state = disk.borrow_mut();
            if state.chance.below(2) == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !has_bytes {
                has_bytes = true;
                match state.synced(&name, to) {
                    Ok(()) if bring == Bring::BytesAndName => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    outcome => return Poll::Ready(outcome),
                }
            }
            Poll::Ready(state.named())
        }))
    }

    fn discard(&mut self, name: &str) -> impl Future<Output = ()> {
        // What comes of it is of no concern.
        let _ = Folder::remove(self, name);
        ready(())
    }

    fn close(&mut self, _: String) -> impl Future<Output = ()> {
        ready(())
    }
}

impl Folder for Disk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.files().into_iter().map(|(name, _)| name).collect())
    }

    fn read(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        state.op()?;
        let file = state.files.get(name).filter(|file| !file.is_gone).ok_or(io::ErrorKind::NotFound)?;
        let rest = file.seen.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.op()?;
        if let Some(file) = state.files.get_mut(name) {
            file.is_gone = true;
        }
        Ok(())
    }
}

/// The store, as the journal sees it.
pub(super) struct ToStore {
    disk: Disk,
    taken: Vec<(u128, bool)>,
}

impl ToStore {
    pub(super) fn new(disk: &Disk) -> Self {
        Self { disk: disk.clone(), taken: Vec::new() }
    }
}

impl Outlet for ToStore {
    fn take(&mut self, entry: &Entry<'_>) {
        self.taken.push((entry.record_id, *entry == record(entry.record_id)));
    }

    fn store(&mut self) -> Result<(), String> {
        let mut state = self.disk.0.borrow_mut();
        // A crash before it, and one after it.
        let is_failed = state.op().is_err();
        if state.is_store_locked && state.mutant == Some(Mutant::NotStored) {
            self.taken.clear();
            return Ok(());
        }
        if state.is_store_locked {
            return Err("locked".to_owned());
        }
        let rows = self.taken.iter().copied();
        state.rows.extend(rows);
        let is_unheard = state.op().is_err();
        if is_failed || is_unheard {
            return Err("no answer: it may be stored or not".to_owned());
        }
        self.taken.clear();
        Ok(())
    }
}
