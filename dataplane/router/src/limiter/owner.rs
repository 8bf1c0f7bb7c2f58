//! The owner's half: counts what an organisation and all below it use, decides who may, hands out slices and takes them
//! back.
//!
//! One on every core, called by that core's loop with the messages of home cores. An ask that needs slices back is
//! parked, and the answers carry on: nothing blocks. Invariant: see [`super`]; a no is said only when every slice that
//! could help was back. Never waits, sends or reads a clock.

use std::collections::VecDeque;

use ahash::AHashMap;
use llmgw_types::CoreId;

use super::books::{Books, DOUBLINGS_MAX, Free};
use super::message::{
    Look, Refused, Remaining, Report, Reserve, Settle, Standing, ToHome, ToOwner, Verdict, Want, Word,
};
use super::{Fault, Faults, Now, Sound};
use crate::quota::{Amounts, COUNT_MAX, Chain, LevelList, LimitTable, Measure, Period, Scope};

/// A slice holds at least so many requests.
const SLICE_REQUESTS_MIN: i64 = 8;
/// And so many times the tokens and units of the request that it is given with.
const SLICE_ASKS_MIN: i64 = 4;
/// And so many places at once.
const SLICE_PARALLEL_MIN: i64 = 2;
/// What a key is lent that begins, if there is so much: requests, so many times the tokens and units of the first.
const SLICE_REQUESTS: i64 = 16;
/// And places at once.
const SLICE_PARALLEL: i64 = 4;

/// What an owner went through, added up until it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerTally {
    /// Asks granted.
    pub granted: u64,
    /// Asks refused, by measure.
    pub refused: [u64; 4],
    /// Slices given.
    pub slices: u64,
    /// Slices asked back.
    pub recalls: u64,
}

/// One organisation with something under way.
#[derive(Default)]
struct Org {
    /// First come, first decided.
    parked: VecDeque<Reserve>,
    /// Recalls that are not answered.
    recalls_out: u32,
    /// Chains of which slices are out.
    leased: Vec<u32>,
}

/// See the module. Owner: one core.
pub struct Owner<F = Sound> {
    core_count: u32,
    orgs: AHashMap<u64, Org>,
    books: Books,
    /// Organisations whose first ask is by a table that is not here yet.
    early: Vec<u64>,
    /// The latest second that was seen: it does not go back.
    second: u32,
    /// How often slices are doubled from the first on.
    doublings: u8,
    faults: F,
    pub tally: OwnerTally,
}

/// What carries a message to a home core. It must arrive.
pub trait Say: FnMut(CoreId, ToHome) {}
impl<T: FnMut(CoreId, ToHome)> Say for T {}

impl Owner {
    pub fn new(core_count: u32) -> Self {
        Self::with(core_count, Sound)
    }
}

impl<F: Faults> Owner<F> {
    /// One with mistakes planted.
    pub fn with(core_count: u32, faults: F) -> Self {
        Self {
            core_count,
            orgs: AHashMap::new(),
            books: Books::new(core_count),
            early: Vec::new(),
            second: 0,
            doublings: 0,
            faults,
            tally: OwnerTally::default(),
        }
    }

    /// The same, with slices so many times doubled from the first on: the simulator's worlds lend little and much.
    #[must_use]
    pub fn lending(self, doublings: u8) -> Self {
        Self { doublings, ..self }
    }

    /// Hears a home core.
    pub fn hear(&mut self, table: &LimitTable, message: &ToOwner, now: Now, mut send: impl Say) {
        self.see(now.second);
        match message {
            ToOwner::Reserve(asked) => {
                self.orgs.entry(asked.org).or_default().parked.push_back(*asked);
                self.serve(table, asked.org, now, &mut send);
            }
            ToOwner::Report(report) => self.report(table, report, now, &mut send),
            ToOwner::Settle(settle) => self.settle(table, settle, now, &mut send),
            ToOwner::Look(look) => self.look(table, look, now, &mut send),
        }
    }

    fn report(&mut self, table: &LimitTable, report: &Report, now: Now, send: &mut impl Say) {
        let Report { home, chain: number, used_requests, used_tokens, used_units, back, .. } = *report;
        // A clock that is a little ahead of this one may be in the next period already.
        self.see(report.second);
        let used = Amounts { requests: used_requests, tokens: used_tokens, units: used_units, parallel: 0 };
        let charged_already = self.faults.planted(Fault::ChargesAtGrant);
        if charged_already {
            self.books.hold(number, home, used.stocks(), -1);
            self.books.hold(number, home, back.stocks(), -1);
        } else {
            self.books.hold(number, home, used, -1);
            self.books.hold(number, home, back, -1);
        }
        let mut org = None;
        if let Some(chain) = table.chain(number) {
            org = Some(chain.org);
            self.books.touch(table, number, chain, (now.tick, self.second), &self.faults);
        }
        if !charged_already {
            self.books.charge(number, now.tick, report.tick, used_requests.into(), used_tokens);
        }
        self.books.spend(table, number, self.second, report.second, used_units);
        let is_answered = self.books.note(number, home, |held| {
            if report.closes && report.slices == held.slices {
                held.closed = held.slices;
            }
            report.answers && std::mem::take(&mut held.is_recalled)
        });
        // A chain that is gone from the table is known by the slices that are out of it.
        let org = org.or_else(|| self.orgs.iter().find(|(_, org)| org.leased.contains(&number)).map(|(hash, _)| *hash));
        let Some(hash) = org else { return };
        if let Some(org) = self.orgs.get_mut(&hash) {
            org.recalls_out -= u32::from(is_answered == Some(true) && org.recalls_out > 0);
        }
        self.unlist(hash, number);
        self.serve(table, hash, now, send);
    }

    fn settle(&mut self, table: &LimitTable, settle: &Settle, now: Now, send: &mut impl Say) {
        let Settle { org, chain: number, version, tick, requests, tokens } = *settle;
        let chain = table.chain(number);
        if let Some(chain) = chain {
            self.books.touch(table, number, chain, (now.tick, self.second), &self.faults);
        }
        if tokens < 0 {
            self.books.charge(number, now.tick, now.tick, 0, -tokens);
        } else if chain.is_some_and(|chain| chain.counts_as(version) || self.faults.planted(Fault::RefundsOfAnyWindow))
        {
            // Where other windows counted it then, what was not used leaves with them: at most a minute later.
            self.books.charge(number, now.tick, tick, -i64::from(requests), -tokens);
        }
        self.serve(table, org, now, send);
    }

    fn look(&mut self, table: &LimitTable, look: &Look, now: Now, send: &mut impl Say) {
        let mut standing = Standing {
            number: look.number,
            requests: 0,
            tokens: 0,
            units: 0,
            held: Amounts::default(),
            period_end: Period::ALWAYS.end,
        };
        if let Some(chain) = table.chain(look.chain) {
            self.books.touch(table, look.chain, chain, (now.tick, self.second), &self.faults);
            if let Some((row, level)) = table.levels_of(chain).nth(look.nth.into()) {
                let (counted, held) = self.books.apart(row, now.tick, &self.faults);
                standing.requests = counted[Measure::Requests as usize];
                standing.tokens = counted[Measure::Tokens as usize];
                standing.units = counted[Measure::Budget as usize];
                Measure::ALL.iter().for_each(|measure| standing.held.set(*measure, held[*measure as usize]));
                standing.period_end = table.period(level, self.second).end;
            }
        }
        send(look.home, ToHome::Stands(standing));
    }

    /// A newer table: those who asked by it can be served.
    pub fn keep_to(&mut self, table: &LimitTable, now: Now, mut send: impl Say) {
        self.see(now.second);
        for org in std::mem::take(&mut self.early) {
            self.serve(table, org, now, &mut send);
        }
    }

    /// Once a tick: lets go of what counts nothing.
    pub fn tick(&mut self, now: Now) {
        if self.faults.planted(Fault::LapsesByOwnersClock) {
            self.books.lapse(now.tick);
        }
        self.books.sweep(now.tick);
    }

    /// Decides the parked asks of an organisation in order, as far as it can.
    fn serve(&mut self, table: &LimitTable, hash: u64, now: Now, send: &mut impl Say) {
        let Some(org) = self.orgs.get_mut(&hash) else { return };
        while let Some(asked) = org.parked.front().copied() {
            let Some(chain) = table.chain(asked.chain) else {
                // Both numbers are the low halves of a count that rises.
                if (asked.generation.wrapping_sub(table.generation() as u32) as i32) > 0 {
                    if !self.early.contains(&hash) {
                        self.early.push(hash);
                    }
                    return;
                }
                org.parked.pop_front();
                let remaining = Remaining::default();
                send(asked.home, ToHome::Verdict(Verdict { number: asked.number, remaining, word: Word::Free }));
                continue;
            };
            let (books, faults) = (&mut self.books, &self.faults);
            let stamp = (now.tick, self.second);
            books.touch(table, asked.chain, chain, stamp, faults);
            let is_refill = asked.what == Want::Refill;
            let mut free = books.free(table, chain, now.tick, faults);
            let fits = |measure: &Measure| free[*measure as usize].is_none_or(|free| free >= asked.ask.of(*measure));
            let fits_all = Measure::ALL.iter().filter(|measure| asked.ask.of(**measure) > 0).all(fits);
            let refused = if fits_all || is_refill {
                None
            } else {
                if !faults.planted(Fault::RefusesWithoutRecall) {
                    // Each time: what lacks room may have changed while slices were on their way back.
                    let sent = recall(books, org, table, chain, &asked, now, self.core_count, faults, send);
                    org.recalls_out += sent;
                    self.tally.recalls += u64::from(sent);
                }
                if org.recalls_out > 0 && !faults.planted(Fault::RefusesWithoutRecall) {
                    return;
                }
                Some(why(books, table, chain, &asked, (now.tick, self.second), faults))
            };
            let word = match refused {
                Some(refused) => {
                    self.tally.refused[refused.measure as usize] += 1;
                    Word::No(refused)
                }
                None => {
                    if !is_refill {
                        self.tally.granted += 1;
                        books.charge(asked.chain, now.tick, now.tick, asked.ask.requests.into(), asked.ask.tokens);
                        books.hold(asked.chain, asked.home, asked.ask.stocks(), 1);
                        take(&mut free, &asked.ask);
                    }
                    let slice = if org.recalls_out > 0 || org.parked.len() > 1 {
                        Amounts::default()
                    } else {
                        let most = share(&free, chain, &asked, self.core_count);
                        let wanted = most.and_then(|most| {
                            let doublings = books.held(asked.chain, asked.home)?.lend(now.tick);
                            Some(slice(&most, &asked, doublings.saturating_add(self.doublings)))
                        });
                        wanted.unwrap_or_default()
                    };
                    if !slice.is_zero() {
                        self.tally.slices += 1;
                        if faults.planted(Fault::ChargesAtGrant) {
                            books.charge(asked.chain, now.tick, now.tick, slice.requests.into(), slice.tokens);
                            books.hold(asked.chain, asked.home, slice.stocks(), 1);
                        } else {
                            books.hold(asked.chain, asked.home, slice, 1);
                        }
                        take(&mut free, &slice);
                        if let Some(book) = books.chain(asked.chain).filter(|book| book.leased_at.is_none()) {
                            book.leased_at = Some(org.leased.len() as u32);
                            org.leased.push(asked.chain);
                        }
                    }
                    let slices = books.note(asked.chain, asked.home, |held| {
                        held.slices = held.slices.wrapping_add(u16::from(!slice.is_zero()));
                        held.since = now.tick;
                        held.slices
                    });
                    let slices = slices.unwrap_or(0);
                    Word::Yes { slice, version: chain.version, tick: now.tick, second: self.second, slices }
                }
            };
            org.parked.pop_front();
            let remaining = remaining(&free);
            send(asked.home, ToHome::Verdict(Verdict { number: asked.number, remaining, word }));
        }
        if org.leased.is_empty() && org.recalls_out == 0 {
            self.orgs.remove(&hash);
        }
    }

    /// Takes a chain off the list of those with slices, if none is out.
    fn unlist(&mut self, hash: u64, number: u32) {
        let Some(book) = self.books.chain(number) else { return };
        if book.homes.iter().any(|held| held.has_slice() || held.is_recalled) {
            return;
        }
        let Some(at) = book.leased_at.take() else { return };
        let has_it = |org: &Org| org.leased.get(at as usize) == Some(&number);
        // A chain that has come to another organisation since is on the list of the one before.
        let hash = match self.orgs.get(&hash).filter(|org| has_it(org)) {
            Some(_) => Some(hash),
            None => self.orgs.iter().find(|(_, org)| has_it(org)).map(|(hash, _)| *hash),
        };
        let Some(org) = hash.and_then(|hash| self.orgs.get_mut(&hash)) else { return };
        org.leased.swap_remove(at as usize);
        // The last has its place now.
        if let Some(moved) = org.leased.get(at as usize).and_then(|moved| self.books.chain(*moved)) {
            moved.leased_at = Some(at);
        }
    }

    fn see(&mut self, second: u32) {
        self.second = if self.faults.planted(Fault::ClockStepsBack) { second } else { self.second.max(second) };
    }

    /// What a level has counted and what is held of it, by measure: for tests and the simulator.
    pub fn at_level(&mut self, row: u32, now: Now) -> ([i64; 4], [i64; 4]) {
        self.books.apart(row, now.tick, &self.faults)
    }

    /// Asks that are not decided.
    pub fn parked_count(&self) -> usize {
        self.orgs.values().map(|org| org.parked.len()).sum()
    }

    /// Whether nothing is parked, recalled or out.
    pub fn is_idle(&self) -> bool {
        self.orgs.is_empty()
    }
}

/// Asks for the slices back that could help: those of chains with a level that lacks room. Answer: how many.
#[expect(clippy::too_many_arguments, reason = "one step of the decision, with what the decision has in hand")]
fn recall(
    books: &mut Books,
    org: &Org,
    table: &LimitTable,
    chain: &Chain,
    asked: &Reserve,
    now: Now,
    core_count: u32,
    faults: &impl Faults,
    send: &mut impl Say,
) -> u32 {
    let mut last = None;
    // A level may lack several measures.
    let once = |lack: super::books::Lack| (last.replace(lack.row) != Some(lack.row)).then_some(lack.row);
    let lacking: LevelList = books.lacking(table, chain, asked.ask, now.tick, faults).filter_map(once).collect();
    let mut sent = 0;
    // Its own first: where its key alone lacks room nobody else is looked at.
    for number in std::iter::once(&asked.chain).chain(&org.leased) {
        if lacking.iter().all(|row| books.out(row) == 0) {
            break;
        }
        if books.chain(*number).is_none_or(|book| book.leased_at.is_none() || !book.shares(&lacking)) {
            continue;
        }
        for home in (0..core_count).map(CoreId) {
            let slices = books.note(*number, home, |held| {
                held.is_out().then(|| {
                    held.is_recalled = true;
                    held.slices
                })
            });
            if let Some(slices) = slices.flatten() {
                sent += 1;
                send(home, ToHome::Recall { chain: *number, org: chain.org, slices });
            }
        }
    }
    sent
}

/// For what an ask is refused: of what is short, that which is short the longest.
fn why(
    books: &mut Books,
    table: &LimitTable,
    chain: &Chain,
    asked: &Reserve,
    (tick, second): (u32, u32),
    faults: &impl Faults,
) -> Refused {
    let mut longest: Option<Refused> = None;
    let lacks: [Option<(u32, Measure, i64)>; 32] = {
        let mut all = [None; 32];
        let lacking = books.lacking(table, chain, asked.ask, tick, faults);
        all.iter_mut().zip(lacking).for_each(|(to, lack)| *to = Some((lack.row, lack.measure, lack.short)));
        all
    };
    for (row, measure, short) in lacks.into_iter().flatten() {
        let Some(level) = table.level(row) else { continue };
        let wait = match measure {
            Measure::Requests | Measure::Tokens => books.frees_in(row, measure, short),
            Measure::Parallel => 1,
            Measure::Budget => table.period(level, second).end.saturating_sub(second),
        };
        if longest.is_none_or(|longest| longest.retry_s.is_some_and(|longest| wait > longest)) {
            let (scope, of_model, limit) = (level.scope, level.of_model, level.limit(measure).unwrap_or(0));
            longest = Some(Refused { measure, scope, of_model, limit, retry_s: Some(wait) });
        }
    }
    let (measure, scope) = (Measure::Requests, Scope::Key);
    longest.unwrap_or(Refused { measure, scope, of_model: false, limit: 0, retry_s: Some(1) })
}

/// The most that one home core may be lent: half of its share of what is free; none where that is too little to be
/// worth it.
fn share(free: &Free, chain: &Chain, asked: &Reserve, core_count: u32) -> Option<Amounts> {
    let mut most = Amounts::default();
    let cores = i64::from(core_count.max(1));
    for measure in chain.measures().iter().filter(|measure| asked.lacks.has(*measure)) {
        let Some(free) = free[measure as usize] else { continue };
        let share = (free / (2 * cores)).max(0).min(match measure {
            Measure::Requests | Measure::Parallel => COUNT_MAX,
            Measure::Tokens | Measure::Budget => i64::MAX,
        });
        let least = match measure {
            Measure::Requests => SLICE_REQUESTS_MIN,
            Measure::Parallel => SLICE_PARALLEL_MIN,
            Measure::Tokens | Measure::Budget => asked.ask.of(measure).saturating_mul(SLICE_ASKS_MIN),
        };
        if share < least {
            return None;
        }
        most.set(measure, share);
    }
    Some(most)
}

/// What is lent of that: what a key uses in about a second, by how fast it used its slices until now. Else the first
/// few keys below a level would have all of it, and the others none.
fn slice(most: &Amounts, asked: &Reserve, doublings: u8) -> Amounts {
    let mut slice = Amounts::default();
    for measure in Measure::ALL {
        let least = match measure {
            Measure::Requests => SLICE_REQUESTS,
            Measure::Parallel => SLICE_PARALLEL,
            Measure::Tokens | Measure::Budget => asked.ask.of(measure).max(1).saturating_mul(SLICE_REQUESTS),
        };
        slice.set(measure, most.of(measure).min(least.saturating_mul(1 << doublings.min(DOUBLINGS_MAX))));
    }
    slice
}

fn take(free: &mut Free, amounts: &Amounts) {
    for measure in Measure::ALL {
        if let Some(free) = &mut free[measure as usize] {
            *free -= amounts.of(measure);
        }
    }
}

fn remaining(free: &Free) -> Remaining {
    let of = |measure: Measure| free[measure as usize].unwrap_or(0).max(0);
    Remaining { requests: of(Measure::Requests).min(i64::from(i32::MAX)) as i32, tokens: of(Measure::Tokens) }
}
