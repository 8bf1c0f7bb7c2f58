//! What one request finds in the stamp table: how many of its blocks each engine has.
//!
//! Filled by [`StampTable::find`](super::StampTable::find), read by scorers and the guard. A scratch that is used
//! again: one per core.

use llmgw_types::BoardSlot;

use super::approx::age;
use super::fingerprint::{BLOCK_BYTES, Fingerprint};
use super::ledger::Ledger;
use super::slots::RIGHT_TO;

/// Depths at which engines' shares of a prompt end that are looked at closely.
const ENDS_MAX: usize = 32;

/// What is known of one engine.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Blocks of the prompts before this one.
    total: u32,
    /// The deepest block of this prompt that it still has.
    depth: u32,
    /// The same for those it had once.
    known: u32,
    known_total: u32,
    count: u64,
    capacity: u64,
    /// Age of the deepest block it had once, tokens.
    age: u64,
    /// Leading blocks of the first prompt that are written down as they would be written again.
    right: u32,
    is_seen: bool,
}

/// What one request found.
pub struct Matches {
    /// By board slot.
    found: Vec<Found>,
    seen: Vec<BoardSlot>,
    blocks: u32,
    bytes: u64,
    /// Blocks that more engines have than are remembered, so that nobody is preferred for them.
    everywhere: u32,
    everywhere_total: u32,
    /// No prompt of the request was looked for to its end.
    is_first: bool,
}

impl Matches {
    /// A scratch for engines of so many board slots.
    pub fn new(slots: usize) -> Self {
        Self {
            found: vec![Found::default(); slots],
            seen: Vec::with_capacity(slots.min(64)),
            blocks: 0,
            bytes: 0,
            everywhere: 0,
            everywhere_total: 0,
            is_first: true,
        }
    }

    /// Blocks of the prompt.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Blocks that an engine has cached, as estimated.
    pub fn cached(&self, ledger: &Ledger, slot: BoardSlot) -> u32 {
        let own = self.found.get(slot.idx()).map_or(0, |found| found.total);
        let everywhere = if self.everywhere_total > own && ledger.is_warm(slot) { self.everywhere_total } else { 0 };
        own.max(everywhere).min(self.blocks)
    }

    /// Of a prompt of so many tokens, those that an engine would have to prefill.
    pub fn tokens_left(&self, ledger: &Ledger, slot: BoardSlot, prompt_tokens: u32) -> u32 {
        let cached = self.cached(ledger, slot);
        // The last block of a prompt is seldom a whole one.
        let cached_bytes = if cached == self.blocks { self.bytes } else { u64::from(cached) * BLOCK_BYTES as u64 };
        let left = self.bytes.saturating_sub(cached_bytes);
        (u64::from(prompt_tokens) * left).checked_div(self.bytes).unwrap_or(prompt_tokens.into()) as u32
    }

    /// The engines that some block was ever sent to.
    pub fn seen_by(&self) -> &[BoardSlot] {
        &self.seen
    }

    /// Blocks that some engine had once, whether it has them still or not.
    pub fn known(&self) -> u32 {
        let known = |slot: &BoardSlot| self.found.get(slot.idx()).map_or(0, |found| found.known_total);
        self.seen.iter().map(known).max().unwrap_or(0).min(self.blocks)
    }

    /// Blocks that an engine had once, whether it has them still or not.
    pub fn known_at(&self, slot: BoardSlot) -> u32 {
        self.found.get(slot.idx()).map_or(0, |found| found.known_total).min(self.blocks)
    }

    /// What an engine got since it got the deepest block it ever had of this prompt, tokens: for learning what it
    /// holds. `None` when it had none.
    pub fn age(&self, slot: BoardSlot) -> Option<u64> {
        self.found.get(slot.idx()).filter(|found| found.known_total > 0).map(|found| found.age)
    }

    pub(super) fn begin(&mut self, fingerprint: &Fingerprint) {
        for slot in self.seen.drain(..) {
            if let Some(found) = self.found.get_mut(slot.idx()) {
                *found = Found::default();
            }
        }
        (self.blocks, self.bytes) = (fingerprint.block_count(), fingerprint.bytes());
        (self.everywhere, self.everywhere_total, self.is_first) = (0, 0, true);
    }

    /// An engine got the block at `depth`, the `step`th after the one that was looked for before. Whoever got a block
    /// got all before it then or later: the deepest one counts.
    #[inline]
    pub(super) fn seen(
        &mut self,
        ledger: &Ledger,
        slot: BoardSlot,
        stamp: u64,
        depth: u32,
        step: u32,
        is_recent: bool,
    ) {
        let Some(found) = self.found.get_mut(slot.idx()) else { return };
        if !found.is_seen {
            let (count, capacity) = (ledger.count(slot), ledger.capacity(slot));
            (found.is_seen, found.count, found.capacity) = (true, count, capacity);
            self.seen.push(slot);
        }
        let age = age(found.count, stamp);
        if depth > found.known {
            (found.known, found.age) = (depth, age);
        }
        let is_right = is_recent && (age as f32) * RIGHT_TO < found.capacity as f32;
        if is_right && self.is_first && found.right + step == depth {
            found.right = depth;
        }
        if age < found.capacity {
            found.depth = found.depth.max(depth);
        }
    }

    /// Calls `look` with each depth, in steps, after which what some engine has or had of this prompt ends.
    pub(super) fn ends_between(&mut self, step: u32, mut look: impl FnMut(u32, &mut Self)) {
        let mut ends = [0; ENDS_MAX];
        let mut count = 0;
        for found in self.seen.iter().filter_map(|slot| self.found.get(slot.idx())) {
            for end in [found.depth, found.known] {
                let end = end / step * step;
                let is_new = end > 0 && !ends.iter().take(count).any(|other| *other == end);
                if let Some(place) = ends.get_mut(count).filter(|_| is_new) {
                    *place = end;
                    count += 1;
                }
            }
        }
        ends.iter().take(count).for_each(|end| look(*end, self));
    }

    pub(super) fn seen_everywhere(&mut self, depth: u32) {
        self.everywhere = self.everywhere.max(depth);
    }

    pub(super) fn end_prompt(&mut self) {
        for slot in &self.seen {
            let Some(found) = self.found.get_mut(slot.idx()) else { continue };
            found.total += found.depth;
            found.known_total += found.known;
            (found.depth, found.known) = (0, 0);
        }
        self.everywhere_total += std::mem::take(&mut self.everywhere);
        self.is_first = false;
    }

    /// Leading blocks of the first prompt whose slots need not be written when it goes to that engine.
    pub(super) fn right(&self, slot: BoardSlot) -> u32 {
        self.found.get(slot.idx()).map_or(0, |found| found.right)
    }
}
