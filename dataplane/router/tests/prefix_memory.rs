//! The table of where prompts are cached under more prompts than it can hold, and under several cores at once.

use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::prefix::approx::{Placed, SLOT_BYTES};
use llmgw_router::prefix::{Fingerprint, Ledger, Matches, Salt, Seed, StampTable};
use llmgw_types::{BoardSlot, CoreId};

const ENGINES: u32 = 8;
/// Of one prompt.
const BLOCKS: u32 = 32;

/// Memory of this process that is in RAM.
#[expect(clippy::disallowed_methods, reason = "a test runs on no core")]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// One core's requests: prompts of 16 KB that nobody had before, each looked for, placed and looked for again.
struct Core {
    id: CoreId,
    table: Arc<StampTable>,
    fingerprint: Fingerprint,
    matches: Matches,
    chance: Chance,
    body: Vec<u8>,
}

impl Core {
    fn new(id: u32, table: &Arc<StampTable>, seed: &Seed) -> Self {
        Self {
            id: CoreId(id),
            table: table.clone(),
            fingerprint: Fingerprint::new(seed),
            matches: Matches::new(ENGINES as usize),
            chance: Chance::seeded(u64::from(id) + 1),
            body: vec![b'x'; 16 << 10],
        }
    }

    /// Answer: the blocks that are found again right after.
    fn send_new(&mut self) -> u32 {
        let unique = self.chance.next_u64().to_le_bytes();
        self.body[..8].copy_from_slice(&unique);
        self.fingerprint.begin(&Salt { model: "m", ..Salt::default() });
        self.fingerprint.text(&self.body);
        self.fingerprint.finish();
        self.table.find(&self.fingerprint, Mono(1), &mut self.matches);
        let slot = BoardSlot(self.chance.below(ENGINES));
        let placed = Placed { core: self.id, slot, prompt_tokens: 4096, now: Mono(1) };
        let prefill = self.table.record(&self.fingerprint, &self.matches, &placed);
        self.table.ledger().done(prefill);
        self.table.find(&self.fingerprint, Mono(1), &mut self.matches);
        let cached = self.matches.cached(self.table.ledger(), slot);
        assert_eq!(self.matches.blocks(), BLOCKS);
        cached
    }
}

/// Trials R2 and R12. One test, since it counts the memory of the process.
#[test]
fn two_hundred_thousand_new_prompts_from_four_cores_take_no_more_memory_than_the_table_may_have() {
    const SLOTS: usize = 400_000;
    const PROMPTS: usize = 200_000;
    let before = resident_bytes();
    let table = Arc::new(StampTable::new(SLOTS, Ledger::new(4, ENGINES as usize)));
    let seed = Seed::drawn(&mut Chance::seeded(7));
    (0..ENGINES).for_each(|slot| table.ledger().set_capacity(BoardSlot(slot), Some(10_000_000)));
    table.want(usize::MAX);
    assert!(table.slot_count() <= SLOTS);
    let found: u64 = std::thread::scope(|scope| {
        let cores: Vec<_> = (0..4)
            .map(|id| {
                let (table, seed) = (&table, &seed);
                scope.spawn(move || {
                    let mut core = Core::new(id, table, seed);
                    (0..PROMPTS / 4).map(|_| u64::from(core.send_new())).sum::<u64>()
                })
            })
            .collect();
        cores.into_iter().map(|core| core.join().expect("no panic")).sum()
    });
    // What was written last is there, but for a core that had to stand still while the others filled the table.
    let sent = PROMPTS as u64 * u64::from(BLOCKS);
    assert!(found >= sent * 99 / 100, "{found} of {sent} blocks");
    // 6.4 million blocks went into it.
    let grown = resident_bytes().saturating_sub(before);
    let most = SLOTS * SLOT_BYTES;
    assert!(grown <= most + most / 10, "{grown} bytes, {most} allowed");
    assert!((0..ENGINES).all(|slot| table.ledger().queued(BoardSlot(slot)) == 0));
    // A table that full still finds what is new.
    assert_eq!(Core::new(0, &table, &seed).send_new(), BLOCKS);
}
