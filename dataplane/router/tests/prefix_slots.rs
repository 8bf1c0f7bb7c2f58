//! The stamp table's slots under every order in which cores can run, and every value that a read may give.

use llmgw_router::prefix::slots::{Bucket, Entry, Key, Word};
use llmgw_types::BoardSlot;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// A word of the checker, with the orders of the product's.
#[derive(Default)]
struct Checked(AtomicU64);

impl Word for Checked {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
    fn replace(&self, current: u64, new: u64) -> bool {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

fn key(number: u64) -> Key {
    Key::of(number << 20)
}

/// The stamp of an engine is ten times its number and the key's, so that whoever reads it knows whose it is.
fn entry(number: u64, slot: u32) -> Entry {
    Entry { key: key(number), slot: BoardSlot(slot), stamp: number * 100 + u64::from(slot), tick: number as u32 }
}

fn write<const N: usize, const H: usize>(bucket: &Bucket<Checked, N, H>, number: u64, slot: u32) {
    bucket.write(&entry(number, slot), |_, _| 0.5);
}

fn read<const N: usize, const H: usize>(bucket: &Bucket<Checked, N, H>, number: u64) -> Vec<u32> {
    let mut engines = Vec::new();
    bucket.read(key(number), 0, |slot, stamp, _| {
        assert_eq!(stamp, number * 100 + u64::from(slot.0), "a stamp of another key");
        engines.push(slot.0);
    });
    engines
}

#[test]
fn two_keys_that_fight_for_a_slot_never_show_each_others_stamps() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::<Checked, 1, 1>::default());
        let writers = [(1, 1), (2, 2)].map(|(number, slot)| {
            let bucket = bucket.clone();
            thread::spawn(move || write(&bucket, number, slot))
        });
        [1, 2].iter().for_each(|&number| drop(read(&bucket, number)));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        [1, 2].iter().for_each(|&number| drop(read(&bucket, number)));
    });
}

#[test]
fn a_writer_whose_slot_is_taken_under_its_hand_leaves_nothing_that_the_new_key_shows() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::<Checked, 1, 2>::default());
        write(&bucket, 1, 1);
        let writers = [(1, 3), (2, 2)].map(|(number, slot)| {
            let bucket = bucket.clone();
            thread::spawn(move || write(&bucket, number, slot))
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        [1, 2].iter().for_each(|&number| drop(read(&bucket, number)));
    });
}

#[test]
fn of_two_engines_written_at_once_for_one_key_one_stays_at_least() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::<Checked, 1, 2>::default());
        let writers = [1, 2].map(|slot| {
            let bucket = bucket.clone();
            thread::spawn(move || write(&bucket, 7, slot))
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let engines = read(&bucket, 7);
        assert!(!engines.is_empty() && engines.iter().all(|slot| [1, 2].contains(slot)), "{engines:?}");
    });
}
