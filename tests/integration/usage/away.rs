//! A store that is locked or cannot be written: clients notice nothing, records wait in the journal, and arrive.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use llmgw_store::{Store, StoreError};
use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{chat, wait_for};

use super::{World, has_row, id};
use crate::pair::{CHAT, WITHIN, is_full};

/// How long a lock is held at full length; the store itself waits for 5 s.
const LOCKED: Duration = Duration::from_secs(30);
/// How long a holder waits to be told.
const HELD_MAX: Duration = Duration::from_secs(120);

/// Holds the store's lock from another process's place, until it is let go.
pub(super) struct Held {
    let_go: mpsc::Sender<()>,
    holder: JoinHandle<Result<(), StoreError>>,
}

impl Held {
    pub(super) fn take(store: Store) -> Self {
        let (let_go, held) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let holder = thread::spawn(move || {
            store.write(move |_| {
                // Whoever holds it is waited for, and nothing is left when it lets go.
                let _ = (tell.send(()), held.recv_timeout(HELD_MAX));
                Ok::<_, StoreError>(())
            })
        });
        told.recv_timeout(WITHIN).expect("the lock");
        Self { let_go, holder }
    }

    pub(super) fn let_go(self) {
        self.let_go.send(()).expect("somebody holds it");
        self.holder.join().expect("no panic").expect("nothing was written");
    }
}

/// Clients that ask one thing after the other, and get it.
pub(super) struct Traffic {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    answers: Arc<Mutex<Answers>>,
}

#[derive(Default)]
pub(super) struct Answers {
    pub(super) ids: Vec<[u8; 16]>,
    pub(super) slowest: Duration,
}

impl Traffic {
    pub(super) fn begin(world: &World, clients: usize) -> Self {
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Answers>>::default());
        let addr = world.gateway().addr();
        let client = |_| {
            let (is_over, answers) = (is_over.clone(), answers.clone());
            thread::spawn(move || {
                let request = Request::new("POST", CHAT).json(&chat("hello").max_tokens(3).json()).bytes();
                let mut connection = Connection::open(addr).expect("a connection");
                while !is_over.load(Ordering::SeqCst) {
                    let asked_at = Instant::now();
                    connection.send(&request).expect("sent");
                    let reply = connection.reply().expect("a reply");
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    let mut answers = answers.lock().expect("no panic");
                    answers.ids.push(id(&reply));
                    answers.slowest = answers.slowest.max(asked_at.elapsed());
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { is_over, clients, answers }
    }

    pub(super) fn count(&self) -> usize {
        self.answers.lock().expect("no panic").ids.len()
    }

    /// Waits until so many more are answered.
    #[track_caller]
    pub(super) fn wait_for(&self, more: usize) {
        let before = self.count();
        wait_for(&format!("{more} more answers"), WITHIN, || self.count() >= before + more);
    }

    /// What was answered, each with 200.
    pub(super) fn end(self) -> Answers {
        self.is_over.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().expect("every answer is a good one");
        }
        std::mem::take(&mut self.answers.lock().expect("no panic"))
    }
}

/// What is away is back, and clients have stopped: everything arrives, and nothing is left behind.
#[track_caller]
#[expect(clippy::print_stdout, reason = "figures are shown")]
pub(super) fn all_arrives(mut world: World, what: &str, answers: &Answers, warnings: &[&str]) {
    let back_at = Instant::now();
    let most = world.metric("llmgw_usage_records_waiting", &[]);
    wait_for("an empty journal", WITHIN * 12, || world.metric("llmgw_usage_records_waiting", &[]) == 0.0);
    println!(
        "{what}: {} answers, the slowest in {:?}; {most} records waiting at the end, none {:?} later; {} lost",
        answers.ids.len(),
        answers.slowest,
        back_at.elapsed(),
        world.metric("llmgw_usage_records_lost_total", &[]),
    );
    assert_eq!(world.metric("llmgw_usage_records_lost_total", &[]), 0.0);
    let store = world.store();
    for id in &answers.ids {
        assert!(has_row(&store, *id));
    }
    drop(store);
    world.gateway.take().expect("a gateway").finish(warnings);
    assert_eq!(world.segments(), 0, "what is stored leaves nothing behind");
}

#[test]
fn a_store_that_is_locked_is_not_noticed_and_gets_every_record_later() {
    let world = World::start("");
    let traffic = Traffic::begin(&world, 2);
    traffic.wait_for(20);
    let (held, held_at) = (Held::take(world.store()), Instant::now());
    traffic.wait_for(100);
    wait_for("records that wait", WITHIN, || world.metric("llmgw_usage_records_waiting", &[]) >= 100.0);
    if is_full() {
        wait_for("the time", LOCKED * 2, || held_at.elapsed() >= LOCKED);
        assert!(world.metric("llmgw_usage_failures_total", &[("at", "store")]) > 0.0);
    }
    held.let_go();
    let warnings: &[_] = if is_full() { &["usage records cannot be stored"] } else { &[] };
    all_arrives(world, "store locked", &traffic.end(), warnings);
}

/// Makes files so that nobody can write them, be they open or not.
struct Unchangeable(Vec<PathBuf>);

impl Unchangeable {
    fn make(paths: Vec<PathBuf>) -> Self {
        for path in &paths {
            assert!(change("+i", path), "{}", path.display());
        }
        Self(paths)
    }
}

impl Drop for Unchangeable {
    fn drop(&mut self) {
        for path in &self.0 {
            change("-i", path);
        }
    }
}

fn change(mode: &str, path: &Path) -> bool {
    Command::new("chattr").arg(mode).arg(path).output().is_ok_and(|ended| ended.status.success())
}

/// Whether files of that folder can be made so.
fn can_be_made_unchangeable(folder: &Path) -> bool {
    let path = folder.join("probe");
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).expect("a file");
    let is_held = change("+i", &path) && file.write_all(b"x").is_err();
    change("-i", &path);
    is_held
}

#[test]
#[expect(clippy::print_stdout, reason = "what could not be tried is told")]
fn a_store_that_becomes_read_only_is_not_noticed_and_gets_every_record_later() {
    let world = World::start("");
    if !can_be_made_unchangeable(&world.place) {
        println!("skipped: chattr +i is not there, not permitted, or without effect on this file system");
        return;
    }
    let traffic = Traffic::begin(&world, 2);
    world.wait_for_records("store", 20);
    let log = world.place.join("llmgw.db-wal");
    let unchangeable = Unchangeable::make(vec![world.file(), log]);
    let began = Instant::now();
    wait_for("a failure", WITHIN, || world.metric("llmgw_usage_failures_total", &[("at", "store")]) > 0.0);
    traffic.wait_for(100);
    if is_full() {
        wait_for("the time", WITHIN * 2, || began.elapsed() >= WITHIN);
    }
    // What was used until then can be read all the while.
    assert!(world.ctl(&["usage", "--by", "model"])["usage"][0]["requests"].as_u64() >= Some(20));
    drop(unchangeable);
    all_arrives(world, "store read-only", &traffic.end(), &["usage records cannot be stored"]);
}
