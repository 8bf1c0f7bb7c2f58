use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use llmgw_tenancy::key::{KeyHash, OldSecret};
use llmgw_tenancy::limits::{Limits, LimitsRow, Period};
use llmgw_tenancy::scope::{Scope, ScopeKind};
use serde_json::json;

use super::*;
use crate::Batch;
use crate::audit::{Event, Wanted};
use crate::open::PAGE_BYTES;
use crate::test_world::{World, add, add_tree, key, options, organization, usage};

/// Set in a process that a test starts: the file it is to write to.
const STORE_VARIABLE: &str = "LLMGW_TEST_STORE";
const DEADLINE: Duration = Duration::from_secs(60);

fn event(target: &str) -> Event {
    Event {
        seq: 0,
        ts: 5,
        actor: "admin".into(),
        action: "org.create".into(),
        target_type: "org".into(),
        target_id: target.into(),
        before: None,
        after: Some(json!({ "name": target })),
    }
}

fn organization_count(store: &Store) -> usize {
    store.read(|rows| rows.organizations()).expect("read").len()
}

#[test]
fn who_reads_keeps_little_of_the_file_in_memory() {
    let world = World::new();
    let kib = world.store.read(cache_kib).expect("read");
    assert_eq!(kib, 256);
}

fn cache_kib(rows: &Rows<'_>) -> Result<i64, StoreError> {
    // What is no number of pages is said as less than nothing.
    Ok(-rows.0.query_row("PRAGMA cache_size", [], |row| row.get::<_, i64>(0))?)
}

#[test]
fn what_was_written_is_there_after_the_store_was_closed() {
    let world = World::new();
    let limits = LimitsRow {
        scope: Scope::new(ScopeKind::Team, "team-1"),
        model: None,
        limits: Limits {
            rpm: Some(0),
            budget_micros: Some(1 << 53),
            budget_period: Some(Period::Month),
            time_zone: Some("Asia/Tokyo".into()),
            allowed_models: Some(Vec::new()),
            ..Limits::default()
        },
    };
    let of_model = LimitsRow {
        model: Some("m".into()),
        limits: Limits { parallel: Some(2), ..Limits::default() },
        ..limits.clone()
    };
    let old = OldSecret { hash: KeyHash([8; 32]), key_id: "key-1".into(), prefix: "p".into(), expires_at: 50 };
    let (kept, kept_of_model, kept_old) = (limits.clone(), of_model.clone(), old.clone());
    world
        .store
        .write(move |tx| {
            add_tree(tx)?;
            tx.add_key(&key("key-1", 7))?;
            tx.add_overlap(&old)?;
            tx.set_limits(&of_model)?;
            // The second takes the place of the first.
            tx.set_limits(&LimitsRow { limits: Limits { tpm: Some(1), ..Limits::default() }, ..limits.clone() })?;
            tx.set_limits(&limits)?;
            tx.audit(&event("org-1"))
        })
        .expect("written");
    let folder = world.closed();

    let store = Store::open(options(&folder)).expect("a store");
    store
        .read(|rows| {
            assert_eq!(rows.organization("acme")?.map(|row| row.id).as_deref(), Some("org-1"));
            assert_eq!(rows.team_named("org-1", "search")?, rows.team("team-1")?);
            assert_eq!(rows.project_named("team-1", "chat")?.and_then(|row| row.band).as_deref(), Some("gold"));
            assert_eq!(rows.keys()?, [key("key-1", 7)]);
            assert_eq!(rows.overlaps(49)?, [kept_old]);
            assert_eq!(rows.overlaps(50)?, []);
            assert_eq!(rows.limits_of(&Scope::new(ScopeKind::Team, "team-1"))?, [kept, kept_of_model]);
            assert_eq!(rows.events(&Wanted::default())?, [Event { seq: 1, ..event("org-1") }]);
            Ok::<_, StoreError>(())
        })
        .expect("read");
    let mode = fs::metadata(store.path()).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_act_that_fails_leaves_nothing_and_the_next_one_goes() {
    let world = World::new();
    let generation = |store: &Store| store.read(|rows| rows.tenancy_generation()).expect("read");
    let before = generation(&world.store);
    let failed: Result<(), StoreError> = world.store.write(|tx| {
        tx.add_organization(&organization("org-1", "acme"))?;
        tx.audit(&event("org-1"))?;
        tx.add_organization(&organization("org-2", "acme"))
    });
    assert_eq!(failed, Err(StoreError::Exists));
    let dangling: Result<(), StoreError> = world.store.write(|tx| tx.add_key(&key("key-1", 1)));
    assert_eq!(dangling, Err(StoreError::Dangling));
    let lost: Result<(), StoreError> = world.store.write(|tx| {
        tx.add_organization(&organization("org-1", "acme"))?;
        panic!("a fault of an act")
    });
    assert_eq!(lost, Err(StoreError::Closed));
    assert_eq!(organization_count(&world.store), 0);
    assert_eq!(world.store.read(|rows| rows.events(&Wanted::default())), Ok(Vec::new()));
    assert_eq!(generation(&world.store), before);
    let written = world.store.write(|tx| tx.add_organization(&organization("org-1", "acme")));
    assert_eq!(written, Ok(()));
    assert!(generation(&world.store) > before);
}

#[test]
fn events_come_newest_first_and_a_page_at_a_time() {
    let world = World::new();
    for target in ["a", "b", "a"] {
        world.store.write(move |tx| tx.audit(&event(target))).expect("written");
    }
    let seqs = |wanted: Wanted| {
        let events = world.store.read(|rows| rows.events(&wanted)).expect("read");
        events.into_iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(Wanted::default()), [3, 2, 1]);
    assert_eq!(seqs(Wanted { limit: Some(2), ..Wanted::default() }), [3, 2]);
    assert_eq!(seqs(Wanted { before_seq: Some(2), ..Wanted::default() }), [1]);
    assert_eq!(seqs(Wanted { target_id: Some("a".into()), ..Wanted::default() }), [3, 1]);
}

#[test]
fn a_keys_use_is_noted_once_a_minute() {
    let world = World::new();
    let used = |at: i64| {
        world.store.write(move |tx| tx.key_used("key-1", at)).expect("written");
        world.store.read(|rows| rows.key("key-1")).expect("read").and_then(|key| key.last_used_at)
    };
    world
        .store
        .write(|tx| {
            add_tree(tx)?;
            tx.add_key(&key("key-1", 1))
        })
        .expect("written");
    assert_eq!(used(100_000), Some(100_000));
    assert_eq!(used(159_999), Some(100_000));
    assert_eq!(used(160_000), Some(160_000));
}

#[test]
fn a_file_that_is_none_of_ours_is_told_by_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = options(&folder).path;
    fs::write(&path, b"listen: ':8080'\n".repeat(100)).expect("written");
    let told = Store::open(options(&folder)).map(drop).expect_err("no database").to_string();
    assert!(told.contains("llmgw.db: the file is damaged") && told.contains("backup"), "{told}");

    fs::remove_file(&path).expect("removed");
    Connection::open(&path).and_then(|file| file.execute_batch("CREATE TABLE t (x)")).expect("another's");
    assert_eq!(Store::open(options(&folder)).map(drop), Err(StoreError::Foreign { path }));

    let nowhere = OpenOptions::new(folder.path().join("nowhere/llmgw.db"));
    let told = Store::open(nowhere).map(drop).expect_err("no folder").to_string();
    assert!(told.contains("nowhere/llmgw.db: cannot be opened"), "{told}");
}

#[test]
fn a_damaged_file_is_not_served_from() {
    let world = World::new();
    let rows: Vec<_> = (0..2000).map(|at| usage(at, 1, 1, 5)).collect();
    add(&world, &rows);
    let folder = world.closed();
    let path = options(&folder).path;
    let bytes = fs::metadata(&path).expect("a file").len();
    let file = fs::OpenOptions::new().write(true).open(&path).expect("a file");
    // Every page but the first, as a disk would that loses them.
    let page_bytes = u64::from(PAGE_BYTES);
    for page in 1..bytes / page_bytes {
        file.write_all_at(&[0x5a; 64], page * page_bytes).expect("written");
    }
    drop(file);
    match Store::open(options(&folder)).map(drop) {
        Err(StoreError::Damaged { path: told, what }) => assert!(told == path && !what.is_empty(), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// Trial C11: a log that was torn by a crash of the machine.
#[test]
fn a_log_torn_anywhere_leaves_whole_acts_in_order() {
    let world = World::new();
    for at in 0..40 {
        let row = organization(&format!("org-{at}"), &format!("org {at}"));
        let act = move |tx: &Tx<'_>| {
            tx.add_organization(&row)?;
            tx.audit(&event(&row.id)).map(drop)
        };
        world.store.write(act).expect("written");
    }
    // What the disk has while the store is open: nothing of this was put into the file itself yet.
    let path = world.store.path().to_owned();
    let log = fs::read(path.with_extension("db-wal")).expect("a log");
    let (torn, mut most) = (tempfile::tempdir().expect("a folder"), 0);
    for cut in (0..=12).map(|part| log.len() * part / 12) {
        let left = torn.path().join(format!("{cut}.db"));
        fs::copy(&path, &left).expect("a copy");
        let mut bytes = log[..cut].to_vec();
        // The last sector that was under way holds anything.
        let from = bytes.len().saturating_sub(300);
        bytes[from..].fill(0x5a);
        fs::write(left.with_extension("db-wal"), bytes).expect("written");
        let store = Store::open(OpenOptions::new(&left)).expect("sound");
        let (count, events) = (organization_count(&store), store.read(|rows| rows.events(&Wanted::default())));
        let events = events.expect("read");
        assert_eq!(events.len(), count, "{cut}: both halves of every act, or neither");
        assert!(count >= most && count < 40, "{cut}: {count} after {most}");
        assert!(events.iter().zip((0..count).rev()).all(|(event, at)| event.target_id == format!("org-{at}")));
        most = count;
    }
    assert!(most > 20, "the log held {most} acts");
}

#[test]
fn a_full_disk_is_told_and_what_is_there_can_still_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(Store::open(options(&folder)).expect("a store"));
    let bytes = fs::metadata(options(&folder).path).expect("a file").len();
    let pages = u32::try_from(bytes).expect("few") / PAGE_BYTES;
    // SQLite answers as for a disk without room.
    let store = Store::open(OpenOptions { pages_max: Some(pages + 4), ..options(&folder) }).expect("a store");
    store.write(|tx| tx.add_organization(&organization("org-1", "acme"))).expect("room for one");
    let rows: Vec<_> = (0..2000).map(|at| usage(at, 1, 1, 5)).collect();
    let batch: Batch = rows.iter().collect();
    assert_eq!(store.write(move |tx| tx.add_usage(&batch)), Err(StoreError::Full));
    assert_eq!(organization_count(&store), 1);
    assert_eq!(store.read(|rows| rows.used_since(0)), Ok(Vec::new()));
}

#[test]
fn a_store_that_another_holds_is_told_to_be_locked_and_goes_on_when_it_is_let_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let brief = OpenOptions { busy_time: Duration::from_millis(30), ..options(&folder) };
    let store = Store::open(brief.clone()).expect("a store");
    let other = Connection::open(&brief.path).expect("a file");
    other.execute_batch("BEGIN IMMEDIATE").expect("held");
    let write = || store.write(|tx| tx.add_organization(&organization("org-1", "acme")));
    assert_eq!(write(), Err(StoreError::Locked));
    assert_eq!(organization_count(&store), 0, "readers need no lock");
    assert_eq!(Store::open(brief).map(drop), Err(StoreError::Locked), "a second program waits, and says so");
    other.execute_batch("COMMIT").expect("let go");
    assert_eq!(write(), Ok(()));
}

/// Alone it writes to a store of its own; started by the tests below it is the other process.
#[test]
fn another_process_writes_organizations() {
    let folder = tempfile::tempdir().expect("a folder");
    let of_test = std::env::var_os(STORE_VARIABLE);
    let count = if of_test.is_some() { 10_000 } else { 50 };
    let store = Store::open(of_test.map_or_else(|| options(&folder), OpenOptions::new)).expect("a store");
    for at in 0..count {
        let row = organization(&format!("other-{at}"), &format!("other {at}"));
        let written = store.write(move |tx| {
            tx.add_organization(&row)?;
            tx.audit(&event(&row.id))
        });
        written.expect("written");
    }
    assert_eq!(organization_count(&store), count);
}

fn other_process(store: &Path) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "store::tests::another_process_writes_organizations"]);
    command.env(STORE_VARIABLE, store).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("started")
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn two_processes_write_one_store_and_one_that_is_killed_leaves_whole_acts() {
    let world = World::new();
    let mut other = other_process(world.store.path());
    wait_for(|| organization_count(&world.store) >= 20);
    for at in 0..20 {
        let row = organization(&format!("own-{at}"), &format!("own {at}"));
        world
            .store
            .write(move |tx| {
                tx.add_organization(&row)?;
                tx.audit(&event(&row.id))
            })
            .expect("written beside the other");
    }
    other.kill().expect("killed");
    let _ = other.wait();
    let folder = world.closed();

    let store = Store::open(options(&folder)).expect("sound after a kill");
    let rows = store.read(|rows| rows.organizations()).expect("read");
    assert_eq!(rows.iter().filter(|row| row.id.starts_with("own-")).count(), 20);
    let told = store.read(|rows| {
        Ok::<_, StoreError>(rows.0.query_row("SELECT COUNT(*), MAX(seq) FROM audit", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?)
    });
    let count = i64::try_from(rows.len()).expect("few");
    assert_eq!(told, Ok((count, count)), "an event for each, numbered without a gap");
}

#[test]
fn a_copy_made_while_it_is_written_on_is_the_store_of_one_moment() {
    let world = World::new();
    let rows: Vec<_> = (0..3000).map(|at| usage(at, 1, 1, 5)).collect();
    add(&world, &rows);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let copies: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let (first, second) = (organization(&format!("a-{at}"), &format!("a {at}")), event(&format!("a-{at}")));
                at += 1;
                world
                    .store
                    .write(move |tx| {
                        tx.add_organization(&first)?;
                        tx.audit(&second)
                    })
                    .expect("written");
            }
        });
        let copies = (0..5).map(|at| {
            let seen = organization_count(&world.store) + 1;
            wait_for(|| organization_count(&world.store) >= seen);
            world.store.backup(&world.folder.path().join(format!("copy-{at}.db"))).expect("copied")
        });
        let copies = copies.collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        copies
    });
    let mut last = 0;
    for copy in copies {
        let mode = fs::metadata(&copy.path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let store = Store::open(OpenOptions::new(&copy.path)).expect("a store");
        let count = organization_count(&store);
        assert!(count > last, "later copies hold more");
        last = count;
        let events = store.read(|rows| rows.events(&Wanted { limit: Some(1), ..Wanted::default() })).expect("read");
        assert_eq!(events[0].seq, i64::try_from(count).expect("few"), "both halves of every act, or neither");
        assert_eq!(store.read(|rows| rows.used_since(0)).expect("read")[0].used.requests, 3000);
    }
    assert_eq!(fs::read_dir(world.folder.path()).expect("a folder").filter(is_partial).count(), 0);
}

fn is_partial(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with(".partial"))
}

#[test]
fn a_copy_takes_no_files_place() {
    let world = World::new();
    let taken = world.folder.path().join("taken");
    fs::write(&taken, "mine").expect("written");
    let error = world.store.backup(&taken).expect_err("taken").to_string();
    assert!(error.contains("there is one of that name"), "{error}");
    assert_eq!(fs::read_to_string(&taken).expect("a file"), "mine");
    let error = world.store.backup(&world.folder.path().join("nowhere/copy.db")).expect_err("no folder").to_string();
    assert!(error.contains("nowhere/copy.db.partial"), "{error}");
}
