//! Which engine holds which stored response: written where an answer passes, read where a later request names it.
//!
//! One table for all cores, of single words that each core reads and writes without a lock or a read-modify-write. It
//! is bounded and lossy: an entry that another takes the place of makes a follow-up go to any engine, which then says
//! that it does not know the response. A slot is its endpoint's for life, so an entry never leads to a stranger while
//! the endpoint lives; after that the response is gone too.

use std::sync::atomic::{AtomicU64, Ordering};

use llmgw_types::BoardSlot;

/// Entries of one set.
const WAYS: usize = 8;
/// Sets of a table. With eight words each that is 256 KiB.
const SETS: usize = 4096;
/// Bits of an entry that are its slot, counted from 1; the others are the key's.
const SLOT_BITS: u32 = 16;

/// The table.
pub struct StoredTable {
    entries: Box<[AtomicU64]>,
}

impl Default for StoredTable {
    fn default() -> Self {
        Self { entries: (0..WAYS * SETS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl StoredTable {
    /// The endpoint that the key was put with last, if that is still known. Cost: one cache line.
    pub fn find(&self, key: u64) -> Option<BoardSlot> {
        let entry = self.set(key).iter().map(|entry| entry.load(Ordering::Relaxed)).find(|entry| is_of(*entry, key))?;
        Some(BoardSlot(slot_bits(entry) - 1))
    }

    /// Remembers where a response is. Loss: of another one, when its set is full.
    pub fn put(&self, key: u64, slot: BoardSlot) {
        let set = self.set(key);
        let taken = |entry: &AtomicU64| entry.load(Ordering::Relaxed);
        let own = set.iter().position(|entry| is_of(taken(entry), key));
        let place = own.or_else(|| set.iter().position(|entry| taken(entry) == 0));
        // In a full set the key's own bits say who goes: as good as any, and nobody has to count.
        let place = place.unwrap_or((key >> 61) as usize % WAYS);
        let slot = (u64::from(slot.0) + 1).min((1 << SLOT_BITS) - 1);
        if let Some(entry) = set.get(place) {
            entry.store(tag(key) | slot, Ordering::Relaxed);
        }
    }

    /// Forgets a response that was deleted.
    pub fn forget(&self, key: u64) {
        if let Some(entry) = self.set(key).iter().find(|entry| is_of(entry.load(Ordering::Relaxed), key)) {
            entry.store(0, Ordering::Relaxed);
        }
    }

    fn set(&self, key: u64) -> &[AtomicU64] {
        let at = key as usize % SETS * WAYS;
        self.entries.get(at..at + WAYS).unwrap_or_default()
    }
}

fn tag(key: u64) -> u64 {
    key >> SLOT_BITS << SLOT_BITS
}

fn slot_bits(entry: u64) -> u32 {
    (entry & ((1 << SLOT_BITS) - 1)) as u32
}

fn is_of(entry: u64, key: u64) -> bool {
    slot_bits(entry) != 0 && tag(entry) == tag(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::key_hash;

    fn key(at: u64) -> u64 {
        key_hash(&at.to_le_bytes())
    }

    #[test]
    fn a_response_is_found_where_it_was_put_last_until_it_is_forgotten() {
        let table = StoredTable::default();
        assert_eq!(table.find(key(1)), None);
        table.put(key(1), BoardSlot(0));
        table.put(key(2), BoardSlot(4095));
        assert_eq!((table.find(key(1)), table.find(key(2))), (Some(BoardSlot(0)), Some(BoardSlot(4095))));
        table.put(key(1), BoardSlot(7));
        assert_eq!(table.find(key(1)), Some(BoardSlot(7)));
        table.forget(key(1));
        table.forget(key(3));
        assert_eq!((table.find(key(1)), table.find(key(2))), (None, Some(BoardSlot(4095))));
    }

    #[test]
    fn a_full_set_takes_the_newest_and_keeps_the_others_but_one() {
        let table = StoredTable::default();
        let keys: Vec<u64> = (0..=WAYS as u64).map(|at| 5 | key(at) >> SLOT_BITS << SLOT_BITS).collect();
        for (at, key) in (0u32..).zip(&keys) {
            table.put(*key, BoardSlot(at));
        }
        assert_eq!(table.find(keys[WAYS]), Some(BoardSlot(WAYS as u32)));
        assert_eq!(keys.iter().filter(|key| table.find(**key).is_some()).count(), WAYS);
    }

    #[test]
    fn the_newest_of_many_are_nearly_all_known() {
        let table = StoredTable::default();
        (0..200_000).for_each(|at| table.put(key(at), BoardSlot(at as u32 % 64)));
        let known = (190_000..200_000u64).filter(|at| table.find(key(*at)) == Some(BoardSlot(*at as u32 % 64))).count();
        assert!(known > 8_000, "{known}");
    }
}
