//! Home cores and owners with lanes between them that deliver at once, or when told to.

use std::collections::VecDeque;

use llmgw_types::CoreId;

use super::*;
use crate::quota::chain::BudgetTerms;
use crate::quota::table::ChainRow;
use crate::quota::{Amounts, Calendar, Level, LimitTable, Measure, Scope};

const ORG: u64 = 0;

/// A few cores; the organisation is owned by the first.
struct Rig {
    table: LimitTable,
    homes: Vec<Home>,
    owner: Owner,
    up: VecDeque<ToOwner>,
    down: VecDeque<(CoreId, ToHome)>,
    now: Now,
    answers: Vec<(usize, u64, Answer)>,
    hops: u64,
}

fn level(scope: Scope, limits: &[(Measure, i64)]) -> Level {
    let mut all = [None; 4];
    limits.iter().for_each(|(measure, limit)| all[*measure as usize] = Some(*limit));
    let budget = BudgetTerms { calendar: 0, epoch: 0, spent: 0, spent_at: 1_000 };
    Level { scope, of_model: false, limits: all, budget: Some(budget) }
}

fn table(version: u32, levels: &[Level], chains: &[&[u32]]) -> LimitTable {
    let levels_of = |rows: &&[u32]| rows.iter().copied().collect();
    let chains =
        chains.iter().map(|rows| Some(ChainRow { levels: levels_of(rows), org: ORG, version, counts_since: 1 }));
    let levels = levels.iter().cloned().map(Some).collect();
    LimitTable::new(version.into(), levels, chains.collect(), vec![Calendar { edges: vec![0, 10_000, 20_000] }])
}

impl Rig {
    fn new(cores: u32, levels: &[Level], chains: &[&[u32]]) -> Self {
        Self {
            table: table(1, levels, chains),
            homes: (0..cores).map(|core| Home::new(CoreId(core))).collect(),
            owner: Owner::new(cores),
            up: VecDeque::new(),
            down: VecDeque::new(),
            now: Now { tick: 1_000, second: 1_000 },
            answers: Vec::new(),
            hops: 0,
        }
    }

    /// Delivers all there is.
    fn settle(&mut self) {
        loop {
            if let Some(message) = self.up.pop_front() {
                let down = &mut self.down;
                self.owner.hear(&self.table, &message, self.now, |home, message| down.push_back((home, message)));
                continue;
            }
            let Some((home, message)) = self.down.pop_front() else { return };
            let (at, up) = (home.idx(), &mut self.up);
            let mut send = |_org: u64, message: ToOwner| {
                up.push_back(message);
                true
            };
            match message {
                ToHome::Verdict(verdict) => {
                    if let Some((number, answer)) = self.homes[at].verdict(&self.table, &verdict, self.now, &mut send) {
                        self.answers.push((at, number, answer));
                    }
                }
                ToHome::Recall { chain, org, slices } => {
                    self.homes[at].recall(chain, org, slices, self.now, &mut send);
                }
                ToHome::Stands(_) => {}
            }
        }
    }

    /// Asks, and waits where it must.
    fn ask(&mut self, core: usize, chain: u32, tokens: u64, units: i64) -> Result<Reservation, Refused> {
        let up = &mut self.up;
        let ask = Amounts::of_request(tokens, units);
        let reserved = self.homes[core].reserve(&self.table, chain, ask, self.now, |_, message| {
            up.push_back(message);
            true
        });
        self.settle();
        match reserved {
            Reserved::Go(it, _) => Ok(it),
            Reserved::Refused(refused) => Err(refused),
            Reserved::Wait(number) => {
                self.hops += 1;
                let at = self.answers.iter().position(|(home, of, _)| (*home, *of) == (core, number));
                match self.answers.swap_remove(at.expect("an answer")).2 {
                    Answer::Go(it, _) => Ok(it),
                    Answer::Refused(refused, _) => Err(refused),
                    Answer::Free => panic!("it is limited"),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, core: usize, it: Reservation, truth: Truth) {
        let up = &mut self.up;
        self.homes[core].end(it, truth, self.now, |_, message| {
            up.push_back(message);
            true
        });
        self.settle();
    }

    fn pass(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now = Now { tick: self.now.tick + 1, second: self.now.second + 1 };
            let up = &mut self.up;
            for home in &mut self.homes {
                home.tick(&self.table, self.now, |_, message| {
                    up.push_back(message);
                    true
                });
            }
            self.owner.tick(self.now);
            self.settle();
        }
    }
}

fn used(tokens: i64, units: i64) -> Truth {
    Truth { ran: true, tokens, units }
}

#[test]
fn of_eight_at_once_through_a_budget_for_one_one_is_admitted() {
    let mut rig = Rig::new(2, &[level(Scope::Key, &[(Measure::Budget, 1_000)])], &[&[0]]);
    let asked: Vec<_> = (0..8).map(|n| rig.ask(n % 2, 0, 1, 600)).collect();
    let admitted: Vec<_> = asked.iter().flatten().collect();
    assert_eq!(admitted.len(), 1);
    let refused = asked.iter().find_map(|asked| asked.err()).unwrap();
    let (measure, scope, retry_s) = (Measure::Budget, Scope::Key, Some(9_000));
    let expected = Refused { measure, scope, of_model: false, limit: 1_000, retry_s };
    assert_eq!(refused, expected, "until the period ends");
    rig.end(0, *admitted[0], used(1, 350));
    assert!(rig.ask(1, 0, 1, 600).is_ok(), "what was not used is there again");
}

#[test]
fn what_is_spent_comes_back_with_the_next_period_only() {
    let mut rig = Rig::new(1, &[level(Scope::Key, &[(Measure::Budget, 1_000)])], &[&[0]]);
    let first = rig.ask(0, 0, 1, 1_000).unwrap();
    rig.end(0, first, used(1, 1_000));
    rig.now.tick += 8_000;
    assert!(rig.ask(0, 0, 1, 1).is_err());
    rig.now.second = 10_000;
    let second = rig.ask(0, 0, 1, 400).unwrap();
    rig.now.second = 9_000;
    assert!(rig.ask(0, 0, 1, 700).is_err(), "a clock that steps back opens nothing");
    rig.end(0, second, used(1, 400));
    assert!(rig.ask(0, 0, 1, 600).is_ok());
}

#[test]
fn none_at_all_and_more_than_all_are_refused_with_no_message() {
    let levels = [level(Scope::Key, &[(Measure::Tokens, 100)]), level(Scope::Org, &[(Measure::Requests, 0)])];
    let mut rig = Rig::new(2, &levels, &[&[0], &[0, 1]]);
    let refused = |measure, scope, limit| Refused { measure, scope, of_model: false, limit, retry_s: None };
    assert_eq!(rig.ask(1, 0, 101, 0), Err(refused(Measure::Tokens, Scope::Key, 100)));
    assert_eq!(rig.ask(1, 1, 10, 0), Err(refused(Measure::Requests, Scope::Org, 0)));
    assert_eq!(rig.hops, 0);
}

#[test]
fn the_most_restrictive_level_holds_and_what_it_refuses_costs_the_others_nothing() {
    let levels = [level(Scope::Key, &[(Measure::Requests, 5)]), level(Scope::Org, &[(Measure::Requests, 3)])];
    let mut rig = Rig::new(2, &levels, &[&[0, 1], &[0]]);
    for n in 0..3 {
        rig.ask(n % 2, 0, 1, 0).unwrap();
    }
    assert_eq!(rig.ask(0, 0, 1, 0).unwrap_err().scope, Scope::Org);
    // The key has two left, which the refused ones did not touch.
    for _ in 0..2 {
        rig.ask(0, 1, 1, 0).unwrap();
    }
    let refused = rig.ask(1, 1, 1, 0).unwrap_err();
    assert_eq!((refused.scope, refused.retry_s), (Scope::Key, Some(61)));
}

#[test]
fn tokens_are_reserved_and_what_was_not_used_returns() {
    let mut rig = Rig::new(2, &[level(Scope::Key, &[(Measure::Tokens, 100)])], &[&[0]]);
    let asked: Vec<_> = (0..5).map(|n| rig.ask(n % 2, 0, 60, 0)).collect();
    assert_eq!(asked.iter().flatten().count(), 1);
    rig.end(0, *asked[0].as_ref().unwrap(), used(20, 0));
    let second = rig.ask(1, 0, 80, 0).unwrap();
    // More than was reserved counts from then on.
    rig.end(1, second, used(90, 0));
    assert!(rig.ask(0, 0, 1, 0).is_err());
    rig.pass(61);
    assert!(rig.ask(0, 0, 100, 0).is_ok());
}

#[test]
fn a_request_that_never_ran_costs_nothing() {
    let limits = [(Measure::Requests, 1), (Measure::Tokens, 10), (Measure::Parallel, 1), (Measure::Budget, 10)];
    let mut rig = Rig::new(2, &[level(Scope::Key, &limits)], &[&[0]]);
    for n in 0..20 {
        let it = rig.ask(n % 2, 0, 10, 10).unwrap();
        assert!(rig.ask((n + 1) % 2, 0, 1, 1).is_err());
        rig.end(n % 2, it, Truth::default());
    }
    assert_eq!(rig.owner.at_level(0, rig.now), ([0; 4], [0; 4]));
}

#[test]
fn at_half_of_a_limit_hardly_anybody_waits_for_the_owner() {
    // 600 a minute and 60,000 tokens, over four cores; five requests of 100 tokens a second, 80 of them used.
    let limits =
        [(Measure::Requests, 600), (Measure::Tokens, 60_000), (Measure::Parallel, 200), (Measure::Budget, 1 << 40)];
    let mut rig = Rig::new(4, &[level(Scope::Key, &limits), level(Scope::Org, &limits)], &[&[0, 1]]);
    let mut asked = 0u64;
    let mut running = VecDeque::new();
    for second in 0..600 {
        for n in 0..5 {
            let core = (second * 5 + n) % 4;
            running.push_back((core, rig.ask(core, 0, 100, 100_000_000).expect("there is room")));
            asked += 1;
        }
        while running.len() > 30 {
            let (core, it) = running.pop_front().unwrap();
            rig.end(core, it, used(80, 80_000_000));
        }
        rig.pass(1);
    }
    assert!(rig.hops * 100 <= asked, "{} of {asked} waited for the owner", rig.hops);
    for (core, it) in running {
        rig.end(core, it, used(80, 80_000_000));
    }
    rig.pass(62);
    let (counted, held) = rig.owner.at_level(1, rig.now);
    assert_eq!((counted, held), ([0, 0, 0, i64::try_from(asked).unwrap() * 80_000_000], [0; 4]));
    assert!(rig.homes.iter().all(Home::is_idle) && rig.owner.is_idle());
}

#[test]
fn keys_that_share_a_level_have_slices_however_many_they_are() {
    const KEYS: u32 = 1000;
    let limits = [
        (Measure::Requests, 1 << 40),
        (Measure::Tokens, 1 << 40),
        (Measure::Parallel, 1 << 40),
        (Measure::Budget, 1 << 50),
    ];
    let levels: Vec<Level> =
        (0..KEYS).map(|_| level(Scope::Key, &limits)).chain([level(Scope::Org, &limits)]).collect();
    let rows: Vec<[u32; 2]> = (0..KEYS).map(|key| [key, KEYS]).collect();
    let chains: Vec<&[u32]> = rows.iter().map(<[u32; 2]>::as_slice).collect();
    let mut rig = Rig::new(1, &levels, &chains);
    for _ in 0..5 {
        for key in 0..KEYS {
            let it = rig.ask(0, key, 1000, 1_000_000_000).expect("there is room");
            rig.end(0, it, used(1000, 1_000_000_000));
        }
    }
    assert_eq!(rig.hops, u64::from(KEYS), "each asked its owner once");
    assert_eq!(rig.owner.tally.recalls, 0);
}

#[test]
fn slices_are_taken_back_before_anybody_is_refused() {
    let limits = [(Measure::Requests, 100)];
    let mut rig = Rig::new(2, &[level(Scope::Key, &limits)], &[&[0]]);
    let admitted: usize = (0..150).filter(|n| rig.ask(usize::from(n % 10 == 0), 0, 1, 0).is_ok()).count();
    assert_eq!(admitted, 100);
    assert!(rig.hops < 100);
}

#[test]
fn a_lease_is_void_once_its_limits_changed() {
    let limits = [(Measure::Requests, 1_000)];
    let mut rig = Rig::new(2, &[level(Scope::Key, &limits)], &[&[0]]);
    for _ in 0..3 {
        rig.ask(1, 0, 1, 0).unwrap();
    }
    assert_eq!(rig.hops, 1);
    rig.table = table(2, &[level(Scope::Key, &[(Measure::Requests, 4)])], &[&[0]]);
    let up = &mut rig.up;
    rig.homes[1].keep_to(&rig.table, |_, message| {
        up.push_back(message);
        true
    });
    rig.settle();
    assert!(rig.ask(1, 0, 1, 0).is_ok());
    assert!(rig.ask(1, 0, 1, 0).is_err());
}

#[test]
fn a_limit_that_changes_while_slices_come_back_has_what_it_lacks_asked_for_too() {
    let levels = |org| {
        [(Scope::Key, 100), (Scope::Org, org), (Scope::Key, 400)]
            .map(|(scope, limit)| level(scope, &[(Measure::Tokens, limit)]))
    };
    let chains: [&[u32]; 2] = [&[0, 1], &[2, 1]];
    let mut rig = Rig::new(2, &levels(1_000), &chains);
    // Both cores have a slice; that of the other chain does not matter as long as the organisation has enough.
    rig.ask(1, 0, 4, 0).unwrap();
    rig.ask(0, 1, 8, 0).unwrap();
    assert!(rig.homes[1].in_hand(0).0.tokens > 20 && rig.homes[0].in_hand(1).0.tokens > 90);
    let (ask, up) = (Amounts::of_request(80, 0), &mut rig.up);
    let reserved = rig.homes[0].reserve(&rig.table, 0, ask, rig.now, |_, message| {
        up.push_back(message);
        true
    });
    assert!(matches!(reserved, Reserved::Wait(_)));
    let (asked, down) = (rig.up.pop_front().unwrap(), &mut rig.down);
    rig.owner.hear(&rig.table, &asked, rig.now, |home, message| down.push_back((home, message)));
    assert_eq!(rig.down.len(), 1, "one slice is asked for");
    rig.table = table(2, &levels(200), &chains);
    rig.settle();
    assert!(matches!(rig.answers[..], [(0, _, Answer::Go(..))]), "{:?}", rig.answers);
}

#[test]
fn what_was_not_used_comes_back_although_the_limit_is_another_by_then() {
    let of = |limit| [level(Scope::Key, &[(Measure::Tokens, limit)])];
    let mut rig = Rig::new(2, &of(100), &[&[0]]);
    let first = rig.ask(0, 0, 90, 0).unwrap();
    rig.table = table(2, &of(120), &[&[0]]);
    assert!(rig.ask(1, 0, 60, 0).is_err());
    rig.end(0, first, used(10, 0));
    assert!(rig.ask(1, 0, 110, 0).is_ok());
}

#[test]
fn a_model_that_costs_nothing_is_there_when_the_budget_is_spent() {
    let levels = [level(Scope::Key, &[(Measure::Budget, 100), (Measure::Requests, 50)])];
    let mut rig = Rig::new(1, &levels, &[&[0]]);
    let it = rig.ask(0, 0, 1, 100).unwrap();
    rig.end(0, it, used(1, 150));
    assert_eq!(rig.ask(0, 0, 1, 1).unwrap_err().measure, Measure::Budget);
    for _ in 0..30 {
        rig.ask(0, 0, 1, 0).unwrap();
    }
}

#[test]
fn a_number_is_not_given_to_another_question_while_somebody_may_still_read_its_answer() {
    // Too few requests for a slice: each is asked for.
    let mut rig = Rig::new(1, &[level(Scope::Key, &[(Measure::Requests, 4)])], &[&[0]]);
    let ask = Amounts::of_request(1, 1);
    let mut numbers = Vec::new();
    for _ in 0..4 {
        let up = &mut rig.up;
        let reserved = rig.homes[0].reserve(&rig.table, 0, ask, rig.now, |_, message| {
            up.push_back(message);
            true
        });
        let Reserved::Wait(number) = reserved else { panic!("{reserved:?}") };
        // The answer is here, and its request has not had its turn yet.
        rig.settle();
        numbers.push(number);
    }
    let answered: Vec<u64> = rig.answers.iter().map(|(_, number, _)| *number).collect();
    assert_eq!(answered, numbers);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
}

#[test]
fn what_is_given_back_is_said_after_its_use() {
    let limits = [(Measure::Tokens, 1 << 40)];
    let mut rig = Rig::new(2, &[level(Scope::Key, &limits)], &[&[0]]);
    // The first is the owner's to admit, and leaves a slice.
    let it = rig.ask(1, 0, 10, 0).expect("there is room");
    rig.end(1, it, used(10, 0));
    let it = rig.ask(1, 0, 10, 0).expect("there is room");
    rig.end(1, it, used(4, 0));
    let mut said = Vec::new();
    let now = Now { tick: rig.now.tick + 1, ..rig.now };
    rig.homes[1].tick(&rig.table, now, |_, message| {
        said.push(message);
        true
    });
    let kinds: Vec<&str> = said
        .iter()
        .map(|message| match message {
            ToOwner::Report(report) if report.used_tokens == 10 => "used",
            ToOwner::Settle(settle) if settle.tokens == 6 => "back",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["used", "back"]);
}

#[test]
fn a_key_at_its_own_limit_has_nobody_elses_slices_asked_back() {
    const KEYS: u32 = 100;
    let wide = [(Measure::Requests, 1 << 40)];
    let levels: Vec<Level> = [level(Scope::Key, &[(Measure::Requests, 1)])]
        .into_iter()
        .chain((1..KEYS).map(|_| level(Scope::Key, &wide)))
        .chain([level(Scope::Org, &wide)])
        .collect();
    let rows: Vec<[u32; 2]> = (0..KEYS).map(|key| [key, KEYS]).collect();
    let chains: Vec<&[u32]> = rows.iter().map(<[u32; 2]>::as_slice).collect();
    let mut rig = Rig::new(2, &levels, &chains);
    for key in 0..KEYS {
        assert!(rig.ask(1, key, 0, 0).is_ok());
    }
    assert!((0..20).all(|_| rig.ask(0, 0, 0, 0).is_err()));
    assert_eq!(rig.owner.tally.recalls, 0);
    // All of them where all share what lacks room, in whatever order they were lent, and each once.
    let lower = [level(Scope::Key, &wide), level(Scope::Org, &[(Measure::Requests, 1)])];
    let mut levels = levels;
    (levels[0], levels[KEYS as usize]) = (lower[0].clone(), lower[1].clone());
    rig.table = table(1, &levels, &chains);
    assert!((0..20).all(|_| rig.ask(0, 0, 0, 0).is_err()));
    assert_eq!(rig.owner.tally.recalls, u64::from(KEYS - 1));
}
