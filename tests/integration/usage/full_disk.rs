//! A disk that is full: the store's alone, or the journal's as well.
//!
//! The disk is a small tmpfs. It is mounted where nobody else sees it: each test runs once more, as a process in a
//! mount namespace of its own, and is left out where the system gives none.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use llmgw_test_kit::wait_for;

use super::away::{Traffic, all_arrives};
use super::{World, has_row};
use crate::pair::{WITHIN, is_full};

/// Set for the process in a namespace of its own.
const INSIDE: &str = "LLMGW_TEST_IN_NAMESPACE";
/// Ways to a mount namespace: as root, else as the root of a user namespace.
const WAYS: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];
/// Records in memory that a journal on a full disk drops none of, and of which it drops some.
const MEMORY_RECORDS: usize = 120_000;

/// Runs the test in a mount namespace of its own.
#[expect(clippy::print_stdout, reason = "what could not be tried is told")]
fn inside(test: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let allowed = |way: &&&[&str]| {
        let mut tried = Command::new("unshare");
        let tried = tried.args(**way).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
        tried.is_ok_and(|ended| ended.status.success())
    };
    let Some(way) = WAYS.iter().find(allowed) else {
        println!("skipped: a tmpfs cannot be mounted here, not even in a namespace of its own");
        return;
    };
    let thread = thread::current();
    let name = thread.name().expect("a test's thread has its name");
    let mut again = Command::new("unshare");
    again.args(*way).arg(std::env::current_exe().expect("this program"));
    again.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    assert!(again.status().expect("started").success(), "the test in its namespace");
}

/// A small disk, and what fills it.
struct Disk {
    place: PathBuf,
}

impl Disk {
    fn mount(at: &Path, size: &str) -> Self {
        fs::create_dir(at).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(at);
        assert!(mount.status().expect("started").success());
        Self { place: at.to_owned() }
    }

    /// Leaves no room for a byte.
    fn fill(&self) {
        let file = fs::File::create(self.place.join("ballast")).expect("a file");
        let page = [7; 4096];
        while std::io::Write::write_all(&mut &file, &page).is_ok() {}
    }

    fn clear(&self) {
        fs::remove_file(self.place.join("ballast")).expect("removed");
    }
}

/// The name of a failure's place, waited for.
fn wait_for_failure(world: &World, at: &str) {
    wait_for("a failure", WITHIN, || world.metric("llmgw_usage_failures_total", &[("at", at)]) > 0.0);
}

#[test]
fn a_full_disk_of_the_store_is_not_noticed_and_the_journal_keeps_every_record_through_a_kill() {
    inside(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::mount(&folder.path().join("disk"), "16m");
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        symlink(&elsewhere, disk.place.join("llmgw.db.usage")).expect("a link");
        let mut world = World::at(disk.place.clone(), folder, "");
        let traffic = Traffic::begin(&world, 2);
        world.wait_for_records("store", 20);
        disk.fill();
        wait_for_failure(&world, "store");
        traffic.wait_for(if is_full() { 5_000 } else { 100 });
        let before_kill = traffic.end();
        world.wait_for_records("journal", before_kill.ids.len());
        world.gateway.take().expect("a gateway").process().kill().expect("killed");
        disk.clear();
        world.start_again();
        let store = world.store();
        assert!(before_kill.ids.iter().all(|id| has_row(&store, *id)), "all are there before anybody is served");
        drop(store);
        // And once more, to its end.
        let traffic = Traffic::begin(&world, 2);
        disk.fill();
        wait_for_failure(&world, "store");
        traffic.wait_for(100);
        disk.clear();
        all_arrives(world, "the store's disk full", &traffic.end(), &["usage records cannot be stored"]);
    });
}

#[test]
fn a_full_disk_of_store_and_journal_is_not_noticed_and_memory_keeps_the_records() {
    inside(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::mount(&folder.path().join("disk"), "16m");
        let world = World::at(disk.place.clone(), folder, "");
        let traffic = Traffic::begin(&world, 2);
        world.wait_for_records("store", 20);
        disk.fill();
        wait_for_failure(&world, "journal");
        traffic.wait_for(if is_full() { 5_000 } else { 100 });
        disk.clear();
        let answers = traffic.end();
        let warnings = ["usage records cannot be stored", "the usage journal cannot be written"];
        all_arrives(world, "the disk full", &answers, &warnings);
    });
}

#[test]
#[expect(clippy::print_stdout, reason = "figures are shown")]
fn when_memory_holds_no_more_the_newest_records_are_dropped_and_counted() {
    if !is_full() {
        println!("at full length alone: some 80,000 records; the journal's own tests show it with fewer");
        return;
    }
    inside(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::mount(&folder.path().join("disk"), "64m");
        let mut world = World::at(disk.place.clone(), folder, "");
        let traffic = Traffic::begin(&world, 4);
        world.wait_for_records("store", 20);
        disk.fill();
        wait_for_failure(&world, "journal");
        let is_dropping = || world.metric("llmgw_usage_records_lost_total", &[]) > 0.0;
        wait_for("records that are dropped", Duration::from_secs(240), is_dropping);
        assert!(traffic.count() < MEMORY_RECORDS, "{} answers", traffic.count());
        let most = world.metric("llmgw_usage_records_waiting", &[]);
        traffic.wait_for(100);
        let answers = traffic.end();
        disk.clear();
        wait_for("an empty journal", WITHIN * 6, || world.metric("llmgw_usage_records_waiting", &[]) == 0.0);
        let lost = world.metric("llmgw_usage_records_lost_total", &[]) as usize;
        let store = world.store();
        let missing = answers.ids.iter().filter(|id| !has_row(&store, **id)).count();
        println!("the disk full for long: {} answers, {most} records in memory, {lost} dropped", answers.ids.len());
        assert_eq!(missing, lost, "what is dropped is counted, and nothing else is lost");
        drop(store);
        let warnings =
            ["usage records cannot be stored", "the usage journal cannot be written", "usage records are lost"];
        world.gateway.take().expect("a gateway").finish(&warnings);
    });
}
