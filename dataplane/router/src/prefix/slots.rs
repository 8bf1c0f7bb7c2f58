//! The cells of the stamp table: buckets of slots that every core reads and writes without a lock.
//!
//! Called by [`approx`](super::approx) alone. Over [`Word`], so that the same code runs on the standard atomics and on
//! those of a model checker. Never waits: what cannot be written at once is not written.
//!
//! A slot is a tag, which says whose it is and when it was used last, and holders: an engine each, with its stamp.
//! Cores that write at once may lose a stamp, or keep a key twice: a hit less. Invariant: a stamp is never read under a
//! key it was not written for, but when a slot changes hands between two steps of a writer and the two keys agree in
//! [`CHECK_BITS`] (once in 256 such races).

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use llmgw_types::BoardSlot;

/// One atomic word.
pub trait Word: Default {
    /// Reads; what is read afterwards is not older.
    fn load(&self) -> u64;
    /// Writes; what was written before is there first.
    fn store(&self, value: u64);
    /// Writes if it still holds `current`. Answer: whether it did.
    fn replace(&self, current: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        Self::load(self, Ordering::Acquire)
    }
    #[inline]
    fn store(&self, value: u64) {
        Self::store(self, value, Ordering::Release);
    }
    #[inline]
    fn replace(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Bits of a key.
pub const KEY_BITS: u32 = 44;
/// Bits of a key that stand with every stamp.
pub const CHECK_BITS: u32 = 8;
/// Bits of a stamp. They wrap: ages are differences.
pub const STAMP_BITS: u32 = 44;
/// Slots of a bucket.
pub const WAYS: usize = 8;
/// Engines that a slot remembers.
pub const HOLDERS: usize = 8;

/// A stamp is written again once it is older than such a part of what its engine holds.
pub const RIGHT_TO: f32 = 64.0;

const TICK_BITS: u32 = 64 - KEY_BITS - 1;
const SHARED: u64 = 1 << TICK_BITS;
/// A tag between two keys.
const BUSY: u64 = 1;

/// A block's key: part of its hash, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of a block's hash.
    #[inline]
    pub fn of(hash: u64) -> Self {
        Self((hash >> (64 - KEY_BITS)).max(1))
    }

    /// The key's place among `count` buckets.
    #[inline]
    pub fn bucket(self, count: usize) -> usize {
        ((self.0 * count as u64) >> KEY_BITS) as usize
    }
}

/// What is written of a block.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Whose.
    pub key: Key,
    /// The engine that got it.
    pub slot: BoardSlot,
    /// How much that engine had got by then.
    pub stamp: u64,
    /// A coarse time, for who was used least lately; wraps.
    pub tick: u32,
}

/// Slots that a key can be in.
#[repr(align(64))]
pub struct Bucket<W, const N: usize = WAYS, const H: usize = HOLDERS> {
    tags: [W; N],
    holders: [[W; H]; N],
}

impl<W: Word, const N: usize, const H: usize> Default for Bucket<W, N, H> {
    fn default() -> Self {
        let tags = std::array::from_fn(|_| W::default());
        Self { tags, holders: std::array::from_fn(|_| std::array::from_fn(|_| W::default())) }
    }
}

impl<W: Word, const N: usize, const H: usize> Bucket<W, N, H> {
    /// Tells each engine that the key's slot remembers, with its stamp and the ticks since the slot was used. Answer:
    /// `None` when the key is not there, else whether more engines have the block than a slot remembers.
    #[inline]
    pub fn read(&self, key: Key, tick: u32, mut tell: impl FnMut(BoardSlot, u64, u64)) -> Option<bool> {
        let (way, tag) = self.find(key)?;
        let unused = age_in_ticks(u64::from(tick) & (SHARED - 1), tag);
        for holder in self.holders.get(way)? {
            let word = holder.load();
            if word != 0 && check_of(word) == check(key) {
                tell(slot_of(word), stamp_of(word), unused);
            }
        }
        // Taken away meanwhile: what was told is what the key had, or nothing.
        Some(tag & SHARED != 0)
    }

    /// Remembers that an engine got the key's block. `age_of` says how old another engine's stamp is as a part of what
    /// that engine holds: from 1 on it is forgotten.
    #[inline]
    pub fn write(&self, entry: &Entry, age_of: impl Fn(BoardSlot, u64) -> f32) {
        let tick = u64::from(entry.tick) & (SHARED - 1);
        let Some((way, tag)) = self.find(entry.key).or_else(|| self.claim(entry.key, tick)) else { return };
        let Some(holders) = self.holders.get(way) else { return };
        let word = holder_word(entry);
        let mut is_shared = tag & SHARED != 0;
        let (mut place, mut oldest) = (None, f32::NEG_INFINITY);
        let mut is_full = true;
        for holder in holders {
            let found = holder.load();
            let is_whole = found != 0 && check_of(found) == check(entry.key);
            if is_whole && slot_of(found) == entry.slot {
                (place, is_full) = (Some((holder, found)), false);
                break;
            }
            let age = if is_whole { age_of(slot_of(found), stamp_of(found)) } else { f32::INFINITY };
            is_full &= age < 1.0;
            if age > oldest {
                (place, oldest) = (Some((holder, found)), age);
            }
        }
        if is_full {
            is_shared = true;
        } else if oldest >= 1.0 {
            is_shared = false;
        }
        if let Some((holder, found)) = place {
            let age =
                if found == 0 || slot_of(found) != entry.slot { 1.0 } else { age_of(entry.slot, stamp_of(found)) };
            // A line that many cores read stays theirs while what it says is right to within a part of [`RIGHT_TO`].
            if !(0.0..1.0 / RIGHT_TO).contains(&age) {
                holder.replace(found, word);
            }
        }
        let new = entry.key.0 << (TICK_BITS + 1) | if is_shared { SHARED } else { 0 } | tick;
        if new != tag {
            self.tags[way].replace(tag, new);
        }
    }

    /// Reads the line that every search begins with.
    #[inline]
    pub fn warm(&self) {
        black_box(self.tags.first().map_or(0, Word::load));
    }

    /// Reads the line that [`Self::read`] goes on with.
    #[inline]
    pub fn warm_holders(&self, key: Key) {
        let holders = self.find(key).and_then(|(way, _)| self.holders.get(way));
        black_box(holders.and_then(|holders| holders.first()).map_or(0, Word::load));
    }

    /// Reads what [`Self::write`] would begin with. Writes wait for each other, reads do not: a core that reads for
    /// some writes before it does them waits for memory once.
    #[inline]
    pub fn touch(&self, key: Key, tick: u32) {
        let found = self.find(key).or_else(|| self.victim(u64::from(tick) & (SHARED - 1)));
        let holders = found.and_then(|(way, _)| self.holders.get(way));
        black_box(holders.and_then(|holders| holders.first()).map_or(0, Word::load));
    }

    /// Tells every key with what its slot remembers.
    pub fn each(&self, mut tell: impl FnMut(Entry)) {
        for (tag, holders) in self.tags.iter().zip(&self.holders) {
            let tag = tag.load();
            let key = Key(tag >> (TICK_BITS + 1));
            let words = holders.iter().map(Word::load);
            for word in words.filter(|&word| key.0 != 0 && word != 0 && check_of(word) == check(key)) {
                let tick = (tag & (SHARED - 1)) as u32;
                tell(Entry { key, slot: slot_of(word), stamp: stamp_of(word), tick });
            }
        }
    }

    #[inline]
    fn find(&self, key: Key) -> Option<(usize, u64)> {
        // No branch for each: where a key is in its bucket cannot be guessed, and each wrong guess waits for memory by
        // itself.
        let is_key = |tag: u64| tag >> (TICK_BITS + 1) == key.0;
        let ways = (0..).zip(&self.tags).fold(0_u32, |ways, (way, tag)| ways | u32::from(is_key(tag.load())) << way);
        let way = ways.trailing_zeros() as usize;
        let tag = self.tags.get(way)?.load();
        is_key(tag).then_some((way, tag))
    }

    /// The slot that was used least lately, with its tag.
    #[inline]
    fn victim(&self, tick: u64) -> Option<(usize, u64)> {
        let (mut victim, mut oldest) = (None, 0);
        for (way, tag) in self.tags.iter().map(Word::load).enumerate().filter(|(_, tag)| *tag != BUSY) {
            let age = if tag == 0 { u64::MAX } else { age_in_ticks(tick, tag) + 1 };
            if age > oldest {
                (victim, oldest) = (Some((way, tag)), age);
            }
        }
        victim
    }

    /// Takes the slot that was used least lately for `key`, empty. `None` when another core was faster.
    fn claim(&self, key: Key, tick: u64) -> Option<(usize, u64)> {
        let (way, tag) = self.victim(tick)?;
        if !self.tags[way].replace(tag, BUSY) {
            return None;
        }
        self.holders[way].iter().filter(|holder| holder.load() != 0).for_each(|holder| holder.store(0));
        let new = key.0 << (TICK_BITS + 1) | tick;
        self.tags[way].store(new);
        Some((way, new))
    }
}

/// Ticks since a tag was written, 0 where another core's clock was ahead.
fn age_in_ticks(tick: u64, tag: u64) -> u64 {
    let age = tick.wrapping_sub(tag) & (SHARED - 1);
    if age < SHARED / 2 { age } else { 0 }
}

#[inline]
fn check(key: Key) -> u64 {
    key.0 & ((1 << CHECK_BITS) - 1)
}

#[inline]
fn check_of(word: u64) -> u64 {
    word >> STAMP_BITS & ((1 << CHECK_BITS) - 1)
}

#[inline]
fn slot_of(word: u64) -> BoardSlot {
    BoardSlot((word >> (STAMP_BITS + CHECK_BITS)) as u32)
}

#[inline]
fn stamp_of(word: u64) -> u64 {
    word & ((1 << STAMP_BITS) - 1)
}

/// Never 0 but for stamp 0 of slot 0, which nobody writes: counts begin above.
#[inline]
fn holder_word(entry: &Entry) -> u64 {
    u64::from(entry.slot.0) << (STAMP_BITS + CHECK_BITS) | check(entry.key) << STAMP_BITS | stamp_of(entry.stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Bucket<AtomicU64, 2, 2>;

    fn entry(key: u64, slot: u32, stamp: u64, tick: u32) -> Entry {
        Entry { key: Key(key), slot: BoardSlot(slot), stamp, tick }
    }

    /// Engines hold 100 and have got 1000.
    fn age_of(_: BoardSlot, stamp: u64) -> f32 {
        1000.0_f32.mul_add(0.01, -(stamp as f32) * 0.01)
    }

    fn read(bucket: &Small, key: u64) -> Option<(Vec<(u32, u64)>, bool)> {
        let mut found = Vec::new();
        let is_shared = bucket.read(Key(key), 0, |slot, stamp, _| found.push((slot.0, stamp)))?;
        Some((found, is_shared))
    }

    #[test]
    fn the_slot_used_least_lately_goes_first() {
        let bucket = Small::default();
        for (key, tick) in [(7, 1), (8, 2), (7, 3), (9, 4)] {
            bucket.write(&entry(key, 1, 950, tick), age_of);
        }
        assert_eq!(read(&bucket, 8), None);
        assert_eq!(read(&bucket, 7), Some((vec![(1, 950)], false)));
        assert_eq!(read(&bucket, 9), Some((vec![(1, 950)], false)));
        // One that a clock ahead of others wrote is new, not old.
        bucket.write(&entry(8, 1, 950, 1), age_of);
        assert_eq!((read(&bucket, 7), read(&bucket, 9).is_some()), (None, true));
        // Ticks wrap.
        bucket.write(&entry(7, 1, 950, (1 << TICK_BITS) - 1), age_of);
        bucket.write(&entry(9, 1, 950, 0), age_of);
        bucket.write(&entry(10, 1, 950, 1), age_of);
        assert_eq!((read(&bucket, 7), read(&bucket, 9).is_some()), (None, true));
    }

    #[test]
    fn a_slot_says_that_more_engines_have_its_block_than_it_remembers() {
        let bucket = Small::default();
        [(1, 990), (2, 980), (3, 999)]
            .iter()
            .for_each(|&(slot, stamp)| bucket.write(&entry(7, slot, stamp, 1), age_of));
        assert_eq!(read(&bucket, 7), Some((vec![(1, 990), (3, 999)], true)), "the oldest made room");
        // Until one is forgotten.
        let later = |slot, stamp| age_of(slot, stamp) + 1.0;
        bucket.write(&entry(7, 4, 1090, 1), later);
        assert_eq!(read(&bucket, 7), Some((vec![(4, 1090), (3, 999)], false)));
    }

    #[test]
    fn a_stamp_is_written_again_only_once_it_is_older_than_a_part_of_64() {
        let bucket = Small::default();
        for (stamp, expected) in [(990, 990), (995, 990), (1000, 990)] {
            bucket.write(&entry(7, 1, stamp, 1), |_, stamp| (stamp.abs_diff(991) as f32) / 1000.0);
            assert_eq!(read(&bucket, 7), Some((vec![(1, expected)], false)));
        }
        bucket.write(&entry(7, 1, 1100, 1), |_, _| 0.2);
        assert_eq!(read(&bucket, 7), Some((vec![(1, 1100)], false)));
    }

    #[test]
    fn stamps_of_another_key_are_not_read() {
        let bucket = Small::default();
        bucket.write(&entry(7, 1, 5, 1), age_of);
        // As a slow writer leaves it when the slot changed hands under its hand.
        Word::store(&bucket.tags[0], 9 << (TICK_BITS + 1));
        assert_eq!(read(&bucket, 9), Some((vec![], false)));
    }
}
