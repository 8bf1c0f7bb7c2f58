//! Memory for sequences, in blocks: allocation, and a prefix cache with least-recently-used eviction.
//!
//! Called by the batch. Holds hashes, never tokens' text; its hashing and block size are its own. A block that nobody
//! uses keeps its contents until it is needed for something else, so a later prompt with the same beginning finds it.

use std::collections::HashMap;

use crate::mix::fold;

/// No block: end of the free list.
const NONE: u32 = u32::MAX;

/// Chained hashes of the full blocks of `tokens`: each stands for everything up to its end.
pub fn chain(salt: u64, tokens: &[u32], block_tokens: usize) -> Vec<u64> {
    let mut hash = fold(0x6b76, salt);
    tokens
        .chunks_exact(block_tokens.max(1))
        .map(|block| {
            hash = link(hash, block);
            hash
        })
        .collect()
}

/// The hash of a block that follows the one with hash `before`.
pub fn link(before: u64, block: &[u32]) -> u64 {
    block.iter().fold(before, |hash, &id| fold(hash, u64::from(id)))
}

#[derive(Debug, Clone)]
struct Block {
    hash: Option<u64>,
    users: u32,
    prev: u32,
    next: u32,
}

/// The blocks of one engine.
///
/// Invariant: a block is on the free list exactly when it has no users; `cached` maps a hash to a block with that hash.
#[derive(Debug, Clone)]
pub struct BlockPool {
    blocks: Vec<Block>,
    cached: HashMap<u64, u32>,
    /// Those without contents first, then the least recently used.
    free_head: u32,
    free_tail: u32,
    free_count: usize,
    caching: bool,
}

impl BlockPool {
    /// `block_count` blocks, all free. Without `caching` nothing is ever found again.
    pub fn new(block_count: usize, caching: bool) -> BlockPool {
        let empty = Block { hash: None, users: 0, prev: NONE, next: NONE };
        let mut pool = BlockPool {
            blocks: vec![empty; block_count.min(NONE as usize - 1)],
            cached: HashMap::new(),
            free_head: NONE,
            free_tail: NONE,
            free_count: 0,
            caching,
        };
        for idx in 0..pool.blocks.len() {
            pool.push_free(idx as u32);
        }
        pool
    }

    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks without users; some may still hold a cached prefix.
    pub fn free_count(&self) -> usize {
        self.free_count
    }

    /// Blocks with contents that can be found again.
    pub fn cached_count(&self) -> usize {
        self.cached.len()
    }

    /// How many of the leading `hashes` are held right now.
    pub fn matching(&self, hashes: &[u64]) -> usize {
        if !self.caching {
            return 0;
        }
        hashes.iter().take_while(|hash| self.cached.contains_key(hash)).count()
    }

    /// Takes the blocks of the leading `hashes` that are held, then fresh ones, `total` in all; `None` changes nothing.
    ///
    /// Shape: the blocks in order, and how many of them came from the cache (at most `hashes.len()`).
    pub fn take(&mut self, hashes: &[u64], total: usize) -> Option<(Vec<u32>, usize)> {
        let found = self.matching(&hashes[..hashes.len().min(total)]);
        let mut taken = Vec::with_capacity(total);
        for hash in &hashes[..found] {
            if let Some(&idx) = self.cached.get(hash) {
                self.hold(idx);
                taken.push(idx);
            }
        }
        if self.free_count < total - taken.len() {
            self.give_back(&taken);
            return None;
        }
        while taken.len() < total {
            taken.extend(self.fresh());
        }
        Some((taken, found))
    }

    /// Takes one fresh block.
    pub fn take_one(&mut self) -> Option<u32> {
        self.fresh()
    }

    /// Says that block `idx` holds the contents that `hash` stands for.
    pub fn fill(&mut self, idx: u32, hash: u64) {
        if self.caching && !self.cached.contains_key(&hash) {
            let block = &mut self.blocks[idx as usize];
            if let Some(old) = block.hash.replace(hash) {
                self.cached.remove(&old);
            }
            self.cached.insert(hash, idx);
        }
    }

    /// Gives blocks back. The last of a sequence is evicted before the first: beginnings are shared more often. Blocks
    /// that nobody could find again are used before any of those, the newest of them first, as vLLM does.
    pub fn give_back(&mut self, taken: &[u32]) {
        for &idx in taken.iter().rev() {
            let block = &mut self.blocks[idx as usize];
            debug_assert!(block.users > 0, "block {idx} given back twice");
            block.users = block.users.saturating_sub(1);
            if block.users == 0 {
                if block.hash.is_some() { self.push_free(idx) } else { self.push_free_first(idx) }
            }
        }
    }

    /// Forgets all cached contents that nobody uses.
    pub fn forget(&mut self) {
        let blocks = &mut self.blocks;
        self.cached.retain(|_, idx| {
            let block = &mut blocks[*idx as usize];
            if block.users == 0 {
                block.hash = None;
            }
            block.users > 0
        });
    }

    fn hold(&mut self, idx: u32) {
        if self.blocks[idx as usize].users == 0 {
            self.unlink_free(idx);
        }
        self.blocks[idx as usize].users += 1;
    }

    fn fresh(&mut self) -> Option<u32> {
        let idx = self.free_head;
        if idx == NONE {
            return None;
        }
        self.hold(idx);
        if let Some(old) = self.blocks[idx as usize].hash.take() {
            self.cached.remove(&old);
        }
        Some(idx)
    }

    fn push_free(&mut self, idx: u32) {
        let tail = self.free_tail;
        self.blocks[idx as usize].prev = tail;
        self.blocks[idx as usize].next = NONE;
        match tail {
            NONE => self.free_head = idx,
            tail => self.blocks[tail as usize].next = idx,
        }
        self.free_tail = idx;
        self.free_count += 1;
    }

    fn push_free_first(&mut self, idx: u32) {
        let head = self.free_head;
        self.blocks[idx as usize].prev = NONE;
        self.blocks[idx as usize].next = head;
        match head {
            NONE => self.free_tail = idx,
            head => self.blocks[head as usize].prev = idx,
        }
        self.free_head = idx;
        self.free_count += 1;
    }

    fn unlink_free(&mut self, idx: u32) {
        let Block { prev, next, .. } = self.blocks[idx as usize];
        match prev {
            NONE => self.free_head = next,
            prev => self.blocks[prev as usize].next = next,
        }
        match next {
            NONE => self.free_tail = prev,
            next => self.blocks[next as usize].prev = prev,
        }
        self.free_count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmgw_kit::chance::Chance;

    fn tokens(from: u32, len: usize) -> Vec<u32> {
        (from..from + len as u32).collect()
    }

    fn fill_all(pool: &mut BlockPool, taken: &[u32], hashes: &[u64]) {
        for (&idx, &hash) in taken.iter().zip(hashes) {
            pool.fill(idx, hash);
        }
    }

    #[test]
    fn a_hash_stands_for_everything_before_it() {
        let a = chain(0, &tokens(0, 64), 16);
        let mut other = tokens(0, 64);
        other[3] = 9_999;
        let b = chain(0, &other, 16);
        assert_eq!(a.len(), 4);
        assert!(a.iter().zip(&b).all(|(x, y)| x != y));
        assert_eq!(chain(0, &tokens(0, 40), 16), a[..2]);
        assert_ne!(chain(1, &tokens(0, 64), 16), a, "a salt keeps tenants apart");
    }

    #[test]
    fn a_given_back_prefix_is_found_again() {
        let mut pool = BlockPool::new(8, true);
        let hashes = chain(0, &tokens(0, 64), 16);
        let (taken, found) = pool.take(&hashes, 5).unwrap();
        assert_eq!(found, 0);
        fill_all(&mut pool, &taken, &hashes);
        pool.give_back(&taken);
        assert_eq!(pool.free_count(), 8);
        let (again, found) = pool.take(&hashes, 5).unwrap();
        assert_eq!(found, 4);
        assert_eq!(again[..4], taken[..4]);
    }

    #[test]
    fn the_least_recently_used_prefix_goes_first_and_from_its_end() {
        let mut pool = BlockPool::new(4, true);
        let (old, young) = (chain(0, &tokens(0, 32), 16), chain(0, &tokens(100, 32), 16));
        for hashes in [&old, &young] {
            let (taken, _) = pool.take(hashes, 2).unwrap();
            fill_all(&mut pool, &taken, hashes);
            pool.give_back(&taken);
        }
        pool.take_one().unwrap();
        assert_eq!((pool.matching(&old), pool.matching(&young)), (1, 2));
        pool.take_one().unwrap();
        assert_eq!((pool.matching(&old), pool.matching(&young)), (0, 2));
    }

    #[test]
    fn a_block_without_contents_is_used_before_any_with_them() {
        let mut pool = BlockPool::new(3, true);
        let hashes = chain(0, &tokens(0, 32), 16);
        let (taken, _) = pool.take(&hashes, 3).unwrap();
        fill_all(&mut pool, &taken, &hashes);
        pool.give_back(&taken);
        for _ in 0..5 {
            let last = pool.take_one().unwrap();
            assert_eq!((last, pool.matching(&hashes)), (taken[2], 2));
            pool.give_back(&[last]);
        }
    }

    #[test]
    fn a_take_that_does_not_fit_changes_nothing() {
        let mut pool = BlockPool::new(4, true);
        let hashes = chain(0, &tokens(0, 32), 16);
        let (taken, _) = pool.take(&hashes, 2).unwrap();
        fill_all(&mut pool, &taken, &hashes);
        assert!(pool.take(&hashes, 5).is_none());
        assert_eq!(pool.free_count(), 2);
        pool.give_back(&taken);
        assert_eq!(pool.free_count(), 4);
    }

    #[test]
    fn two_users_share_a_block_and_it_stays_until_both_left() {
        let mut pool = BlockPool::new(3, true);
        let hashes = chain(0, &tokens(0, 16), 16);
        let (first, _) = pool.take(&hashes, 1).unwrap();
        fill_all(&mut pool, &first, &hashes);
        let (second, found) = pool.take(&hashes, 1).unwrap();
        assert_eq!((found, pool.free_count()), (1, 2));
        pool.give_back(&first);
        assert_eq!(pool.free_count(), 2);
        pool.give_back(&second);
        assert_eq!(pool.free_count(), 3);
    }

    #[test]
    fn without_caching_nothing_is_found() {
        let mut pool = BlockPool::new(4, false);
        let hashes = chain(0, &tokens(0, 32), 16);
        let (taken, _) = pool.take(&hashes, 2).unwrap();
        fill_all(&mut pool, &taken, &hashes);
        pool.give_back(&taken);
        assert_eq!(pool.take(&hashes, 2).unwrap().1, 0);
    }

    #[test]
    fn forgetting_spares_what_is_in_use() {
        let mut pool = BlockPool::new(8, true);
        let (a, b) = (chain(0, &tokens(0, 32), 16), chain(0, &tokens(100, 32), 16));
        let (held, _) = pool.take(&a, 2).unwrap();
        fill_all(&mut pool, &held, &a);
        let (left, _) = pool.take(&b, 2).unwrap();
        fill_all(&mut pool, &left, &b);
        pool.give_back(&left);
        pool.forget();
        assert_eq!((pool.matching(&a), pool.matching(&b)), (2, 0));
    }

    #[test]
    fn any_mix_of_taking_and_giving_back_loses_no_block() {
        let mut dice = Chance::seeded(11);
        let mut pool = BlockPool::new(40, true);
        let mut open: Vec<Vec<u32>> = Vec::new();
        for _ in 0..4_000 {
            if dice.unit() < 0.55 {
                let hashes = chain(0, &tokens((dice.next_u64() % 6) as u32 * 10, 64), 8);
                let total = 1 + (dice.next_u64() % 8) as usize;
                if let Some((taken, _)) = pool.take(&hashes, total) {
                    fill_all(&mut pool, &taken, &hashes);
                    open.push(taken);
                }
            } else if !open.is_empty() {
                let taken = open.swap_remove((dice.next_u64() % open.len() as u64) as usize);
                pool.give_back(&taken);
            }
            let used: std::collections::HashSet<u32> = open.iter().flatten().copied().collect();
            assert_eq!(pool.free_count() + used.len(), 40);
        }
        for taken in open {
            pool.give_back(&taken);
        }
        assert_eq!(pool.free_count(), 40);
    }
}
