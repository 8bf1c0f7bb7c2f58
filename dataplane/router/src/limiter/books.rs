//! What an owner knows of its tenants: what each level's windows and budgets have counted, and what home cores hold of
//! each chain.
//!
//! Called by [`super::owner`] alone. Invariant: what a level's chains hold, added up, is the level's `held`. Never
//! decides who is next, and sends nothing.

use llmgw_types::CoreId;

use super::{Fault, Faults};
use crate::quota::budget::Spent;
use crate::quota::window::Window;
use crate::quota::{Amounts, Chain, LevelList, LimitTable, Measure, Scope};

/// What a home core holds of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) amounts: Amounts,
    /// Slices given to it, and the newest of them that it is known to have nothing left of.
    pub(super) slices: u16,
    pub(super) closed: u16,
    /// Asked for its slices, and has not answered.
    pub(super) is_recalled: bool,
    /// The tick of the newest answer that may have brought one.
    pub(super) since: u32,
    /// How often slices of the least size would have to be doubled for one to last about a second.
    pub(super) doublings: u8,
    /// The tick of the newest slice.
    pub(super) lent: u32,
}

/// More doublings of a slice there are not: it is more than anybody uses.
pub(super) const DOUBLINGS_MAX: u8 = 30;

impl Held {
    /// A slice is about to be lent: it is twice the last where that lasted no second, and less the longer it lasted.
    /// Answer: how often the least is to be doubled.
    pub(super) fn lend(&mut self, tick: u32) -> u8 {
        self.doublings = match tick.saturating_sub(self.lent) {
            _ if self.lent == 0 => 0,
            0 | 1 => DOUBLINGS_MAX.min(self.doublings + 1),
            2 | 3 => self.doublings,
            ticks => self.doublings.saturating_sub(u8::try_from(ticks / 4).unwrap_or(u8::MAX)),
        };
        self.lent = tick;
        self.doublings
    }

    /// Whether there may be something of a slice in its hand.
    pub(super) fn has_slice(&self) -> bool {
        self.slices != self.closed
    }

    /// Whether it could be asked for that.
    pub(super) fn is_out(&self) -> bool {
        self.has_slice() && !self.is_recalled
    }
}

/// A chain that somebody used.
#[derive(Debug)]
pub(super) struct ChainBook {
    /// The levels at which its `held` is counted.
    levels: LevelList,
    /// By home core.
    pub(super) homes: Vec<Held>,
    /// Its place among its organisation's chains with slices.
    pub(super) leased_at: Option<u32>,
}

impl ChainBook {
    /// Whether it has one of these levels.
    pub(super) fn shares(&self, levels: &LevelList) -> bool {
        self.levels.iter().any(|level| levels.has(level))
    }

    /// Home cores that could be asked for slices.
    fn out_count(&self) -> u32 {
        self.homes.iter().map(|held| u32::from(held.is_out())).sum()
    }
}

/// A level that somebody used.
#[derive(Debug, Default)]
struct LevelBook {
    requests: Option<Box<Window>>,
    tokens: Option<Box<Window>>,
    spent: Option<Spent>,
    /// By measure.
    held: [i64; 4],
    /// Home cores, chain by chain, that could be asked for slices ([`Held::is_out`]).
    out: u32,
}

/// See the module. Owner: one core.
#[derive(Debug)]
pub(super) struct Books {
    core_count: u32,
    /// By chain.
    chains: Vec<Option<Box<ChainBook>>>,
    /// By level.
    levels: Vec<Option<Box<LevelBook>>>,
    swept: usize,
}

/// What is left at the tightest level, by measure; `None` where nothing limits it.
pub(super) type Free = [Option<i64>; 4];

/// Rows looked at in one sweep.
const SWEEP: usize = 512;

impl Books {
    pub(super) fn new(core_count: u32) -> Self {
        Self { core_count, chains: Vec::new(), levels: Vec::new(), swept: 0 }
    }

    pub(super) fn chain(&mut self, number: u32) -> Option<&mut ChainBook> {
        self.chains.get_mut(number as usize)?.as_deref_mut()
    }

    pub(super) fn held(&mut self, number: u32, home: CoreId) -> Option<&mut Held> {
        self.chain(number)?.homes.get_mut(home.idx())
    }

    /// Changes what is known of a home core's slices, and counts it at the chain's levels.
    pub(super) fn note<T>(&mut self, number: u32, home: CoreId, change: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let book = self.chains.get_mut(number as usize)?.as_deref_mut()?;
        let held = book.homes.get_mut(home.idx())?;
        let was_out = held.is_out();
        let answer = change(held);
        let is_out = held.is_out();
        if was_out != is_out {
            for row in book.levels.iter() {
                let out = &mut row_of(&mut self.levels, row).out;
                *out = if is_out { *out + 1 } else { *out - 1 };
            }
        }
        Some(answer)
    }

    /// Home cores, chain by chain, that could be asked for slices of a level.
    pub(super) fn out(&self, row: u32) -> u32 {
        self.levels.get(row as usize).and_then(Option::as_deref).map_or(0, |level| level.out)
    }

    /// Brings a chain, and its levels, up to the table and the time.
    pub(super) fn touch(
        &mut self,
        table: &LimitTable,
        number: u32,
        chain: &Chain,
        (tick, second): (u32, u32),
        faults: &impl Faults,
    ) {
        for (row, level) in table.levels_of(chain) {
            let book = row_of(&mut self.levels, row);
            renew(&mut book.requests, level.limit(Measure::Requests), tick);
            renew(&mut book.tokens, level.limit(Measure::Tokens), tick);
            match level.budget.filter(|_| level.limit(Measure::Budget).is_some()) {
                None => book.spent = None,
                Some(terms) => {
                    let spent = book.spent.get_or_insert_with(|| Spent::new(0, 0, terms.epoch.wrapping_add(1)));
                    if spent.epoch() != terms.epoch && !faults.planted(Fault::BudgetGoesOn) {
                        let start = table.period(level, terms.spent_at).start;
                        *spent = Spent::new(start, terms.spent, terms.epoch);
                    }
                    let period = table.period(level, second);
                    spent.enter(period);
                    if faults.planted(Fault::ClockStepsBack) {
                        spent.step_back(period);
                    }
                }
            }
        }
        let at = number as usize;
        if self.chains.len() <= at {
            self.chains.resize_with(at + 1, || None);
        }
        let levels = &mut self.levels;
        let homes = self.core_count as usize;
        let book = self.chains[at].get_or_insert_with(|| {
            let homes = vec![Held::default(); homes];
            Box::new(ChainBook { levels: chain.levels, homes, leased_at: None })
        });
        if book.levels != chain.levels {
            // What it holds counts where it belongs by now.
            let held = book.homes.iter().fold([0; 4], |sum, home| plus(sum, &home.amounts, 1));
            let out = book.out_count();
            for row in book.levels.iter() {
                shift(levels, row, held, -1);
                row_of(levels, row).out -= out;
            }
            for row in chain.levels.iter() {
                if !faults.planted(Fault::HeldLeftBehind) {
                    shift(levels, row, held, 1);
                }
                row_of(levels, row).out += out;
            }
            book.levels = chain.levels;
        }
    }

    /// What is left for a chain: at each level its limit, less what was used and what is held. Call [`Self::touch`]
    /// first.
    pub(super) fn free(&mut self, table: &LimitTable, chain: &Chain, tick: u32, faults: &impl Faults) -> Free {
        let mut free: Free = [None; 4];
        for (row, level) in table.levels_of(chain) {
            if faults.planted(Fault::OrgForgotten) && level.scope == Scope::Org {
                continue;
            }
            let book = row_of(&mut self.levels, row);
            for measure in Measure::ALL {
                let Some(limit) = level.limit(measure) else { continue };
                let left = limit - book.known(measure, tick, faults);
                let least = &mut free[measure as usize];
                *least = Some(least.map_or(left, |least| least.min(left)));
            }
        }
        free
    }

    /// The levels of a chain at which there is less than is asked for, with how much is short.
    pub(super) fn lacking<'a>(
        &'a mut self,
        table: &'a LimitTable,
        chain: &'a Chain,
        ask: Amounts,
        tick: u32,
        faults: &'a impl Faults,
    ) -> impl Iterator<Item = Lack> + 'a {
        table.levels_of(chain).flat_map(move |(row, level)| {
            let book = row_of(&mut self.levels, row);
            let known = Measure::ALL.map(|measure| book.known(measure, tick, faults));
            Measure::ALL.into_iter().filter_map(move |measure| {
                let (limit, asked) = (level.limit(measure)?, ask.of(measure));
                let short = asked + known[measure as usize] - limit;
                (asked > 0 && short > 0).then_some(Lack { row, measure, short })
            })
        })
    }

    /// In how many ticks so much leaves a level's window.
    pub(super) fn frees_in(&mut self, row: u32, measure: Measure, short: i64) -> u32 {
        let book = row_of(&mut self.levels, row);
        let window = if measure == Measure::Requests { &book.requests } else { &book.tokens };
        window.as_deref().map_or(1, |window| window.frees_in(short))
    }

    /// Counts requests and tokens that were admitted in a tick, at every level of a chain: also of one that is gone
    /// from the table, as it was.
    pub(super) fn charge(&mut self, number: u32, now: u32, tick: u32, requests: i64, tokens: i64) {
        for row in self.levels_of(number).iter() {
            let book = row_of(&mut self.levels, row);
            for (window, amount) in [(&mut book.requests, requests), (&mut book.tokens, tokens)] {
                if let Some(window) = window {
                    window.advance(now);
                    window.add(tick, amount);
                }
            }
        }
    }

    /// Counts what was spent, in the period of its admission.
    pub(super) fn spend(&mut self, table: &LimitTable, number: u32, now: u32, second: u32, units: i64) {
        for row in self.levels_of(number).iter() {
            if let Some(spent) = &mut row_of(&mut self.levels, row).spent {
                if let Some(level) = table.level(row) {
                    spent.enter(table.period(level, now));
                }
                spent.add(second, units);
            }
        }
    }

    fn levels_of(&self, number: u32) -> LevelList {
        let book = self.chains.get(number as usize).and_then(Option::as_deref);
        book.map_or_else(LevelList::default, |book| book.levels)
    }

    /// A home core holds so much more (or less, by a negative sign) of a chain.
    pub(super) fn hold(&mut self, number: u32, home: CoreId, amounts: Amounts, sign: i64) {
        let Some(book) = self.chains.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
        let Some(held) = book.homes.get_mut(home.idx()) else { return };
        if sign > 0 {
            held.amounts += amounts;
        } else {
            held.amounts -= amounts;
        }
        let change = plus([0; 4], &amounts, sign);
        book.levels.iter().for_each(|row| shift(&mut self.levels, row, change, 1));
    }

    /// What a level counts of each measure: in its window or period, and held.
    fn known(&mut self, row: u32, tick: u32, faults: &impl Faults) -> [i64; 4] {
        let book = row_of(&mut self.levels, row);
        Measure::ALL.map(|measure| book.known(measure, tick, faults))
    }

    /// What a level has counted, without what is held, and what is held.
    pub(super) fn apart(&mut self, row: u32, tick: u32, faults: &impl Faults) -> ([i64; 4], [i64; 4]) {
        let known = self.known(row, tick, faults);
        let held = row_of(&mut self.levels, row).held;
        (std::array::from_fn(|at| known[at] - held[at]), held)
    }

    /// The simulator's mistake: what was lent out is forgotten after some ticks.
    pub(super) fn lapse(&mut self, tick: u32) {
        for number in 0..self.chains.len() as u32 {
            for home in (0..self.core_count).map(CoreId) {
                let Some(held) = self.held(number, home).filter(|held| held.has_slice() && held.since + 2 < tick)
                else {
                    continue;
                };
                let amounts = held.amounts;
                self.hold(number, home, amounts, -1);
            }
        }
    }

    /// Lets go of some that count nothing: what is spent of a budget stays.
    pub(super) fn sweep(&mut self, tick: u32) {
        let end = self.levels.len().max(self.chains.len());
        for _ in 0..SWEEP.min(end) {
            self.swept = if self.swept + 1 < end { self.swept + 1 } else { 0 };
            if let Some(place) = self.chains.get_mut(self.swept)
                && place
                    .as_ref()
                    .is_some_and(|book| book.leased_at.is_none() && book.homes.iter().all(|h| h.amounts.is_zero()))
            {
                *place = None;
            }
            if let Some(place) = self.levels.get_mut(self.swept)
                && place.as_mut().is_some_and(|book| book.is_empty(tick))
            {
                *place = None;
            }
        }
    }
}

/// A level at which there is less than is asked for.
pub(super) struct Lack {
    pub(super) row: u32,
    pub(super) measure: Measure,
    pub(super) short: i64,
}

impl LevelBook {
    fn known(&mut self, measure: Measure, tick: u32, faults: &impl Faults) -> i64 {
        let window = |window: &mut Option<Box<Window>>| {
            window.as_mut().map_or(0, |window| {
                window.advance(tick + u32::from(faults.planted(Fault::ShortWindow)));
                window.sum()
            })
        };
        let counted = match measure {
            Measure::Requests => window(&mut self.requests),
            Measure::Tokens => window(&mut self.tokens),
            Measure::Parallel => 0,
            Measure::Budget => self.spent.as_ref().map_or(0, Spent::units),
        };
        counted + self.held[measure as usize]
    }

    fn is_empty(&mut self, tick: u32) -> bool {
        let is_empty = |window: &mut Option<Box<Window>>| {
            window.as_mut().is_none_or(|window| {
                window.advance(tick);
                window.is_empty()
            })
        };
        self.spent.is_none()
            && self.held == [0; 4]
            && self.out == 0
            && is_empty(&mut self.requests)
            && is_empty(&mut self.tokens)
    }
}

/// A window is there while there is a limit.
fn renew(window: &mut Option<Box<Window>>, limit: Option<i64>, tick: u32) {
    match (limit, &mut *window) {
        (None, _) => *window = None,
        (Some(_), Some(window)) => window.advance(tick),
        (Some(_), None) => *window = Some(Box::new(Window::new(tick))),
    }
}

fn row_of(levels: &mut Vec<Option<Box<LevelBook>>>, row: u32) -> &mut LevelBook {
    let at = row as usize;
    if levels.len() <= at {
        levels.resize_with(at + 1, || None);
    }
    levels[at].get_or_insert_default()
}

fn plus(sum: [i64; 4], amounts: &Amounts, sign: i64) -> [i64; 4] {
    Measure::ALL.map(|measure| sum[measure as usize].saturating_add(sign * amounts.of(measure)))
}

fn shift(levels: &mut Vec<Option<Box<LevelBook>>>, row: u32, by: [i64; 4], sign: i64) {
    let held = &mut row_of(levels, row).held;
    held.iter_mut().zip(by).for_each(|(held, by)| *held = held.saturating_add(sign * by));
}
