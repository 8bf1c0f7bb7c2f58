//! Prompts, and a table that knows some of them: for the parts that look for where a prompt is cached.

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_openai::prompt::Piece;
use llmgw_openai::scan::{Scan, scan};
use llmgw_router::prefix::approx::Placed;
use llmgw_router::prefix::{Fingerprint, Ledger, Matches, Salt, Seed, StampTable};
use llmgw_types::{BoardSlot, CoreId};

use crate::samples;

/// Engines of the table.
const ENGINES: u32 = 8;
/// What each holds, tokens: more than any part sends.
const CAPACITY: u64 = 1 << 34;
/// When all parts happen.
const NOW: Mono = Mono(1_000_000_000);
/// As configured unless somebody says otherwise.
const SLOTS: usize = 2_000_000;

/// What one core works with.
pub(crate) struct Prompts {
    body: Vec<u8>,
    scan: Scan,
    fingerprint: Fingerprint,
    matches: Matches,
    salt: u64,
}

/// A table at its full size.
pub(crate) fn table() -> StampTable {
    let ledger = Ledger::new(1, ENGINES as usize);
    (0..ENGINES).for_each(|slot| ledger.set_capacity(BoardSlot(slot), Some(CAPACITY)));
    let table = StampTable::new(SLOTS, ledger);
    table.want(SLOTS);
    table
}

impl Prompts {
    /// Chat prompts of about `bytes` bytes.
    ///
    /// # Panics
    /// When a sample of this program cannot be read.
    #[expect(clippy::expect_used, reason = "the body is a constant of this program")]
    pub(crate) fn of(bytes: usize) -> Self {
        let body = samples::chat_body(bytes);
        let scan = scan(&body).expect("a body that can be read");
        let fingerprint = Fingerprint::new(&Seed::drawn(&mut Chance::seeded(7)));
        Self { body, scan, fingerprint, matches: Matches::new(ENGINES as usize), salt: 0 }
    }

    /// Fingerprints the prompt.
    pub(crate) fn hash(&mut self) -> &Fingerprint {
        let cache_salt = self.salt.to_le_bytes();
        self.fingerprint.begin(&Salt { model: "m0", lora: "", cache_salt: Some(&cache_salt) });
        self.scan.prompt_pieces(&self.body, |piece| match piece {
            Piece::Text(text) => self.fingerprint.text(text),
            Piece::Media(data) => self.fingerprint.media(data),
            Piece::NextPrompt => self.fingerprint.next_prompt(),
        });
        self.fingerprint.finish();
        &self.fingerprint
    }

    /// The prompt's fingerprint, for whoever sends it elsewhere.
    pub(crate) fn into_fingerprint(mut self) -> Fingerprint {
        self.hash();
        self.fingerprint
    }

    /// Makes the next prompt another one.
    pub(crate) fn change(&mut self) {
        self.salt += 1;
    }

    /// Looks for the prompt that was fingerprinted last. Answer: the blocks that the first engine has.
    pub(crate) fn find(&mut self, table: &StampTable) -> u32 {
        find(table, &self.fingerprint, &mut self.matches)
    }

    /// Remembers that the first engine got it.
    pub(crate) fn record(&mut self, table: &StampTable) {
        record(table, &self.fingerprint, &self.matches);
    }
}

/// Looks for a prompt. Answer: the blocks that the first engine has.
pub(crate) fn find(table: &StampTable, fingerprint: &Fingerprint, matches: &mut Matches) -> u32 {
    table.find(fingerprint, NOW, matches);
    matches.cached(table.ledger(), BoardSlot(0))
}

/// Remembers that the first engine got a prompt.
pub(crate) fn record(table: &StampTable, fingerprint: &Fingerprint, matches: &Matches) {
    let prompt_tokens = (fingerprint.bytes() / 4) as u32;
    let placed = Placed { core: CoreId(0), slot: BoardSlot(0), prompt_tokens, now: NOW };
    table.ledger().done(table.record(fingerprint, matches, &placed));
}

/// A scratch for matches among the table's engines.
pub(crate) fn matches() -> Matches {
    Matches::new(ENGINES as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_recorded_is_found_whole_and_another_is_not() {
        let (table, mut prompts) = (table(), Prompts::of(16 << 10));
        let blocks = prompts.hash().block_count();
        assert!((28..=40).contains(&blocks), "{blocks}");
        assert_eq!(prompts.find(&table), 0);
        prompts.record(&table);
        assert_eq!(prompts.find(&table), blocks);
        prompts.change();
        prompts.hash();
        assert_eq!(prompts.find(&table), 0);
    }
}
