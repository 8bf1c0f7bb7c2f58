//! Fingerprints: a prompt as chained hashes of its blocks, so that equal heads are equal leading runs.
//!
//! Filled by the request path, piece by piece, from the body as it lies. Changes with what engines keep apart in their
//! caches. Never copies the body: at most one block, where pieces meet.

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use llmgw_kit::chance::Chance;

/// Bytes of a prompt that are one block.
pub const BLOCK_BYTES: usize = 512;
/// Blocks of one request. What comes beyond is one more block, whatever its length, so that different ends differ.
pub const BLOCKS_MAX: usize = 8192;

/// Where hashes begin: one for all cores, another in every process, so that nobody can make prompts that collide.
#[derive(Clone, Copy)]
pub struct Seed {
    own: u64,
    shared: &'static SharedSeed,
}

impl Seed {
    /// A seed drawn from `chance`. A process draws one: what its hasher shares, 48 bytes, is never freed.
    pub fn drawn(chance: &mut Chance) -> Self {
        let shared = Box::leak(Box::new(SharedSeed::from_u64(chance.next_u64())));
        Self { own: chance.next_u64(), shared }
    }
}

/// What keeps equal prompts apart in an engine's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salt<'a> {
    /// The model's public name, not an alias of it.
    pub model: &'a str,
    /// The adapter's name; empty for none.
    pub lora: &'a str,
    /// The request's `cache_salt` as written; absent and empty are different.
    pub cache_salt: Option<&'a [u8]>,
}

/// A prompt's fingerprint, and the scratch in which the next one is made: one per core.
///
/// Shape: one hash a block, each over all before it; several prompts one after another.
pub struct Fingerprint {
    seed: Seed,
    /// What every prompt of this request begins with.
    salt: u64,
    hashes: Vec<u64>,
    /// Where each prompt but the last ends.
    ends: Vec<u32>,
    chain: u64,
    partial: [u8; BLOCK_BYTES],
    partial_bytes: usize,
    bytes: u64,
    has_rest: bool,
    has_media: bool,
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Hashes of a prompt are no news to anybody.
        write!(f, "Fingerprint({} blocks)", self.hashes.len())
    }
}

impl Fingerprint {
    /// An empty scratch. Allocates for prompts of usual length; grows to at most [`BLOCKS_MAX`] hashes and keeps them.
    pub fn new(seed: &Seed) -> Self {
        Self {
            seed: *seed,
            salt: 0,
            hashes: Vec::with_capacity(256),
            ends: Vec::new(),
            chain: 0,
            partial: [0; BLOCK_BYTES],
            partial_bytes: 0,
            bytes: 0,
            has_rest: false,
            has_media: false,
        }
    }

    /// Begins a request's fingerprint; the one before is gone.
    pub fn begin(&mut self, salt: &Salt<'_>) {
        let mut chain = self.hash(0, salt.model.as_bytes());
        chain = self.hash(chain, salt.lora.as_bytes());
        if let Some(cache_salt) = salt.cache_salt {
            chain = self.hash(chain, cache_salt);
        }
        (self.salt, self.chain) = (chain, chain);
        self.hashes.clear();
        self.ends.clear();
        (self.partial_bytes, self.bytes) = (0, 0);
        (self.has_rest, self.has_media) = (false, false);
    }

    /// Takes text. Cost: 0.03 ns a byte; copies less than a block at each end of it.
    pub fn text(&mut self, mut text: &[u8]) {
        self.bytes += text.len() as u64;
        if self.partial_bytes > 0 {
            let (head, rest) = text.split_at(text.len().min(BLOCK_BYTES - self.partial_bytes));
            self.fill(head);
            text = rest;
            if self.partial_bytes == BLOCK_BYTES {
                let block = self.partial;
                self.block(&block);
                self.partial_bytes = 0;
            }
        }
        let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
        blocks.iter().for_each(|block| self.block(block));
        self.fill(rest);
    }

    /// Takes a picture or sound: 16 bytes of its content's hash stand for it.
    pub fn media(&mut self, data: &[u8]) {
        self.has_media = true;
        let (content, length) = (self.hash(0, data), data.len() as u64);
        self.text(&content.to_le_bytes());
        self.text(&length.to_le_bytes());
    }

    /// Ends a prompt; the next one shares nothing with it.
    pub fn next_prompt(&mut self) {
        self.end_prompt();
        if self.hashes.len() < BLOCKS_MAX {
            self.ends.push(self.hashes.len() as u32);
            self.chain = self.salt;
        }
    }

    /// Ends the last prompt. Call it once, after the last piece.
    pub fn finish(&mut self) {
        self.end_prompt();
        if self.has_rest {
            self.hashes.push(self.chain);
        }
    }

    /// Blocks in all, 0 for a request without a prompt.
    pub fn block_count(&self) -> u32 {
        self.hashes.len() as u32
    }

    /// Bytes in all, a picture's as those that stand for it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether pictures or sound are part of it, so that its bytes say little of its tokens.
    pub fn has_media(&self) -> bool {
        self.has_media
    }

    /// The hashes of each prompt.
    pub fn prompts(&self) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ends = self.ends.iter().copied().chain(std::iter::once(self.block_count()));
        starts.zip(ends).map(|(start, end)| self.hashes.get(start as usize..end as usize).unwrap_or_default())
    }

    fn fill(&mut self, bytes: &[u8]) {
        let end = self.partial_bytes + bytes.len();
        if let Some(place) = self.partial.get_mut(self.partial_bytes..end) {
            place.copy_from_slice(bytes);
            self.partial_bytes = end;
        }
    }

    fn end_prompt(&mut self) {
        if self.partial_bytes > 0 {
            let (partial, bytes) = (self.partial, self.partial_bytes);
            self.block(partial.get(..bytes).unwrap_or_default());
            self.partial_bytes = 0;
        }
    }

    #[inline]
    fn block(&mut self, block: &[u8]) {
        self.chain = self.hash(self.chain, block);
        if self.hashes.len() < BLOCKS_MAX {
            self.hashes.push(self.chain);
        } else {
            self.has_rest = true;
        }
    }

    #[inline]
    fn hash(&self, chain: u64, bytes: &[u8]) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = SeedableRandomState::with_seed(self.seed.own, self.seed.shared).build_hasher();
        hasher.write_u64(chain);
        hasher.write(bytes);
        hasher.finish()
    }
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
