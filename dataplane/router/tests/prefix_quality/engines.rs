//! Engines as far as their prefix caches, their prefill queues and the answers they write go: exact, so that estimates
//! can be held against them.

use std::collections::VecDeque;

use llmgw_load::quality::Lru;
use llmgw_router::prefix::Ledger;
use llmgw_router::prefix::ledger::Prefill;

/// Tokens an engine prefills in a second.
pub(crate) const PREFILL_RATE: f64 = 8000.0;
/// How long one token of an answer takes.
const TOKEN_SECONDS: f64 = 0.02;

/// A request that is to be prefilled.
struct Queued {
    prefill: Option<Prefill>,
    tokens_left: f64,
    answer: Answer,
}

/// A request that is answered.
struct Answer {
    tokens: u32,
    /// When it ends.
    end: f64,
    /// What was to be prefilled, as estimated, and what was.
    given: Option<u32>,
    found: u64,
}

/// One engine: its cache, what it has to prefill, one request after another, and the answers it writes beside.
pub(crate) struct Engine {
    pub(crate) cache: Lru,
    queue: VecDeque<Queued>,
    answers: Vec<Answer>,
    now: f64,
    /// Tokens prefilled in all.
    pub(crate) work: f64,
}

impl Engine {
    pub(crate) fn new(blocks: usize) -> Self {
        Self { cache: Lru::new(blocks), queue: VecDeque::new(), answers: Vec::new(), now: 0.0, work: 0.0 }
    }

    /// Requests that wait, are prefilled or answered.
    pub(crate) fn requests(&self) -> usize {
        self.queue.len() + self.answers.len()
    }

    /// Tokens that wait.
    pub(crate) fn waiting(&self) -> f64 {
        self.queue.iter().map(|queued| queued.tokens_left).sum()
    }

    pub(crate) fn take(&mut self, placed: Option<(Prefill, u32)>, tokens: f64, output_tokens: u32) {
        let (prefill, given) = placed.unzip();
        let answer = Answer { tokens: output_tokens, end: 0.0, given, found: tokens as u64 };
        self.queue.push_back(Queued { prefill, tokens_left: tokens, answer });
        self.work += tokens;
    }

    /// Goes on for so many seconds. Whoever is through with its prefill has its first token; whoever's answer ends
    /// tells what was to be prefilled, as estimated, and what was.
    pub(crate) fn pass(&mut self, ledger: &Ledger, seconds: f64, mut tell: impl FnMut(u32, u64)) {
        let (mut at, end) = (self.now, self.now + seconds);
        while let Some(first) = self.queue.front_mut() {
            let done = at + first.tokens_left / PREFILL_RATE;
            if done > end {
                first.tokens_left -= (end - at) * PREFILL_RATE;
                break;
            }
            at = done;
            if let Some(prefill) = first.prefill.take() {
                ledger.done(prefill);
            }
            if let Some(Queued { answer, .. }) = self.queue.pop_front() {
                self.answers.push(Answer { end: at + f64::from(answer.tokens) * TOKEN_SECONDS, ..answer });
            }
        }
        self.now = end;
        for answer in self.answers.extract_if(.., |answer| answer.end <= end) {
            answer.given.into_iter().for_each(|given| tell(given, answer.found));
        }
    }
}
