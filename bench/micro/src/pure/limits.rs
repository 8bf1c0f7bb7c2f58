//! What a tenant's limits cost a request: from a lease in hand, and by the owner's word.

use std::collections::VecDeque;
use std::hint::black_box;

use llmgw_router::limiter::message::{Reserve, Want};
use llmgw_router::limiter::{Answer, Home, Now, Owner, Reservation, Reserved, ToHome, ToOwner, Truth};
use llmgw_router::quota::chain::BudgetTerms;
use llmgw_router::quota::table::ChainRow;
use llmgw_router::quota::{Amounts, Calendar, Level, LimitTable, Measures, Scope};
use llmgw_types::CoreId;

/// The chain that asks.
const CHAIN: u32 = 0;
/// Keys of an organisation of which each has a slice in hand.
const CROWD: u32 = 5_000;
const NOW: Now = Now { tick: 1_000, second: 1_000 };

/// One home core and one owner, with the messages between them.
struct Pair {
    table: LimitTable,
    home: Home,
    owner: Owner,
    up: VecDeque<ToOwner>,
    down: VecDeque<ToHome>,
}

/// A key, its project, its team and its organisation, each held to the same, on so many cores.
fn pair(cores: u32, limits: [Option<i64>; 4]) -> Pair {
    let budget = BudgetTerms { calendar: 0, epoch: 0, spent: 0, spent_at: NOW.second };
    let level = |scope| Some(Level { scope, of_model: false, limits, budget: Some(budget) });
    let levels = vec![level(Scope::Key), level(Scope::Project), level(Scope::Team), level(Scope::Org)];
    let chain = ChainRow { levels: (0..4).collect(), org: 0, version: 1, counts_since: 1 };
    let table = LimitTable::new(1, levels, vec![Some(chain)], vec![Calendar { edges: vec![0] }]);
    let (home, owner) = (Home::new(CoreId(0)), Owner::new(cores));
    Pair { table, home, owner, up: VecDeque::new(), down: VecDeque::new() }
}

/// The keys of one organisation, each held to limits of its own and all to those of the organisation; each but the
/// first, whose limit is used up, has a slice in hand.
fn crowd() -> Pair {
    let most = Some(i64::from(i32::MAX));
    let level =
        |scope, requests| Some(Level { scope, of_model: false, limits: [requests, None, None, None], budget: None });
    let mut levels = vec![level(Scope::Org, most), level(Scope::Key, Some(1))];
    levels.resize(CROWD as usize + 1, level(Scope::Key, most));
    let chain =
        |key: u32| Some(ChainRow { levels: [0, key + 1].into_iter().collect(), org: 0, version: 1, counts_since: 1 });
    let table = LimitTable::new(1, levels, (0..CROWD).map(chain).collect(), vec![Calendar { edges: vec![0] }]);
    let (home, owner) = (Home::new(CoreId(0)), Owner::new(1));
    let mut pair = Pair { table, home, owner, up: VecDeque::new(), down: VecDeque::new() };
    for key in 0..CROWD {
        pair.request_of(key, Amounts::of_request(1, 0), Truth { ran: true, ..Truth::default() });
    }
    pair
}

impl Pair {
    /// Delivers all that was said. Answer: what a request that waits goes on with.
    fn deliver(&mut self) -> Option<Reservation> {
        let mut gone_on = None;
        loop {
            if let Some(message) = self.up.pop_front() {
                let down = &mut self.down;
                self.owner.hear(&self.table, &message, NOW, |_, message| down.push_back(message));
                continue;
            }
            let up = &mut self.up;
            let mut say = |_, message| {
                up.push_back(message);
                true
            };
            match self.down.pop_front() {
                Some(ToHome::Verdict(verdict)) => {
                    if let Some((_, Answer::Go(it, _))) = self.home.verdict(&self.table, &verdict, NOW, &mut say) {
                        gone_on = Some(it);
                    }
                }
                Some(ToHome::Recall { chain, org, slices }) => self.home.recall(chain, org, slices, NOW, &mut say),
                Some(ToHome::Stands(_)) => {}
                None => return gone_on,
            }
        }
    }

    /// One request, from its reservation to its end.
    fn request(&mut self, ask: Amounts, truth: Truth) {
        self.request_of(CHAIN, ask, truth);
    }

    /// The same, of that chain.
    fn request_of(&mut self, chain: u32, ask: Amounts, truth: Truth) {
        let up = &mut self.up;
        let mut say = |_, message| {
            up.push_back(message);
            true
        };
        let it = match self.home.reserve(&self.table, chain, ask, NOW, &mut say) {
            Reserved::Go(it, _) => Some(it),
            _ => self.deliver(),
        };
        let up = &mut self.up;
        if let Some(it) = black_box(it) {
            self.home.end(it, truth, NOW, |_, message| {
                up.push_back(message);
                true
            });
        }
        if !self.up.is_empty() {
            self.deliver();
        }
    }
}

/// A request that the lease in hand covers, and its end: four levels, each with every kind of limit.
pub(super) fn from_lease() -> impl FnMut() {
    let most = i64::from(i32::MAX);
    let mut pair = pair(2, [Some(most), Some(i64::MAX >> 8), Some(1_000), Some(i64::MAX >> 8)]);
    let ask = Amounts::of_request(700, 700_000_000);
    move || pair.request(ask, Truth { ran: true, tokens: 300, units: 300_000_000 })
}

/// A request whose limits are too small to be lent, decided by the owner, both halves on one thread.
pub(super) fn by_owner() -> impl FnMut() {
    let mut pair = pair(2, [Some(12), Some(12_000), Some(3), Some(12_000)]);
    let ask = Amounts::of_request(700, 700);
    move || pair.request(ask, Truth::default())
}

/// A request that its key's own limit refuses, while thousands of keys beside it have slices in hand.
pub(super) fn refused_in_a_crowd() -> impl FnMut() {
    let mut pair = crowd();
    move || pair.request(Amounts::of_request(1, 0), Truth::default())
}

/// What an organisation's limit costs when it is reached: all slices of its keys asked for and given back.
pub(super) fn crowd_called_back() -> impl FnMut() {
    let mut pair = crowd();
    // More than is left: the owner's no needs all slices. Nobody waits for it.
    let all = Amounts { requests: i32::MAX, ..Amounts::default() };
    let (number, chain, lacks) = (u64::from(u32::MAX) >> 1, CHAIN + 1, Measures::default());
    let asked = Reserve { home: CoreId(0), number, org: 0, chain, generation: 1, ask: all, lacks, what: Want::Use };
    move || {
        let down = &mut pair.down;
        pair.owner.hear(&pair.table, &ToOwner::Reserve(black_box(asked)), NOW, |_, message| down.push_back(message));
        pair.deliver();
        for key in 0..CROWD {
            pair.request_of(key, Amounts::of_request(1, 0), Truth::default());
        }
    }
}
