//! What is asked: calls with their times and the blocks of their prompts, and what one cache would hit of them. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::prompt;
use crate::trace;

/// Tokens of a block, in the traces and in the engines.
pub const BLOCK_TOKENS: usize = 512;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Since the first.
    pub at: Duration,
    /// Equal ids are equal text.
    pub blocks: Vec<u64>,
    pub output_tokens: u64,
    /// Whose turn it is.
    pub session: u64,
}

/// Calls in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub name: String,
    pub calls: Vec<Call>,
    /// All that there is of it, not its beginning alone.
    pub is_whole: bool,
}

impl Workload {
    /// Of a trace in Mooncake's form. It names no sessions: the calls that begin with the same two blocks stand for
    /// one, since all chats may have the first in common.
    ///
    /// Errors: what is wrong with which line, or that the trace has no blocks.
    pub fn of_trace(name: &str, text: &str) -> Result<Self, String> {
        let entries = trace::parse(text)?;
        let call = |entry: trace::Entry| {
            let session = entry.blocks.get(1).or(entry.blocks.first()).copied();
            let session = session.ok_or_else(|| "the trace has no blocks".to_owned())?;
            Ok(Call { at: entry.at, blocks: entry.blocks, output_tokens: entry.output_tokens, session })
        };
        let calls = entries.into_iter().map(call).collect::<Result<_, String>>()?;
        Ok(Self { name: name.to_owned(), calls, is_whole: true })
    }

    /// Its beginning.
    #[must_use]
    pub fn first(mut self, time: Duration) -> Self {
        let count = self.calls.partition_point(|call| call.at < time);
        self.is_whole &= count == self.calls.len();
        self.calls.truncate(count);
        self
    }

    /// Blocks of all prompts.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.calls.iter().map(|call| call.blocks.len() as u64).sum()
    }

    /// Of all blocks, the percentage that one cache of so many blocks, asked in order, has: nothing that routes to
    /// several caches of that size together can be expected to do better.
    #[must_use]
    pub fn pooled_hit_percent(&self, blocks: usize) -> f64 {
        let mut cache = Lru::new(blocks);
        let hits: usize = self.calls.iter().map(|call| cache.run(&call.blocks)).sum();
        100.0 * hits as f64 / self.block_count().max(1) as f64
    }
}

impl Call {
    /// The prompt: each block a text of exactly [`BLOCK_TOKENS`] tokens, the last one too, so that engines count blocks
    /// as the trace does.
    #[must_use]
    pub fn prompt(&self, bytes_per_token: usize) -> String {
        let mut text = String::with_capacity(self.blocks.len() * BLOCK_TOKENS * bytes_per_token);
        for id in &self.blocks {
            prompt::tokens(BLOCK_TOKENS, bytes_per_token, *id, &mut text);
        }
        text
    }
}

/// A cache of blocks that drops what was used least lately.
#[derive(Debug)]
pub struct Lru {
    capacity: usize,
    newest: u64,
    last_use: HashMap<u64, u64>,
    /// Uses in their order; those that are not a block's last are passed over.
    order: VecDeque<(u64, u64)>,
}

impl Lru {
    /// An empty cache of so many blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, newest: 0, last_use: HashMap::new(), order: VecDeque::new() }
    }

    /// Runs a prompt. Answer: the leading blocks that were there.
    pub fn run(&mut self, blocks: &[u64]) -> usize {
        let hits = blocks.iter().take_while(|id| self.last_use.contains_key(id)).count();
        for &id in blocks {
            self.newest += 1;
            self.last_use.insert(id, self.newest);
            self.order.push_back((id, self.newest));
            while self.last_use.len() > self.capacity {
                let Some((oldest, used)) = self.order.pop_front() else { break };
                if self.last_use.get(&oldest) == Some(&used) {
                    self.last_use.remove(&oldest);
                }
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lists: &[&[u64]]) -> Workload {
        let calls = lists.iter().zip(0..);
        let call = |(blocks, at): (&&[u64], u64)| Call {
            at: Duration::from_secs(at),
            blocks: blocks.to_vec(),
            output_tokens: 1,
            session: 0,
        };
        Workload { name: "w".to_owned(), calls: calls.map(call).collect(), is_whole: true }
    }

    #[test]
    fn the_excerpt_has_sessions_and_begins_alike() {
        let text = include_str!("../../../data/mooncake_conversation.jsonl");
        let workload = Workload::of_trace("excerpt", text).expect("an excerpt");
        assert!(workload.is_whole && workload.calls.iter().all(|call| call.blocks[0] == 0 && call.session > 0));
        let cut = workload.clone().first(Duration::from_secs(60));
        assert!(!cut.is_whole && cut.calls.len() < workload.calls.len() && cut.block_count() > 1000);
        assert!(Workload::of_trace("none", "2023-11-16 18:15:46.68,374,44").is_err());
    }

    #[test]
    fn a_cache_hits_the_leading_blocks_that_it_still_has() {
        let workload = of(&[&[1, 2, 3], &[1, 2, 4], &[5, 6, 7, 8], &[1, 2]]);
        for (blocks, hits) in [(usize::MAX, 4), (4, 2), (1, 0)] {
            assert_eq!(workload.pooled_hit_percent(blocks), 100.0 * f64::from(hits) / 12.0, "{blocks} blocks");
        }
    }

    #[test]
    fn equal_beginnings_are_equal_bytes_and_every_block_has_its_size() {
        let workload = of(&[&[1, 2, 3], &[1, 2, 4, 5]]);
        let texts: Vec<String> = workload.calls.iter().map(|call| call.prompt(4)).collect();
        assert_eq!((texts[0].len(), texts[1].len()), (3 * 2048, 4 * 2048));
        assert_eq!(texts[0][..4096], texts[1][..4096]);
        assert_ne!(texts[0][4096..4136], texts[1][4096..4136]);
    }
}
