//! What is true: every request that was admitted, what it may use, what it used. The code under test never sees it.
//!
//! At a level that was changed not all of it counts: what a limit counts is what was admitted by limits that had it. So
//! there are two sums: the least that must be counted, and the most that may be.

use std::collections::BTreeMap;

use llmgw_router::limiter::Reservation;
use llmgw_router::quota::window::WINDOW_TICKS;
use llmgw_router::quota::{Amounts, LevelList, Measure, Period};

/// One request that counts somewhere.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) request: usize,
    pub(super) it: Reservation,
    pub(super) levels: LevelList,
    /// Of the limits by which it was admitted.
    pub(super) generation: u64,
    /// What it counts for in windows: reserved, then used.
    counts: Amounts,
    pub(super) is_open: bool,
}

/// Tokens beyond what was reserved.
#[derive(Clone, Debug)]
pub(super) struct Excess {
    pub(super) levels: LevelList,
    pub(super) tick: u32,
    pub(super) tokens: i64,
    /// Of the limits by which they are counted; `None` where it is not sure that they are.
    pub(super) generation: Option<u64>,
}

/// What was not used, and could not be given back.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) levels: LevelList,
    pub(super) tick: u32,
    pub(super) requests: i64,
    pub(super) tokens: i64,
}

/// Spent in one period, by requests of one generation of limits.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    units: i64,
    /// What of it nobody had reserved.
    excess: i64,
}

/// Spent by requests of before a budget came, in whose time they end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// When they were admitted; `None` where nobody knows any more.
    pub(super) second: Option<u32>,
    pub(super) units: i64,
}

/// Which of it counts at a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) tick: u32,
    pub(super) period: Period,
    /// The generation in which each of the level's limits came.
    pub(super) since: [u64; 4],
}

/// Whether messages may be on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    UnderWay,
    AtRest,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: Vec<Entry>,
    pub(super) excess: Vec<Excess>,
    pub(super) kept: Vec<Kept>,
    /// By level, begin of the period and generation.
    spent: BTreeMap<(u32, u32, u64), Spent>,
    pub(super) late: BTreeMap<u32, Vec<Late>>,
}

impl Ledger {
    pub(super) fn admits(&mut self, request: usize, it: Reservation, levels: LevelList, generation: u64) {
        self.entries.push(Entry { request, it, levels, generation, counts: it.ask, is_open: true });
    }

    /// A request ends with so much used. Answer: what it was, if it was open.
    pub(super) fn ends(&mut self, request: usize, ran: bool, tokens: i64) -> Option<Entry> {
        let entry = self.entries.iter_mut().find(|entry| entry.request == request && entry.is_open)?;
        entry.is_open = false;
        entry.counts =
            if ran { Amounts { tokens: tokens.min(entry.it.ask.tokens), ..entry.it.ask } } else { Amounts::default() };
        Some(entry.clone())
    }

    /// A request that has ended has spent so much at a level, in the period that began then.
    pub(super) fn spends(&mut self, entry: &Entry, row: u32, start: u32, units: i64) {
        let spent = self.spent.entry((row, start, entry.generation)).or_default();
        spent.units += units;
        spent.excess += (units - entry.it.ask.units).max(0);
    }

    /// Forgets what no window can hold any more.
    pub(super) fn prune(&mut self, tick: u32) {
        let is_old = |used: u32| used + WINDOW_TICKS + 5 < tick;
        self.entries.retain(|entry| entry.is_open || !is_old(entry.it.tick));
        self.excess.retain(|excess| !is_old(excess.tick));
        self.kept.retain(|kept| !is_old(kept.tick));
    }

    fn spent(&self, row: u32, span: &Span) -> Spent {
        let since = span.since[Measure::Budget as usize];
        let range = (row, span.period.start, since)..=(row, span.period.start, u64::MAX);
        self.spent.range(range).fold(Spent::default(), |sum, (_, spent)| Spent {
            units: sum.units + spent.units,
            excess: sum.excess + spent.excess,
        })
    }

    /// What must count at a level, whatever is on its way: what was spent beyond a reservation may still be.
    pub(super) fn least(&self, row: u32, span: &Span, when: When) -> [i64; 4] {
        let mut sum = [0i64; 4];
        for entry in self.entries.iter().filter(|entry| entry.levels.has(row)) {
            let counted = self.of_entry(entry, span, entry.it.second < span.period.end);
            for measure in Measure::ALL {
                if entry.generation >= span.since[measure as usize] {
                    sum[measure as usize] += counted[measure as usize];
                }
            }
        }
        let since = span.since[Measure::Tokens as usize];
        let is_sure = |excess: &&Excess| excess.generation.is_some_and(|generation| generation >= since);
        sum[1] += self.beyond(row, span).filter(is_sure).map(|excess| excess.tokens).sum::<i64>();
        let spent = self.spent(row, span);
        sum[3] += spent.units - if when == When::AtRest { 0 } else { spent.excess };
        sum
    }

    /// What may count at a level.
    pub(super) fn most(&self, row: u32, span: &Span) -> [i64; 4] {
        let mut sum = [0i64; 4];
        for entry in self.entries.iter().filter(|entry| entry.levels.has(row)) {
            let counted = self.of_entry(entry, span, true);
            sum.iter_mut().zip(counted).for_each(|(sum, counted)| *sum += counted);
        }
        sum[1] += self.beyond(row, span).map(|excess| excess.tokens).sum::<i64>();
        let in_window = |kept: &&Kept| kept.levels.has(row) && kept.tick + WINDOW_TICKS >= span.tick;
        for kept in self.kept.iter().filter(in_window) {
            sum[0] += kept.requests;
            sum[1] += kept.tokens;
        }
        sum[3] += self.spent(row, span).units;
        let is_of_it = |late: &&Late| late.second.is_none_or(|second| second >= span.period.start);
        sum[3] += self.late.get(&row).into_iter().flatten().filter(is_of_it).map(|late| late.units).sum::<i64>();
        sum
    }

    fn of_entry(&self, entry: &Entry, span: &Span, is_of_period: bool) -> [i64; 4] {
        let mut counted = [0i64; 4];
        if entry.it.tick + WINDOW_TICKS >= span.tick {
            counted[0] = i64::from(entry.counts.requests);
            counted[1] = entry.counts.tokens;
        }
        if entry.is_open {
            counted[2] = i64::from(entry.it.ask.parallel);
            // A reservation counts until it is settled, in whichever period that is.
            counted[3] = if is_of_period { entry.it.ask.units } else { 0 };
        }
        counted
    }

    fn beyond(&self, row: u32, span: &Span) -> impl Iterator<Item = &Excess> {
        self.excess.iter().filter(move |excess| excess.levels.has(row) && excess.tick + WINDOW_TICKS >= span.tick)
    }
}
