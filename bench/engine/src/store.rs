//! Where running sequences live: in shared blocks (as vLLM and SGLang keep them) or in whole slots (as llama.cpp does).
//!
//! Called by the batch only. Answers "does it fit" and "how much of it is here already"; never decides who goes first.

use serde::{Deserialize, Serialize};

use crate::kv::{BlockPool, chain, link};
use crate::token;

/// What bounds the engine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Memory {
    /// Sequences share blocks of `block_tokens` tokens.
    Blocks { block_count: usize, block_tokens: usize, prefix_caching: bool },
    /// Every sequence takes one of `slot_count` slots, which remember their last sequence.
    Slots { slot_count: usize, slot_tokens: usize },
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Blocks { block_count: 16_384, block_tokens: 16, prefix_caching: true }
    }
}

/// One sequence: its prompt, and what it has taken.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    prompt: Vec<u32>,
    answer_seed: u64,
    /// Hashes of the full blocks known so far; grows with the answer.
    hashes: Vec<u64>,
    salt: u64,
    taken: Vec<u32>,
}

impl Sequence {
    pub(crate) fn new(prompt: Vec<u32>, answer_seed: u64, salt: u64) -> Sequence {
        Sequence { prompt, answer_seed, hashes: Vec::new(), salt, taken: Vec::new() }
    }

    pub(crate) fn prompt_len(&self) -> usize {
        self.prompt.len()
    }

    fn token(&self, idx: usize) -> u32 {
        match self.prompt.get(idx) {
            Some(&id) => id,
            None => token::word_id(self.answer_seed, (idx - self.prompt.len()) as u32),
        }
    }

    /// Brings the hashes up to the full blocks within the first `len` tokens.
    fn hash_up_to(&mut self, len: usize, block_tokens: usize) {
        if self.hashes.is_empty() {
            self.hashes = chain(self.salt, &self.prompt, block_tokens);
        }
        while (self.hashes.len() + 1) * block_tokens <= len {
            let start = self.hashes.len() * block_tokens;
            let block: Vec<u32> = (start..start + block_tokens).map(|idx| self.token(idx)).collect();
            // Without a block before it, the chain starts as `chain` starts it.
            let hash = match self.hashes.last() {
                Some(&before) => link(before, &block),
                None => chain(self.salt, &block, block_tokens).last().copied().unwrap_or_default(),
            };
            self.hashes.push(hash);
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Slot {
    tokens: Vec<u32>,
    salt: u64,
    is_busy: bool,
    last_use: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Store {
    Blocks { pool: BlockPool, block_tokens: usize },
    Slots { slots: Vec<Slot>, slot_tokens: usize, uses: u64 },
}

impl Store {
    pub(crate) fn new(memory: Memory) -> Store {
        match memory {
            Memory::Blocks { block_count, block_tokens, prefix_caching } => {
                Store::Blocks { pool: BlockPool::new(block_count, prefix_caching), block_tokens: block_tokens.max(1) }
            }
            Memory::Slots { slot_count, slot_tokens } => {
                let empty = Slot { tokens: Vec::new(), salt: 0, is_busy: false, last_use: 0 };
                Store::Slots { slots: vec![empty; slot_count], slot_tokens, uses: 0 }
            }
        }
    }

    /// Gives `seq` room for its first `len` tokens; says how many of them are here already (always fewer than `len`).
    /// `None`: it does not fit for the moment.
    pub(crate) fn admit(&mut self, seq: &mut Sequence, len: usize) -> Option<usize> {
        match self {
            Store::Blocks { pool, block_tokens } => {
                seq.hash_up_to(len, *block_tokens);
                // The last token is computed in any case: its outcome is the next token.
                let usable = len.saturating_sub(1) / *block_tokens;
                let usable = usable.min(seq.hashes.len());
                let (taken, found) = pool.take(&seq.hashes[..usable], len.div_ceil(*block_tokens))?;
                seq.taken = taken;
                Some(found * *block_tokens)
            }
            Store::Slots { slots, slot_tokens, uses } => {
                if len > *slot_tokens {
                    return None;
                }
                let (idx, shared) = best_slot(slots, seq)?;
                *uses += 1;
                let slot = &mut slots[idx];
                slot.is_busy = true;
                slot.last_use = *uses;
                slot.salt = seq.salt;
                seq.taken = vec![idx as u32];
                Some(shared.min(len.saturating_sub(1)))
            }
        }
    }

    /// Whether `len` tokens could ever fit.
    pub(crate) fn can_ever_hold(&self, len: usize) -> bool {
        match self {
            Store::Blocks { pool, block_tokens } => len.div_ceil(*block_tokens) <= pool.block_count(),
            Store::Slots { slots, slot_tokens, .. } => len <= *slot_tokens && !slots.is_empty(),
        }
    }

    /// Makes room for `len` tokens of a running sequence. `false`: there is none.
    pub(crate) fn grow(&mut self, seq: &mut Sequence, len: usize) -> bool {
        match self {
            Store::Blocks { pool, block_tokens } => {
                while seq.taken.len() * *block_tokens < len {
                    match pool.take_one() {
                        Some(idx) => seq.taken.push(idx),
                        None => return false,
                    }
                }
                true
            }
            Store::Slots { slot_tokens, .. } => len <= *slot_tokens,
        }
    }

    /// Records that the first `len` tokens are computed, or will be in the step that is planned: from here on others
    /// find them.
    pub(crate) fn computed(&mut self, seq: &mut Sequence, len: usize) {
        if let Store::Blocks { pool, block_tokens } = self {
            let before = seq.hashes.len();
            seq.hash_up_to(len, *block_tokens);
            let full = (len / *block_tokens).min(seq.taken.len()).min(seq.hashes.len());
            // While the answer grows only the newest block can be new.
            let from = if len > seq.prompt.len() { before.min(full).min(full.saturating_sub(1)) } else { 0 };
            for at in from..full {
                pool.fill(seq.taken[at], seq.hashes[at]);
            }
        }
    }

    /// Takes back what `seq` holds; `len` tokens of it had been computed.
    pub(crate) fn release(&mut self, seq: &mut Sequence, len: usize) {
        let taken = std::mem::take(&mut seq.taken);
        match self {
            Store::Blocks { pool, .. } => pool.give_back(&taken),
            Store::Slots { slots, .. } => {
                for idx in taken {
                    if let Some(slot) = slots.get_mut(idx as usize) {
                        slot.is_busy = false;
                        slot.tokens = (0..len).map(|at| seq.token(at)).collect();
                    }
                }
            }
        }
    }

    /// Forgets every prefix that is not in use.
    pub(crate) fn forget(&mut self) {
        match self {
            Store::Blocks { pool, .. } => pool.forget(),
            Store::Slots { slots, .. } => slots.iter_mut().filter(|s| !s.is_busy).for_each(|s| s.tokens.clear()),
        }
    }

    /// Share of the memory in use, 0..=1.
    pub(crate) fn usage_ratio(&self) -> f64 {
        let (used, total) = match self {
            Store::Blocks { pool, .. } => (pool.block_count() - pool.free_count(), pool.block_count()),
            Store::Slots { slots, .. } => (slots.iter().filter(|slot| slot.is_busy).count(), slots.len()),
        };
        if total == 0 { 0.0 } else { used as f64 / total as f64 }
    }
}

/// The idle slot that shares most with the sequence; among equals the one unused for longest.
fn best_slot(slots: &[Slot], seq: &Sequence) -> Option<(usize, usize)> {
    let shared = |slot: &Slot| {
        if slot.salt != seq.salt {
            return 0;
        }
        slot.tokens.iter().enumerate().take_while(|&(idx, &id)| idx < seq.prompt.len() && seq.prompt[idx] == id).count()
    };
    slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| !slot.is_busy)
        .map(|(idx, slot)| (idx, shared(slot), slot.last_use))
        // A slot that shares little is not kept for it: then age decides.
        .map(|(idx, shared, last_use)| (idx, if shared * 10 > seq.prompt.len() { shared } else { 0 }, shared, last_use))
        .max_by_key(|&(idx, similar, _, last_use)| (similar, std::cmp::Reverse(last_use), std::cmp::Reverse(idx)))
        .map(|(idx, _, shared, _)| (idx, shared))
}
