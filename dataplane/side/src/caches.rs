//! What engines' caches hold, for the table of where prompts are cached: their capacities, whose caches are empty, and
//! how large the table should be for all of them.
//!
//! Owner: the publisher, which looks a few dozen times a second and before every table. A cache that was emptied
//! without a restart of its engine is not noticed: its prompts are looked for there until newer ones have taken their
//! room.

use std::collections::HashMap;
use std::sync::Arc;

use llmgw_kit::clock::Mono;
use llmgw_router::board::Board;
use llmgw_router::endpoint::MetricsState;
use llmgw_router::prefix::StampTable;
use llmgw_types::{BoardSlot, RouteTable};

/// Tokens in a block of the table, nearly: bytes of a block over those of a token. Only the table's size hangs on it.
const BLOCK_TOKENS: u64 = 128;
/// Slots for each block that engines hold.
const SLOTS_PER_BLOCK: u64 = 2;

/// See the module.
pub(crate) struct Caches {
    board: Arc<Board>,
    table: Arc<StampTable>,
    known: HashMap<BoardSlot, Engine>,
    /// Whether any pool looks for prompts.
    is_used: bool,
}

/// An engine as it was looked at last.
#[derive(Clone, Copy, PartialEq)]
struct Engine {
    tenure: u32,
    ready_since: Option<Mono>,
}

impl Caches {
    /// No engine yet.
    pub(crate) fn new(board: Arc<Board>, table: Arc<StampTable>) -> Self {
        Self { board, table, known: HashMap::new(), is_used: false }
    }

    /// Another table is about to be put before the cores: nothing is known of the caches of newcomers.
    pub(crate) fn follow(&mut self, table: &RouteTable) {
        let known = std::mem::take(&mut self.known);
        for slot in table.endpoints.iter().map(|endpoint| BoardSlot(endpoint.slot)) {
            let before = known.get(&slot).copied();
            let engine = before.filter(|engine| engine.tenure == self.board.endpoint(slot).tenure());
            if engine.is_none() {
                self.table.ledger().forget(slot);
            }
            self.known.insert(slot, engine.unwrap_or_else(|| self.engine(slot)));
        }
        self.is_used = table.pools.iter().any(|pool| pool.prefix.is_some());
        self.look();
    }

    /// Looks at the engines again. Cost: some loads an engine; new memory where engines hold more than before.
    pub(crate) fn look(&mut self) {
        let ledger = self.table.ledger();
        let mut tokens: u64 = 0;
        for (&slot, known) in &mut self.known {
            let cells = self.board.endpoint(slot);
            let ready_since = cells.ready_since();
            // Of an engine with metrics whoever reads them sees a restart, and no false one.
            if ready_since != known.ready_since && cells.metrics() == MetricsState::Unread {
                ledger.forget(slot);
            }
            known.ready_since = ready_since;
            ledger.set_capacity(slot, cells.kv_capacity_tokens().or_else(|| ledger.learned(slot, known.tenure)));
            tokens = tokens.saturating_add(ledger.capacity(slot));
        }
        if self.is_used {
            let slots = SLOTS_PER_BLOCK * (tokens / BLOCK_TOKENS);
            self.table.want(usize::try_from(slots).unwrap_or(usize::MAX));
        }
    }

    fn engine(&self, slot: BoardSlot) -> Engine {
        let cells = self.board.endpoint(slot);
        Engine { tenure: cells.tenure(), ready_since: cells.ready_since() }
    }
}

#[cfg(test)]
mod tests {
    use llmgw_config::from_text;
    use llmgw_router::prefix::capacity::Evidence;
    use llmgw_router::prefix::ledger::CAPACITY_UNKNOWN;
    use llmgw_router::prefix::{Fingerprint, Ledger, Matches, Salt, Seed, approx::Placed};
    use llmgw_types::CoreId;

    use super::*;
    use crate::table::{Addrs, Book, table};

    struct World {
        board: Arc<Board>,
        prefixes: Arc<StampTable>,
        book: Book,
        caches: Caches,
        fingerprint: Fingerprint,
    }

    impl World {
        fn new() -> Self {
            let board = Arc::new(Board::new(1, 4));
            let prefixes = Arc::new(StampTable::new(1 << 16, Ledger::new(1, 4)));
            let mut fingerprint = Fingerprint::new(&Seed::drawn(&mut llmgw_kit::chance::Chance::seeded(1)));
            fingerprint.begin(&Salt { model: "m", ..Salt::default() });
            fingerprint.text(&[b'x'; 4096]);
            fingerprint.finish();
            let caches = Caches::new(board.clone(), prefixes.clone());
            Self { book: Book::new(&board, 7), board, prefixes, caches, fingerprint }
        }

        fn publish(&mut self, text: &str) {
            let config = from_text("server.yaml", text, []).expect("a configuration");
            let table = table(&config, &Addrs::default(), &mut self.book, &self.board).expect("room");
            self.caches.follow(&table);
            self.board.set_generation(CoreId(0), table.generation);
        }

        fn slot(&self, name: &str) -> BoardSlot {
            self.book.slot(name).expect("it is in the table")
        }

        /// Blocks of the prompt that the engine is taken to have.
        fn cached(&self, slot: BoardSlot) -> u32 {
            let mut matches = Matches::new(4);
            self.prefixes.find(&self.fingerprint, Mono(1), &mut matches);
            matches.cached(self.prefixes.ledger(), slot)
        }

        fn send(&self, slot: BoardSlot) {
            let mut matches = Matches::new(4);
            self.prefixes.find(&self.fingerprint, Mono(1), &mut matches);
            let placed = Placed { core: CoreId(0), slot, prompt_tokens: 1024, now: Mono(1) };
            self.prefixes.ledger().done(self.prefixes.record(&self.fingerprint, &matches, &placed));
        }
    }

    fn endpoints(rows: &[(&str, &str)]) -> String {
        let row = |(name, host): &(&str, &str)| format!("  - {{ name: {name}, url: 'http://{host}:1', model: m }}\n");
        format!("endpoints:\n{}", rows.iter().map(row).collect::<String>())
    }

    /// Trial R5.
    #[test]
    fn an_engine_that_comes_in_anothers_place_has_none_of_its_prompts() {
        let mut world = World::new();
        world.publish(&endpoints(&[("a", "h")]));
        let a = world.slot("a");
        world.send(a);
        assert_eq!(world.cached(a), 8);
        world.publish(&endpoints(&[("a", "h")]));
        assert_eq!(world.cached(a), 8, "nothing changed");
        // Another name at the same address, then the first name again.
        for name in ["b", "a"] {
            world.publish(&endpoints(&[(name, "h")]));
            world.publish(&endpoints(&[(name, "h"), ("c", "i"), ("d", "j")]));
            for name in [name, "c", "d"] {
                assert_eq!(world.cached(world.slot(name)), 0, "{name}");
            }
            world.send(world.slot(name));
            world.publish(&endpoints(&[(name, "h")]));
        }
        // All slots were used by now.
        world.publish(&endpoints(&[("e", "h"), ("f", "i")]));
        assert_eq!((world.cached(world.slot("e")), world.cached(world.slot("f"))), (0, 0));
    }

    #[test]
    fn what_an_engine_holds_is_its_own_word_else_what_was_learned() {
        let mut world = World::new();
        world.publish(&endpoints(&[("a", "h"), ("b", "i")]));
        let (a, b) = (world.slot("a"), world.slot("b"));
        let ledger = |world: &World| world.prefixes.ledger().capacity(a);
        assert_eq!(ledger(&world), CAPACITY_UNKNOWN);
        let gone = Evidence { age: 1000, known_tokens: 500, cached_tokens: 0 };
        let tenure = world.board.endpoint(a).tenure();
        (0..50).for_each(|_| world.prefixes.ledger().learn(CoreId(0), a, tenure, &gone));
        world.caches.look();
        assert!(ledger(&world) < CAPACITY_UNKNOWN / 50, "{}", ledger(&world));
        world.board.endpoint(a).set_kv_capacity_tokens(70_000);
        world.caches.look();
        assert_eq!((ledger(&world), world.prefixes.ledger().capacity(b)), (70_000, CAPACITY_UNKNOWN));
    }

    #[test]
    fn the_table_grows_with_what_engines_hold_and_only_where_prompts_are_looked_for() {
        let mut world = World::new();
        let first = world.prefixes.slot_count();
        let off = "router: { prefix: { approx_tree: { enabled: false } } }\n";
        let rows = endpoints(&[("a", "h")]);
        world.publish(&format!("{off}{rows}"));
        world.board.endpoint(world.slot("a")).set_kv_capacity_tokens(4_000_000);
        world.caches.look();
        assert_eq!(world.prefixes.slot_count(), first);
        world.publish(&rows);
        assert!(world.prefixes.slot_count() > first, "{} slots", world.prefixes.slot_count());
    }

    #[test]
    fn an_engine_without_metrics_that_comes_back_has_forgotten_its_prompts() {
        let mut world = World::new();
        world.publish(&endpoints(&[("a", "h"), ("b", "i")]));
        let (a, b) = (world.slot("a"), world.slot("b"));
        world.board.endpoint(b).set_metrics(MetricsState::Fresh);
        for slot in [a, b] {
            world.send(slot);
            world.board.endpoint(slot).set_ready_since(Mono(9));
        }
        world.caches.look();
        assert_eq!((world.cached(a), world.cached(b)), (0, 8));
        world.send(a);
        world.caches.look();
        assert_eq!(world.cached(a), 8);
    }
}
