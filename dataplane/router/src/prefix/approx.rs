//! The stamp table: which engine got which block, and how much that engine had got by then.
//!
//! Read and written by every core at every request, without locks. A block counts as cached at an engine while less
//! than the engine can hold was sent there since: an estimate of a cache that drops what was used least lately, with no
//! such list and no timer. The side runtime says how large the table should be.
//!
//! Memory: [`SLOT_BYTES`] a slot, at most the slots it was made for. It begins with a 64th of them and is made larger,
//! never by a core, as engines with more room come.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use llmgw_kit::clock::Mono;
use llmgw_types::{BoardSlot, CoreId};

use super::fingerprint::Fingerprint;
use super::ledger::{Ledger, Prefill};
use super::matching::Matches;
use super::slots::{Bucket, Entry, HOLDERS, Key, STAMP_BITS, WAYS};

/// Bytes of a slot: a tag and its holders.
pub const SLOT_BYTES: usize = 8 + 8 * HOLDERS;
/// The most slots a table can have.
pub const SLOTS_MAX: usize = 1 << 23;
/// Blocks in a row that may be missing before a search ends: slots are lost one by one.
const GAP_BLOCKS_MAX: u32 = 4;
/// Sizes, in 64ths of the whole; each that is in use is kept.
const LEVELS: [usize; 3] = [1, 8, 55];
/// Blocks whose buckets are read at once.
const AT_ONCE: usize = 16;
/// Of a long prompt each so many blocks are looked for at first.
const STEP: usize = 4;
/// Of a coarse clock.
const TICK_NANOS: u64 = 250_000_000;
/// A slot that was used so lately is not written to say that it is used again.
const UNUSED_TICKS_MAX: u64 = 8;

/// The table with the ledger that its stamps are read by.
pub struct StampTable {
    levels: [OnceLock<Box<[Bucket<AtomicU64>]>>; LEVELS.len()],
    live: AtomicUsize,
    slots_max: usize,
    ledger: Ledger,
}

/// A request as it was placed.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The core that placed it.
    pub core: CoreId,
    /// Its engine.
    pub slot: BoardSlot,
    /// What its prompt is estimated to have, tokens.
    pub prompt_tokens: u32,
    /// When.
    pub now: Mono,
}

impl StampTable {
    /// A table of at most `slots_max` slots.
    pub fn new(slots_max: usize, ledger: Ledger) -> Self {
        let slots_max = slots_max.clamp(LEVELS.iter().sum::<usize>() * WAYS, SLOTS_MAX);
        let table = Self { levels: Default::default(), live: AtomicUsize::new(0), slots_max, ledger };
        table.make(0);
        table
    }

    /// What engines got and hold.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Slots it has memory for.
    pub fn slot_count(&self) -> usize {
        self.levels.iter().filter_map(OnceLock::get).map(|level| level.len() * WAYS).sum()
    }

    /// Makes the table larger if fewer than `slots` are in use and there may be more; keeps what it knows. Twice the
    /// blocks that all engines hold is right. Owner: the side runtime.
    ///
    /// Cost: writes the new memory once and reads the old; what cores write meanwhile may be lost.
    pub fn want(&self, slots: usize) {
        let live = self.live.load(Ordering::Acquire);
        let enough = (0..LEVELS.len()).find(|&level| self.level_slots(level) >= slots);
        let level = enough.unwrap_or(LEVELS.len() - 1);
        if level <= live {
            return;
        }
        let new = self.make(level);
        for bucket in self.buckets() {
            bucket.each(|entry| {
                let at = entry.key.bucket(new.len());
                new[at].write(&entry, |slot, stamp| self.age(slot, stamp));
            });
        }
        self.live.store(level, Ordering::Release);
    }

    /// Looks where a prompt is cached.
    ///
    /// Whoever got a block got all before it then or later. So of a long prompt only each [`STEP`]th block is looked
    /// for, and then all of those between the last one that an engine has and the next.
    ///
    /// Cost: two cache lines a block that is looked for and known, one for each that is not; no allocation.
    pub fn find(&self, fingerprint: &Fingerprint, now: Mono, matches: &mut Matches) {
        matches.begin(fingerprint);
        let search = Search { table: self, buckets: self.buckets(), tick: tick_of(now) };
        for prompt in fingerprint.prompts() {
            let (start, rest) = prompt.split_at(prompt.len().min(STEP));
            let is_known = search.each(start, 0, 1, matches);
            if is_known && rest.len() <= STEP {
                search.each(rest, STEP as u32, 1, matches);
            } else if is_known {
                search.each(rest, STEP as u32, STEP, matches);
                matches.ends_between(STEP as u32, |from, matches| {
                    // The step's last block was looked for.
                    let between = prompt.get(from as usize..).unwrap_or_default();
                    search.each(between.get(..STEP - 1).unwrap_or(between), from, 1, matches);
                });
            }
            matches.end_prompt();
        }
    }

    /// Remembers where a prompt went, and counts what its engine has to prefill of it. `matches` is what was found for
    /// it before it was placed.
    ///
    /// Cost: two cache lines a block, but for those that `matches` found there as they would be written; no allocation.
    pub fn record(&self, fingerprint: &Fingerprint, matches: &Matches, placed: &Placed) -> Prefill {
        let Placed { core, slot, prompt_tokens, now } = *placed;
        let left = matches.tokens_left(&self.ledger, slot, prompt_tokens);
        self.ledger.add_sent(core, slot, left);
        let (stamp, tick) = (self.ledger.count(slot), tick_of(now));
        let capacity = self.ledger.capacity(slot) as f32;
        let buckets = self.buckets();
        let right = [matches.right(slot)].into_iter().chain(std::iter::repeat(0));
        let prompts = fingerprint.prompts().zip(right).filter_map(|(prompt, right)| prompt.get(right as usize..));
        for some in prompts.flat_map(|rest| rest.chunks(AT_ONCE)) {
            for (key, bucket) in warmed(buckets, some.iter(), |bucket, key| bucket.touch(key, tick)) {
                bucket.write(&Entry { key, slot, stamp, tick }, |other, old| {
                    if other == slot { age(stamp, old) as f32 / capacity } else { self.age(other, old) }
                });
            }
        }
        self.ledger.queue(core, slot, left)
    }

    /// The age of a stamp as a part of what its engine holds.
    fn age(&self, slot: BoardSlot, stamp: u64) -> f32 {
        if slot.idx() >= self.ledger.slot_count() {
            return f32::INFINITY;
        }
        age(self.ledger.count(slot), stamp) as f32 / self.ledger.capacity(slot) as f32
    }

    fn buckets(&self) -> &[Bucket<AtomicU64>] {
        self.levels.get(self.live.load(Ordering::Acquire)).and_then(|level| level.get()).map_or(&[], |level| level)
    }

    fn level_slots(&self, level: usize) -> usize {
        self.slots_max * LEVELS[level] / LEVELS.iter().sum::<usize>()
    }

    fn make(&self, level: usize) -> &[Bucket<AtomicU64>] {
        let count = self.level_slots(level) / WAYS;
        self.levels[level].get_or_init(|| (0..count).map(|_| Bucket::default()).collect())
    }
}

/// One look at the table.
struct Search<'a> {
    table: &'a StampTable,
    buckets: &'a [Bucket<AtomicU64>],
    tick: u32,
}

impl Search<'_> {
    /// Looks for the last of each `step` of the blocks after the first `from` of a prompt, until some in a row are
    /// missing. Answer: whether that did not happen.
    fn each(&self, blocks: &[u64], from: u32, step: usize, matches: &mut Matches) -> bool {
        let (mut gap, mut depth) = (0, from);
        for some in blocks.chunks(AT_ONCE * step) {
            let last = some.chunks_exact(step).filter_map(<[u64]>::last);
            for (key, bucket) in warmed(self.buckets, last, Bucket::warm_holders) {
                depth += step as u32;
                let seen = |slot, stamp, unused| {
                    matches.seen(&self.table.ledger, slot, stamp, depth, step as u32, unused <= UNUSED_TICKS_MAX);
                };
                match bucket.read(key, self.tick, seen) {
                    Some(is_shared) => {
                        gap = 0;
                        if is_shared {
                            matches.seen_everywhere(depth);
                        }
                    }
                    None => gap += 1,
                }
                if gap == GAP_BLOCKS_MAX {
                    return false;
                }
            }
        }
        true
    }
}

/// The keys of some blocks and their buckets, read ahead in two steps: what a bucket's first line says tells where to
/// go on, so that a look at one after the other would wait for memory twice a block.
#[inline]
fn warmed<'b>(
    buckets: &'b [Bucket<AtomicU64>],
    some: impl Iterator<Item = &'b u64> + Clone,
    go_on: impl Fn(&Bucket<AtomicU64>, Key),
) -> impl Iterator<Item = (Key, &'b Bucket<AtomicU64>)> {
    let at = move |hash: &u64| {
        let key = Key::of(*hash);
        buckets.get(key.bucket(buckets.len())).map(|bucket| (key, bucket))
    };
    some.clone().filter_map(at).for_each(|(_, bucket)| bucket.warm());
    some.clone().filter_map(at).for_each(|(key, bucket)| go_on(bucket, key));
    some.filter_map(at)
}

fn tick_of(now: Mono) -> u32 {
    (now.0 / TICK_NANOS) as u32
}

/// How much an engine got since a stamp.
#[inline]
pub(super) fn age(count: u64, stamp: u64) -> u64 {
    count.wrapping_sub(stamp) & ((1 << STAMP_BITS) - 1)
}

#[cfg(test)]
#[path = "approx_tests.rs"]
mod tests;
