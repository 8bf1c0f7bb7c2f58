//! Engines as far as their prefix caches and prefill queues go: exact, so that estimates can be held against them.

use std::collections::{HashMap, VecDeque};

use llmgw_router::prefix::Ledger;
use llmgw_router::prefix::ledger::Prefill;

/// A cache of blocks that drops what was used least lately.
pub(crate) struct Lru {
    capacity: usize,
    newest: u64,
    last_use: HashMap<u64, u64>,
    /// Uses in their order; those that are not a block's last are passed over.
    order: VecDeque<(u64, u64)>,
}

impl Lru {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, newest: 0, last_use: HashMap::new(), order: VecDeque::new() }
    }

    /// Runs a prompt. Answer: the leading blocks that were there.
    pub(crate) fn run(&mut self, ids: &[u64]) -> usize {
        let hits = ids.iter().take_while(|id| self.last_use.contains_key(id)).count();
        for &id in ids {
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

/// One engine: its cache, and what it has to prefill, one request after another.
pub(crate) struct Engine {
    pub(crate) cache: Lru,
    queue: VecDeque<(Option<Prefill>, f64)>,
    /// Tokens prefilled in all.
    pub(crate) work: f64,
}

impl Engine {
    pub(crate) fn new(blocks: usize) -> Self {
        Self { cache: Lru::new(blocks), queue: VecDeque::new(), work: 0.0 }
    }

    /// Requests that wait or are prefilled.
    pub(crate) fn requests(&self) -> usize {
        self.queue.len()
    }

    /// Tokens that wait.
    pub(crate) fn waiting(&self) -> f64 {
        self.queue.iter().map(|(_, tokens)| tokens).sum()
    }

    pub(crate) fn take(&mut self, prefill: Option<Prefill>, tokens: f64) {
        self.queue.push_back((prefill, tokens));
        self.work += tokens;
    }

    /// Prefills so many tokens; whoever is through has its first token.
    pub(crate) fn drain(&mut self, ledger: &Ledger, mut tokens: f64) {
        while let Some((prefill, left)) = self.queue.front_mut() {
            if *left > tokens {
                *left -= tokens;
                return;
            }
            tokens -= *left;
            if let Some(prefill) = prefill.take() {
                ledger.done(prefill);
            }
            self.queue.pop_front();
        }
    }
}
