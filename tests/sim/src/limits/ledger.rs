//! What is true: every request that was admitted, what it may use, what it used. The code under test never sees it.

use std::collections::BTreeMap;

use llmgw_router::limiter::Reservation;
use llmgw_router::quota::window::WINDOW_TICKS;
use llmgw_router::quota::{Amounts, LevelList, LimitTable, Measure};

/// One request that counts somewhere.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) request: usize,
    pub(crate) it: Reservation,
    pub(crate) levels: LevelList,
    /// What it counts for in windows: reserved, then used.
    pub(crate) counts: Amounts,
    pub(crate) is_open: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
    /// Tokens beyond what was reserved: where, when, how many.
    pub(crate) excess: Vec<(LevelList, u32, i64)>,
    /// Spent for good, by level and the begin of its period; and what of it nobody reserved.
    spent: BTreeMap<(u32, u32), (i64, i64)>,
}

impl Ledger {
    pub(crate) fn admits(&mut self, request: usize, it: Reservation, levels: LevelList) {
        self.entries.push(Entry { request, it, levels, counts: it.ask, is_open: true });
    }

    /// A request ends with so much used.
    pub(crate) fn ends(&mut self, table: &LimitTable, request: usize, ran: bool, tokens: i64, units: i64) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.request == request && entry.is_open) else {
            return;
        };
        entry.is_open = false;
        entry.counts =
            if ran { Amounts { tokens: tokens.min(entry.it.ask.tokens), ..entry.it.ask } } else { Amounts::default() };
        if entry.it.measures.has(Measure::Budget) && ran {
            for row in entry.levels.iter() {
                let Some(level) = table.level(row) else { continue };
                let start = table.period(level, entry.it.second).start;
                let spent = self.spent.entry((row, start)).or_default();
                *spent = (spent.0 + units, spent.1 + (units - entry.it.ask.units).max(0));
            }
        }
    }

    /// Forgets what no window can hold any more.
    pub(crate) fn prune(&mut self, tick: u32) {
        let is_old = |used: u32| used + WINDOW_TICKS + 5 < tick;
        self.entries.retain(|entry| entry.is_open || !is_old(entry.it.tick));
        self.excess.retain(|(_, used, _)| !is_old(*used));
    }

    /// What must count at a level, whatever is on its way: what was spent beyond a reservation may still be.
    pub(crate) fn floor(&self, row: u32, tick: u32, period: (u32, u32)) -> [i64; 4] {
        let mut taken = self.taken(row, tick, period);
        taken[3] -= self.spent.get(&(row, period.0)).map_or(0, |spent| spent.1);
        taken
    }

    /// What counts at a level: in the window that ends with `tick`, and in its budget's period from `start` to `end`.
    pub(crate) fn taken(&self, row: u32, tick: u32, (start, end): (u32, u32)) -> [i64; 4] {
        let mut sum = [0i64; 4];
        for entry in self.entries.iter().filter(|entry| entry.levels.has(row)) {
            if entry.it.tick + WINDOW_TICKS >= tick {
                sum[0] += i64::from(entry.counts.requests);
                sum[1] += entry.counts.tokens;
            }
            if entry.is_open {
                sum[2] += i64::from(entry.it.ask.parallel);
                // A reservation counts until it is settled, in whichever period that is.
                if entry.it.second < end {
                    sum[3] += entry.it.ask.units;
                }
            }
        }
        let in_window = |(levels, used, _): &&(LevelList, u32, i64)| levels.has(row) && used + WINDOW_TICKS >= tick;
        sum[1] += self.excess.iter().filter(in_window).map(|(.., tokens)| tokens).sum::<i64>();
        sum[3] += self.spent.get(&(row, start)).map_or(0, |spent| spent.0);
        sum
    }

    /// The earliest tick in which a request was admitted that has not ended.
    pub(crate) fn oldest_open(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.is_open).map(|entry| entry.it.tick).min().unwrap_or(u32::MAX)
    }
}
