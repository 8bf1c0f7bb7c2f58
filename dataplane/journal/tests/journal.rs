//! The journal as a whole: threads, a real folder, both ways to its files.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use llmgw_journal::{Cells, Driver, Entry, Journal, Names, Options, Outlet, Setup};
use llmgw_kit::clock::Mono;
use llmgw_types::{CoreId, RequestId, ShortId, Tokens, UsageRecord};

const WITHIN: Duration = Duration::from_secs(20);

/// Rows and slots are called by their numbers.
struct Numbers;

impl Names for Numbers {
    fn row(&self, row: u32) -> Option<[&str; 2]> {
        [["model-0", "pool-0"], ["model-1", "pool-1"]].get(row as usize).copied()
    }

    fn replica(&self, slot: u32) -> Option<&str> {
        (slot == 0).then_some("gpu-0")
    }
}

/// Keeps what it gets, unless it is shut.
struct Kept {
    taken: Vec<String>,
    kept: Sender<Vec<String>>,
    is_shut: Arc<AtomicBool>,
}

impl Outlet for Kept {
    fn take(&mut self, entry: &Entry<'_>) {
        let Entry { record_id, model, served_model, pool, replica, key_id, .. } = entry;
        let number = record_id >> 80;
        self.taken.push(format!("{number} {model} {served_model} {pool} {replica} {key_id}"));
    }

    fn store(&mut self) -> Result<(), String> {
        if self.is_shut.load(Ordering::SeqCst) {
            return Err("shut".to_owned());
        }
        // Whoever does not want to know has gone.
        let _ = self.kept.send(std::mem::take(&mut self.taken));
        Ok(())
    }
}

struct Rig {
    folder: PathBuf,
    ring: Arc<ArrayQueue<UsageRecord>>,
    kept: Receiver<Vec<String>>,
    is_shut: Arc<AtomicBool>,
    cells: Arc<Cells>,
    journal: Journal,
}

impl Rig {
    fn start(folder: &Path, driver: Driver, options: Options, is_shut: bool) -> Self {
        let (tell, kept) = channel();
        let is_shut = Arc::new(AtomicBool::new(is_shut));
        let (ring, cells) = (Arc::new(ArrayQueue::new(1024)), Arc::<Cells>::default());
        let outlet = Kept { taken: Vec::new(), kept: tell, is_shut: is_shut.clone() };
        let names = Box::new(|| Arc::new(Numbers) as Arc<dyn Names>);
        let (rings, folder) = (vec![ring.clone()], folder.to_owned());
        let setup = Setup { folder: folder.clone(), rings, names, outlet, cells: cells.clone(), options, driver };
        let journal = Journal::start(setup).expect("a journal");
        Self { folder, ring, kept, is_shut, cells, journal }
    }

    fn push(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let mut record = record(number);
            while let Err(back) = self.ring.push(record) {
                record = back;
                std::thread::yield_now();
            }
        }
    }

    /// The next so many that were stored.
    fn next(&self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.kept.recv_timeout(WITHIN).expect("more of them"));
        }
        all
    }

    #[track_caller]
    fn wait_for(&self, what: &str, holds: impl Fn(&Cells) -> bool) {
        let deadline = Mono::now() + WITHIN;
        while !holds(&self.cells) {
            assert!(Mono::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }
}

fn record(number: u64) -> UsageRecord {
    UsageRecord {
        id: RequestId::new(number, CoreId(0), 7),
        admitted_at: number,
        ended_at: number + 5,
        key_id: ShortId::of("key-1"),
        project_id: None,
        asked_row: 1,
        served_row: (!number.is_multiple_of(3)).then_some(0),
        slot: (!number.is_multiple_of(3)).then_some(0),
        status: 200,
        reason: None,
        tokens: Tokens { prompt: 3, cached: 1, completion: 2 },
        units_micros: 5,
        is_estimated: false,
        ttft_ms: Some(4),
        duration_ms: 5,
        queue_ms: None,
    }
}

fn said(number: u64) -> String {
    match number % 3 {
        0 => format!("{number} model-1 model-1   key-1"),
        _ => format!("{number} model-1 model-0 pool-0 gpu-0 key-1"),
    }
}

fn all_said(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(said).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().map(|file| file.path()).collect();
    files.sort();
    files
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "segment")
}

#[test]
fn records_arrive_in_order_with_their_names_and_leave_nothing_behind() {
    for driver in [Driver::Ring, Driver::Thread] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { segment_bytes: 10_000, ..Options::default() };
        let rig = Rig::start(folder.path(), driver, options, false);
        rig.push(0..2000);
        assert_eq!(rig.next(2000), all_said(0..2000), "{driver:?}");
        let Rig { journal, folder, cells, .. } = rig;
        journal.stop(WITHIN);
        assert_eq!(files(&folder), Vec::<PathBuf>::new(), "{driver:?}");
        assert_eq!((cells.journaled.value(), cells.stored.value()), (2000, 2000));
        assert_eq!(cells.came.value() + cells.arrived.value(), 0);
        assert_eq!(cells.bytes_written.value() + cells.bytes_gone.value(), 0);
    }
}

#[test]
fn what_could_not_be_stored_is_stored_by_the_next_run_and_a_torn_end_is_cut() {
    for driver in [Driver::Ring, Driver::Thread] {
        let folder = tempfile::tempdir().expect("a folder");
        let rig = Rig::start(folder.path(), driver, Options::default(), true);
        rig.push(0..300);
        rig.wait_for("all on the disk", |cells| cells.journaled.value() == 300);
        rig.journal.stop(Duration::ZERO);
        let segments: Vec<_> = files(folder.path()).into_iter().filter(|path| is_segment(path)).collect();
        assert_eq!(segments.len(), 1);
        let mut torn = OpenOptions::new().append(true).open(&segments[0]).expect("the segment");
        torn.write_all(&[7; 100]).expect("written");

        let rig = Rig::start(folder.path(), driver, Options::default(), false);
        assert!(rig.journal.wait_replayed(WITHIN));
        assert_eq!(rig.next(300), all_said(0..300), "{driver:?}");
        assert_eq!(rig.cells.bytes_cut.value(), 100);
        rig.push(300..310);
        assert_eq!(rig.next(10), all_said(300..310));
        rig.journal.stop(WITHIN);
        assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_full_journal_keeps_what_it_has_drops_the_newest_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        segment_bytes: 4000,
        bytes_max: 20_000,
        waiting_bytes_max: 10_000,
        again_after: Duration::from_millis(1),
        ..Options::default()
    };
    let rig = Rig::start(folder.path(), Driver::Thread, options, true);
    let mut pushed = 0;
    while rig.cells.lost.value() == 0 {
        rig.push(pushed..pushed + 50);
        pushed += 50;
        assert!(pushed < 100_000, "nothing is ever full");
    }
    rig.wait_for("the ring is empty", |_| rig.ring.is_empty());
    let bytes: u64 = files(&rig.folder).iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
    assert!(bytes <= 20_000, "{bytes} bytes");
    rig.wait_for("all is accounted for", |cells| cells.came.value() as u64 + cells.lost.value() == pushed);
    let lost = rig.cells.lost.value();
    rig.is_shut.store(false, Ordering::SeqCst);
    let arrived = rig.next(usize::try_from(pushed - lost).expect("a count"));
    assert_eq!(arrived[..50], all_said(0..50), "the oldest are kept");
    let numbers = arrived.iter().map(|line| line.split(' ').next().and_then(|number| number.parse::<u64>().ok()));
    assert!(numbers.is_sorted_by(|one, next| one < next), "in order, and none twice");
    rig.push(pushed..pushed + 10);
    assert_eq!(rig.next(10), all_said(pushed..pushed + 10));
    rig.journal.stop(WITHIN);
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_cannot_be_used_is_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a-file");
    fs::write(&file, b"x").expect("written");
    let (tell, _kept) = channel();
    let outlet = Kept { taken: Vec::new(), kept: tell, is_shut: Arc::default() };
    let names = Box::new(|| Arc::new(Numbers) as Arc<dyn Names>);
    let setup = Setup {
        folder: file.clone(),
        rings: Vec::new(),
        names,
        outlet,
        cells: Arc::default(),
        options: Options::default(),
        driver: Driver::Thread,
    };
    let error = Journal::start(setup).expect_err("a file is no folder").to_string();
    assert!(error.starts_with(&format!("usage journal {}", file.display())), "{error}");
}
