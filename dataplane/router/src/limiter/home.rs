//! The home core's half: admits requests from slices in its hands, asks where they do not do, gives back what was not
//! used.
//!
//! One on every core, called by its request path and by its loop. Invariant: every reservation ends in exactly one
//! [`Home::end`], every question in exactly one verdict, every recall in exactly one report. What a slice of a stock is
//! lent out for comes back to the slice, while that lives, else to the owner. Never waits, sends or reads a clock.

use llmgw_types::CoreId;

use super::lease::{Answers, Back, Lease, Refund, is_void};
use super::message::{Refused, Remaining, Report, Reserve, Settle, ToOwner, Verdict, Want, Word};
use super::{Fault, Faults, Now, Sound};
use crate::admission::slab::Slab;
use crate::quota::window::WINDOW_TICKS;
use crate::quota::{Amounts, Chain, LimitTable, Measure, Measures, Period, Scope};

/// Ticks for which an unused lease is kept.
const IDLE_TICKS: u32 = 2;
/// Questions that one core has open; a request beyond them is refused as overloaded.
pub const ASKED_MAX: usize = 8192;
/// In the number of a question: it is a refill, and the rest is its chain.
const REFILL: u64 = 1 << 63;

/// What a request holds from its admission to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub chain: u32,
    pub org: u64,
    /// Of the chain, by which it was charged.
    pub version: u32,
    /// What is limited of it.
    pub measures: Measures,
    pub ask: Amounts,
    pub tick: u32,
    /// In whose period it counts. Units: unix seconds.
    pub second: u32,
}

/// What a request used in truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Whether an engine was asked; else nothing of it counts, nor the request itself.
    pub ran: bool,
    pub tokens: i64,
    /// Millionths of a budget unit.
    pub units: i64,
}

/// What comes of asking for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Nothing limits it.
    Free,
    Go(Reservation, Remaining),
    /// The owner is asked; its answer has this number, which no other question gets while anybody may hold it: an
    /// answer is taken in a later turn than it comes.
    Wait(u64),
    Refused(Refused),
    /// The owner has more to do than it can, or this core has too many questions open.
    Overloaded,
}

/// The owner's answer to a question that still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Free,
    Go(Reservation, Remaining),
    Refused(Refused, Remaining),
}

/// What a core went through, added up until it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeTally {
    /// Requests admitted from a lease, with no message to wait for.
    pub from_lease: u64,
    /// Requests whose owner was asked.
    pub asked: u64,
    /// Requests refused from the table alone.
    pub refused_here: u64,
    /// Slices asked for beside the work.
    pub refills: u64,
    /// Leases taken back by their owners.
    pub recalled: u64,
}

struct Asked {
    /// Its row and the count of questions, so that no two that anybody may still speak of have the same.
    number: u64,
    chain: u32,
    org: u64,
    measures: Measures,
    ask: Amounts,
    is_open: bool,
}

/// See the module. Owner: one core.
pub struct Home<F = Sound> {
    core: CoreId,
    /// By chain.
    leases: Vec<Option<Box<Lease>>>,
    /// Chains whose lease holds something.
    active: Vec<u32>,
    asked: Slab<Asked>,
    /// Questions asked until now.
    question: u32,
    /// The latest second that was seen: it does not go back.
    second: u32,
    faults: F,
    pub tally: HomeTally,
}

/// What carries a message to the owner of an organisation. Answer: whether it was taken; a [`Reserve`] may not be,
/// whatever else is said must be.
pub trait Say: FnMut(u64, ToOwner) -> bool {}
impl<T: FnMut(u64, ToOwner) -> bool> Say for T {}

impl Home {
    pub fn new(core: CoreId) -> Self {
        Self::with(core, Sound)
    }
}

impl<F: Faults> Home<F> {
    /// One with mistakes planted.
    pub fn with(core: CoreId, faults: F) -> Self {
        let (leases, active, asked) = (Vec::new(), Vec::new(), Slab::default());
        Self { core, leases, active, asked, question: 0, second: 0, faults, tally: HomeTally::default() }
    }

    /// Asks for what a request may use at most, of every level of its chain.
    pub fn reserve(&mut self, table: &LimitTable, number: u32, ask: Amounts, now: Now, mut send: impl Say) -> Reserved {
        let Some(chain) = table.chain(number) else { return Reserved::Free };
        let second = self.see(now);
        let ask = ask.only(chain.measures());
        if let Some(measure) = chain.lacks_for_good(&ask) {
            self.tally.refused_here += 1;
            return Reserved::Refused(refused_for_good(table, chain, measure, &ask));
        }
        let measures = chain.measures();
        let mut lacks = measures;
        if let Some(lease) = self.leases.get_mut(number as usize).and_then(Option::as_deref_mut)
            && lease.keep
        {
            if is_void(&self.faults, lease, chain, second) {
                let mut send = to(&mut send, chain.org);
                lease.close(self.core, number, &self.faults, &mut send);
            } else if lease.left.covers(&ask) {
                lease.roll(self.core, number, now, &self.faults, &mut to(&mut send, chain.org));
                lease.left -= ask;
                (lease.used.requests, lease.used.tokens) =
                    (lease.used.requests + ask.requests, lease.used.tokens + ask.tokens);
                lease.touched = now.tick;
                let version = lease.version;
                let go = Reservation { chain: number, org: chain.org, version, measures, ask, tick: now.tick, second };
                let remaining = lease.remaining();
                if lease.is_low(measures) && !lease.is_refilling {
                    let want = (lease.lacking(measures, &ask), Want::Refill);
                    let refill = reserve_of(self.core, REFILL | u64::from(number), table, chain, number, ask, want);
                    lease.is_refilling = send(chain.org, ToOwner::Reserve(refill));
                    self.tally.refills += u64::from(lease.is_refilling);
                }
                self.tally.from_lease += 1;
                return Reserved::Go(go, remaining);
            } else {
                lacks = lease.lacking(measures, &ask);
            }
        }
        if self.asked.len() >= ASKED_MAX {
            return Reserved::Overloaded;
        }
        let row = self.asked.insert(Asked { number: 0, chain: number, org: chain.org, measures, ask, is_open: true });
        let question = u64::from(self.question) << 32 & !REFILL | u64::from(row);
        if !self.faults.planted(Fault::NumberUsedAgain) {
            self.question = self.question.wrapping_add(1);
        }
        if let Some(asked) = self.asked.get_mut(row) {
            asked.number = question;
        }
        let asked = reserve_of(self.core, question, table, chain, number, ask, (lacks, Want::Use));
        if !send(chain.org, ToOwner::Reserve(asked)) {
            self.asked.remove(row);
            return Reserved::Overloaded;
        }
        self.tally.asked += 1;
        Reserved::Wait(question)
    }

    /// Nobody waits for that answer any more: its client left, or the owner took too long. What a late yes brings goes
    /// back.
    pub fn leave(&mut self, number: u64) {
        if let Some(asked) = self.asked.get_mut(number as u32).filter(|asked| asked.number == number) {
            asked.is_open = false;
        }
    }

    /// Hears the owner's answer. Answer: what the request that waits for it goes on with, if it still does.
    pub fn verdict(
        &mut self,
        table: &LimitTable,
        verdict: &Verdict,
        now: Now,
        mut send: impl Say,
    ) -> Option<(u64, Answer)> {
        self.see(now);
        if verdict.number & REFILL != 0 {
            let number = (verdict.number & !REFILL) as u32;
            let lease = self.lease(number);
            lease.is_refilling = false;
            if matches!(verdict.word, Word::Yes { slice, .. } if slice.is_zero()) {
                // Nothing more is to be had for the moment.
                lease.full = lease.left;
            }
            let org = lease.org;
            self.take_slice(table, number, org, verdict, now, &mut to(&mut send, org));
            return None;
        }
        let row = verdict.number as u32;
        self.asked.get(row).filter(|asked| asked.number == verdict.number)?;
        let Asked { chain, org, measures, ask, is_open, .. } = self.asked.remove(row)?;
        let answer = match verdict.word {
            Word::Free => Answer::Free,
            Word::No(refused) => Answer::Refused(refused, verdict.remaining),
            Word::Yes { version, tick, second, .. } => {
                self.take_slice(table, chain, org, verdict, now, &mut to(&mut send, org));
                let reservation = Reservation { chain, org, version, measures, ask, tick, second };
                if !is_open {
                    if !self.faults.planted(Fault::LateVerdictIgnored) {
                        self.end(reservation, Truth::default(), now, send);
                    }
                    return None;
                }
                Answer::Go(reservation, verdict.remaining)
            }
        };
        is_open.then_some((verdict.number, answer))
    }

    /// Puts a slice into the lease.
    fn take_slice(
        &mut self,
        table: &LimitTable,
        number: u32,
        org: u64,
        verdict: &Verdict,
        now: Now,
        send: &mut impl FnMut(ToOwner),
    ) {
        let Word::Yes { slice, version, second, slices, .. } = verdict.word else { return };
        self.second = self.second.max(second);
        let core = self.core;
        self.lease(number);
        let Some(lease) = self.leases.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
        lease.beside = verdict.remaining;
        if slice.is_zero() {
            return;
        }
        let is_other = lease.version != version || lease.span.is_none_or(|span| !span.has(second));
        if lease.keep && is_other {
            // What is in hand is of another time or other limits; this slice is not, and lives on.
            lease.pay_refunds(core, number, &self.faults, send);
            lease.report(core, number, Back::All, Answers::Nothing, &self.faults, send);
        }
        let is_new = !lease.keep || is_other;
        if is_new {
            let span = table.chain(number).map_or(Period::ALWAYS, |chain| table.span(chain, second));
            (lease.span, lease.second, lease.version) = (Some(span), second, version);
        }
        (lease.slices, lease.org, lease.keep, lease.touched) = (slices, org, true, now.tick);
        lease.left += slice;
        for measure in Measure::ALL.into_iter().filter(|measure| is_new || slice.of(*measure) > 0) {
            lease.full.set(measure, lease.left.of(measure));
        }
        if !std::mem::replace(&mut lease.is_active, true) {
            self.active.push(number);
        }
    }

    /// A request has ended, or never ran.
    pub fn end(&mut self, reservation: Reservation, truth: Truth, now: Now, mut send: impl Say) {
        self.see(now);
        let times = if self.faults.planted(Fault::SettledTwice) && truth.ran { 2 } else { 1 };
        for _ in 0..times {
            self.end_once(&reservation, &truth, now, &mut to(&mut send, reservation.org));
        }
    }

    fn end_once(&mut self, it: &Reservation, truth: &Truth, now: Now, send: &mut impl FnMut(ToOwner)) {
        let Reservation { chain, org, version, ask, .. } = *it;
        let core = self.core;
        let faults = &self.faults;
        let mut lease = self.leases.get_mut(chain as usize).and_then(Option::as_deref_mut).filter(|lease| lease.keep);
        let (tokens, units) = if truth.ran { (truth.tokens, truth.units) } else { (0, 0) };
        // Windows.
        let requests = if truth.ran { 0 } else { ask.requests };
        let tokens = if it.measures.has(Measure::Tokens) { ask.tokens - tokens } else { 0 };
        if tokens < 0 && !faults.planted(Fault::ExcessForgotten) {
            let excess = -tokens;
            match lease.as_deref_mut().filter(|lease| lease.version == version && lease.left.tokens >= excess) {
                Some(lease) => {
                    lease.roll(core, chain, now, faults, send);
                    lease.left.tokens -= excess;
                    lease.used.tokens += excess;
                }
                None => send(ToOwner::Settle(Settle { org, chain, version, tick: now.tick, requests: 0, tokens })),
            }
        }
        let back = tokens.max(0);
        let tick = if faults.planted(Fault::RefundInCurrentTick) { now.tick } else { it.tick };
        if (requests > 0 || back > 0) && now.tick.saturating_sub(tick) <= WINDOW_TICKS {
            let refund = Refund { tick, version, requests, tokens: back };
            match lease.as_deref_mut() {
                Some(lease) => {
                    if !lease.gather(refund) {
                        lease.pay_refunds(core, chain, faults, send);
                        lease.gather(refund);
                    }
                }
                None => send(refund.settle(org, chain)),
            }
        }
        // Stocks.
        if !(it.measures.has(Measure::Parallel) || it.measures.has(Measure::Budget)) {
            return;
        }
        let units = if it.measures.has(Measure::Budget) { units } else { 0 };
        let mut back = Amounts { units: ask.units - units, ..ask.stocks() };
        if faults.planted(Fault::PlaceKept) && !truth.ran {
            back.parallel = 0;
        }
        let is_of_now = |lease: &&mut Lease| lease.span.is_some_and(|span| span.has(it.second));
        let blurs = faults.planted(Fault::OldPeriodCounted) || faults.planted(Fault::LeaseOverPeriod);
        // What was used beyond the reservation is the owner's to know at once, unless what is in hand covers it.
        let covers = |lease: &&mut Lease| lease.left.units + back.units >= 0;
        match lease.filter(|lease| is_of_now(lease) || blurs).filter(covers) {
            Some(lease) => {
                lease.left += back;
                lease.used.units += units;
            }
            None => {
                let second = if faults.planted(Fault::OldPeriodCounted) { now.second } else { it.second };
                send(ToOwner::Report(Report {
                    home: core,
                    chain,
                    used_requests: 0,
                    used_tokens: 0,
                    used_units: units,
                    back,
                    tick: now.tick,
                    second,
                    slices: 0,
                    closes: false,
                    answers: false,
                }));
            }
        }
    }

    /// The owner wants back what is left.
    pub fn recall(&mut self, number: u32, org: u64, slices: u16, now: Now, mut send: impl Say) {
        self.see(now);
        self.tally.recalled += 1;
        let core = self.core;
        let faults = &self.faults;
        let mut send = to(&mut send, org);
        match self.leases.get_mut(number as usize).and_then(Option::as_deref_mut) {
            Some(lease) => {
                if !faults.planted(Fault::RefundsKept) {
                    lease.pay_refunds(core, number, faults, &mut send);
                }
                lease.slices = slices;
                let left = lease.left;
                lease.report(core, number, Back::All, Answers::Recall, faults, &mut send);
                lease.keep = false;
                if faults.planted(Fault::KeepsAfterRecall) {
                    (lease.keep, lease.left) = (true, left);
                }
            }
            None => {
                let mut nothing = Lease { slices, ..Lease::default() };
                nothing.report(core, number, Back::All, Answers::Recall, faults, &mut send);
            }
        }
    }

    /// Once a tick: reports what was used, and gives back what nobody uses or what is of other limits or another time.
    pub fn tick(&mut self, table: &LimitTable, now: Now, mut send: impl Say) {
        let second = self.see(now);
        let Self { core, leases, active, faults, .. } = self;
        active.retain(|number| {
            let Some(lease) = leases.get_mut(*number as usize).and_then(Option::as_deref_mut) else { return false };
            let mut send = to(&mut send, lease.org);
            let is_void = lease.keep
                && table
                    .chain(*number)
                    .map_or(!faults.planted(Fault::LeaseAfterRevoke), |chain| is_void(faults, lease, chain, second));
            let is_idle = lease.touched.saturating_add(IDLE_TICKS) <= now.tick;
            if lease.keep && (is_void || is_idle) {
                lease.close(*core, *number, faults, &mut send);
            }
            if !lease.used.is_zero() {
                lease.stamp_late(faults, now);
                lease.report(*core, *number, Back::Nothing, Answers::Nothing, faults, &mut send);
            }
            lease.pay_refunds(*core, *number, faults, &mut send);
            lease.is_active = lease.keep;
            lease.is_active
        });
    }

    /// A newer table: leases of chains that changed are given back.
    pub fn keep_to(&mut self, table: &LimitTable, mut send: impl Say) {
        let second = self.second;
        for number in &self.active {
            let lease = self.leases.get_mut(*number as usize).and_then(Option::as_deref_mut);
            let Some(lease) = lease.filter(|lease| lease.keep) else { continue };
            let is_void = table.chain(*number).map_or(!self.faults.planted(Fault::LeaseAfterRevoke), |chain| {
                is_void(&self.faults, lease, chain, second)
            });
            if is_void {
                let mut send = to(&mut send, lease.org);
                lease.close(self.core, *number, &self.faults, &mut send);
            }
        }
    }

    /// What is known to be left for a chain, without asking: of a lease in hand.
    pub fn remaining(&self, chain: u32) -> Option<Remaining> {
        let lease = self.leases.get(chain as usize)?.as_deref()?;
        lease.keep.then(|| lease.remaining())
    }

    /// What of slices is in hand, and what was used of them and not reported: for tests and the simulator.
    pub fn in_hand(&self, chain: u32) -> (Amounts, Amounts) {
        let lease = self.leases.get(chain as usize).and_then(Option::as_deref);
        lease.map_or_else(Default::default, |lease| (lease.left, lease.used))
    }

    /// Questions without a verdict.
    pub fn asked_count(&self) -> usize {
        self.asked.len()
    }

    /// Whether it holds nothing and waits for nothing.
    pub fn is_idle(&self) -> bool {
        let holds = |lease: &Lease| !lease.left.is_zero() || !lease.used.is_zero() || !lease.refunds.is_empty();
        self.asked.len() == 0 && !self.leases.iter().flatten().any(|lease| holds(lease))
    }

    fn see(&mut self, now: Now) -> u32 {
        self.second = self.second.max(now.second);
        if self.faults.planted(Fault::ClockStepsBack) {
            self.second = now.second;
        }
        self.second
    }

    fn lease(&mut self, number: u32) -> &mut Lease {
        let at = number as usize;
        if self.leases.len() <= at {
            self.leases.resize_with(at + 1, || None);
        }
        self.leases[at].get_or_insert_default()
    }
}

fn reserve_of(
    home: CoreId,
    number: u64,
    table: &LimitTable,
    chain: &Chain,
    chain_number: u32,
    ask: Amounts,
    (lacks, what): (Measures, Want),
) -> Reserve {
    let generation = table.generation() as u32;
    Reserve { home, number, org: chain.org, chain: chain_number, generation, ask, lacks, what }
}

fn to(send: &mut impl Say, org: u64) -> impl FnMut(ToOwner) {
    move |message| {
        // Only questions may find no room, and those are asked elsewhere.
        let _taken = send(org, message);
    }
}

/// More than the whole limit is asked for: whose limit that is.
fn refused_for_good(table: &LimitTable, chain: &Chain, measure: Measure, ask: &Amounts) -> Refused {
    let level =
        table.levels_of(chain).find(|(_, level)| level.limit(measure).is_some_and(|limit| ask.of(measure) > limit));
    let (scope, of_model) = level.map_or((Scope::Key, false), |(_, level)| (level.scope, level.of_model));
    let limit = level.and_then(|(_, level)| level.limit(measure)).unwrap_or(0);
    Refused { measure, scope, of_model, limit, retry_s: None }
}
