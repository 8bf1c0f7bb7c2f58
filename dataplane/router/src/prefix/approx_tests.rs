//! What the table finds and forgets.

use llmgw_kit::chance::Chance;

use super::super::fingerprint::{BLOCK_BYTES, Salt, Seed};
use super::*;

struct World {
    table: StampTable,
    fingerprint: Fingerprint,
    matches: Matches,
    now: Mono,
}

impl World {
    fn of(engines: usize) -> Self {
        Self {
            table: StampTable::new(64 << 10, Ledger::new(2, engines)),
            fingerprint: Fingerprint::new(&Seed::drawn(&mut Chance::seeded(1))),
            matches: Matches::new(engines),
            now: Mono(0),
        }
    }

    /// Fingerprints a prompt, a byte a token, and looks for it.
    fn find(&mut self, prompt: &[u8]) -> &Matches {
        self.fingerprint.begin(&Salt { model: "m", ..Salt::default() });
        self.fingerprint.text(prompt);
        self.fingerprint.finish();
        self.table.find(&self.fingerprint, self.now, &mut self.matches);
        &self.matches
    }

    fn cached(&mut self, prompt: &[u8], slot: u32) -> u32 {
        self.find(prompt);
        self.matches.cached(self.table.ledger(), BoardSlot(slot))
    }

    fn send(&mut self, prompt: &[u8], slot: u32) {
        self.find(prompt);
        let prompt_tokens = prompt.len() as u32;
        let placed = Placed { core: CoreId(0), slot: BoardSlot(slot), prompt_tokens, now: self.now };
        let prefill = self.table.record(&self.fingerprint, &self.matches, &placed);
        self.table.ledger().done(prefill);
    }
}

/// A prompt of so many blocks that shares nothing with others.
fn prompt(number: u8, blocks: usize) -> Vec<u8> {
    vec![number; blocks * BLOCK_BYTES]
}

#[test]
fn a_prompt_is_found_where_it_went_and_nowhere_else() {
    let mut world = World::of(3);
    let mut longer = prompt(1, 4);
    longer.extend(prompt(2, 2));
    world.send(&prompt(1, 4), 1);
    assert_eq!([0, 1, 2].map(|slot| world.cached(&longer, slot)), [0, 4, 0]);
    world.send(&longer, 2);
    assert_eq!([0, 1, 2].map(|slot| world.cached(&longer, slot)), [0, 4, 6]);
    assert_eq!(world.cached(&prompt(3, 4), 1), 0);
    assert_eq!(world.matches.tokens_left(world.table.ledger(), BoardSlot(1), 2048), 2048);
    world.find(&longer);
    assert_eq!(world.matches.tokens_left(world.table.ledger(), BoardSlot(1), 3072), 1024);
    assert_eq!(world.matches.seen_by().len(), 2);
}

#[test]
fn a_prompt_counts_as_cached_until_its_engine_got_more_than_it_holds() {
    let mut world = World::of(1);
    world.table.ledger().set_capacity(BoardSlot(0), Some(10 * BLOCK_BYTES as u64));
    world.send(&prompt(1, 2), 0);
    for (number, cached) in [(2, 2), (3, 2), (4, 2), (5, 2), (6, 0)] {
        world.send(&prompt(number, 2), 0);
        assert_eq!(world.cached(&prompt(1, 2), 0), cached, "after {number}");
        assert_eq!(world.matches.known(), 2);
    }
    // What is there already takes no room.
    for _ in 0..50 {
        world.send(&prompt(6, 2), 0);
    }
    assert_eq!(world.cached(&prompt(5, 2), 0), 2);
}

#[test]
fn everything_of_an_engine_is_forgotten_at_once_and_learned_again() {
    let mut world = World::of(2);
    for number in 0..50 {
        world.send(&prompt(number, 3), u32::from(number) % 2);
    }
    world.table.ledger().forget(BoardSlot(1));
    let sum = |world: &mut World, slot| (0..50).map(|number| world.cached(&prompt(number, 3), slot)).sum::<u32>();
    assert_eq!((sum(&mut world, 0), sum(&mut world, 1)), (75, 0));
    world.send(&prompt(7, 3), 1);
    assert_eq!(world.cached(&prompt(7, 3), 1), 3);
}

#[test]
fn a_head_that_all_engines_have_draws_to_none_of_them_but_not_to_one_that_forgot() {
    let engines = 40;
    let mut world = World::of(engines as usize);
    (0..engines).for_each(|slot| world.table.ledger().set_capacity(BoardSlot(slot), Some(64 * BLOCK_BYTES as u64)));
    let head = prompt(9, 4);
    (0..engines).for_each(|slot| world.send(&head, slot));
    assert!((0..engines).all(|slot| world.cached(&head, slot) == 4));
    world.table.ledger().forget(BoardSlot(5));
    assert_eq!((world.cached(&head, 5), world.cached(&head, 6)), (0, 4));
}

#[test]
fn a_table_made_larger_keeps_what_it_knows_within_its_bound() {
    let mut world = World::of(2);
    let small = world.table.slot_count();
    assert!(small <= (64 << 10) / 64);
    for number in 0..50 {
        world.send(&prompt(number, 3), u32::from(number) % 2);
    }
    for (want, most) in [(10, small), (2 * small, 9 * small + 64), (usize::MAX, 64 << 10), (usize::MAX, 64 << 10)] {
        world.table.want(want);
        assert!(world.table.slot_count() <= most, "{want}: {}", world.table.slot_count());
        assert!((0..50).all(|number| world.cached(&prompt(number, 3), u32::from(number) % 2) == 3), "{want}");
    }
    assert_eq!(size_of::<Bucket<AtomicU64>>(), SLOT_BYTES * WAYS);
}

#[test]
fn memory_stays_and_the_newest_are_known_when_far_more_comes_than_there_is_room_for() {
    let mut world = World::of(2);
    world.table.ledger().set_capacity(BoardSlot(0), Some(u64::MAX));
    world.table.want(usize::MAX);
    let size = world.table.slot_count();
    let unique = |number: u32| [prompt(1, 1), number.to_le_bytes().repeat(BLOCK_BYTES)].concat();
    for number in 0..100_000 {
        world.now.0 += TICK_NANOS / 500;
        world.send(&unique(number), 0);
    }
    assert_eq!(world.table.slot_count(), size);
    let known = (99_000..100_000).filter(|&number| world.cached(&unique(number), 0) >= 4).count();
    assert!(known > 990, "{known} of the last 1000");
}

#[test]
fn cores_that_write_at_once_lose_little_and_invent_nothing() {
    const THREADS: u32 = 4;
    let table = StampTable::new(128 << 10, Ledger::new(THREADS as usize, 8));
    table.want(usize::MAX);
    let unique = |thread: u32, number: u32| (thread << 16 | number).to_le_bytes().repeat(BLOCK_BYTES);
    let fingerprint_of = |text: &[u8]| {
        let mut fingerprint = Fingerprint::new(&Seed::drawn(&mut Chance::seeded(1)));
        fingerprint.begin(&Salt::default());
        fingerprint.text(text);
        fingerprint.finish();
        fingerprint
    };
    // Each thread sends prompts of its own to an engine of its own.
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                let mut matches = Matches::new(8);
                for number in 0..3000 {
                    let fingerprint = fingerprint_of(&unique(thread, number));
                    table.find(&fingerprint, Mono(0), &mut matches);
                    let now = Mono(u64::from(number) * TICK_NANOS / 100);
                    let placed = Placed { core: CoreId(thread), slot: BoardSlot(thread), prompt_tokens: 4, now };
                    table.ledger().done(table.record(&fingerprint, &matches, &placed));
                }
            });
        }
    });
    let mut matches = Matches::new(8);
    let (mut found, mut invented) = (0, 0);
    for (thread, number) in (0..THREADS).flat_map(|thread| (0..3000).map(move |number| (thread, number))) {
        table.find(&fingerprint_of(&unique(thread, number)), Mono(0), &mut matches);
        for slot in (0..8).map(BoardSlot) {
            let cached = matches.cached(table.ledger(), slot);
            let is_own = slot.0 == thread;
            found += u32::from(is_own && cached == 4);
            invented += u32::from(!is_own && cached > 0);
        }
    }
    assert_eq!(invented, 0);
    assert!(found > THREADS * 2800, "{found}");
}

#[test]
fn a_prompt_that_comes_again_and_again_stays_known_while_others_pass_through_its_engine() {
    let mut world = World::of(1);
    let blocks = 40;
    world.table.ledger().set_capacity(BoardSlot(0), Some(blocks * BLOCK_BYTES as u64));
    let hot = prompt(255, 3);
    for number in 0..200 {
        world.now = Mono(number * 100_000_000);
        world.send(&hot, 0);
        assert_eq!(world.cached(&hot, 0), 3, "after {number} others");
        world.send(&prompt(number as u8, 1), 0);
    }
    // Left alone, it goes as any other.
    (200..250).for_each(|number| world.send(&prompt(number as u8, 1), 0));
    assert_eq!(world.cached(&hot, 0), 0);
}
