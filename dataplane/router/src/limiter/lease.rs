//! Slices of one chain in a home core's hand: what is left, what was used and not reported, what ended requests give
//! back.
//!
//! Owned by [`super::home`], which says when something is used or returned. Never decides whether a request goes.

use llmgw_types::CoreId;

use super::message::{Remaining, Report, Settle, ToOwner};
use super::{Fault, Faults, Now};
use crate::quota::window::WINDOW_TICKS;
use crate::quota::{Amounts, Chain, Measure, Measures, Period};

/// Ticks whose refunds one lease gathers; what finds no room is sent before.
const REFUNDS_MAX: usize = WINDOW_TICKS as usize + 1;

/// Slices of one chain, in hand.
#[derive(Default)]
pub(super) struct Lease {
    pub(super) left: Amounts,
    /// Not reported: requests and tokens in `tick`, units in the period of `second`.
    pub(super) used: Amounts,
    /// What it was after the newest slice; it is refilled when it is half of that.
    pub(super) full: Amounts,
    pub(super) tick: u32,
    pub(super) second: u32,
    pub(super) touched: u32,
    pub(super) version: u32,
    pub(super) org: u64,
    pub(super) span: Option<Period>,
    pub(super) slices: u16,
    /// Whether it lives: what comes back goes to it.
    pub(super) keep: bool,
    pub(super) is_refilling: bool,
    pub(super) is_active: bool,
    /// What the owner had left besides.
    pub(super) beside: Remaining,
    /// Of ended requests, by the tick of their admission.
    pub(super) refunds: Vec<Refund>,
}

#[derive(Clone, Copy)]
pub(super) struct Refund {
    pub(super) tick: u32,
    pub(super) version: u32,
    pub(super) requests: i32,
    pub(super) tokens: i64,
}

/// What of a lease goes back with a report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    Nothing,
    All,
}

/// What a report answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    Nothing,
    /// The lease is given up by itself.
    Closing,
    Recall,
}

impl Lease {
    pub(super) fn remaining(&self) -> Remaining {
        Remaining {
            requests: self.beside.requests.max(0).saturating_add(self.left.requests),
            tokens: self.beside.tokens.max(0).saturating_add(self.left.tokens),
        }
    }

    /// Of what there is less than half of what there was after the newest slice, or less than a request asks for.
    pub(super) fn lacking(&self, measures: Measures, ask: &Amounts) -> Measures {
        let is_low = |measure: &Measure| {
            let (full, left) = (self.full.of(*measure), self.left.of(*measure));
            full == 0 || left < full / 2 || left < ask.of(*measure)
        };
        measures.iter().filter(is_low).fold(Measures::default(), Measures::with)
    }

    pub(super) fn is_low(&self, measures: Measures) -> bool {
        measures.iter().any(|measure| {
            let full = self.full.of(measure);
            full > 0 && self.left.of(measure) < full / 2
        })
    }

    /// Before something is used in this tick: what was used in another is reported.
    pub(super) fn roll(
        &mut self,
        core: CoreId,
        number: u32,
        now: Now,
        faults: &impl Faults,
        send: &mut impl FnMut(ToOwner),
    ) {
        if self.tick != now.tick && (self.used.requests != 0 || self.used.tokens != 0) {
            self.stamp_late(faults, now);
            self.report(core, number, Back::Nothing, Answers::Nothing, faults, send);
        }
        self.tick = now.tick;
    }

    pub(super) fn stamp_late(&mut self, faults: &impl Faults, now: Now) {
        if faults.planted(Fault::UseStampedAtReport) {
            self.tick = now.tick;
        }
    }

    /// Adds to what is to be given back. Answer: whether there was room.
    pub(super) fn gather(&mut self, refund: Refund) -> bool {
        let at = self.refunds.iter().position(|known| (known.tick, known.version) == (refund.tick, refund.version));
        if let Some(known) = at.and_then(|at| self.refunds.get_mut(at)) {
            known.requests += refund.requests;
            known.tokens += refund.tokens;
            return true;
        }
        let has_room = self.refunds.len() < REFUNDS_MAX;
        if has_room {
            self.refunds.push(refund);
        }
        has_room
    }

    /// Gives back what was gathered, and reports what was used before: what nobody has counted yet cannot be taken back
    /// from its tick.
    pub(super) fn pay_refunds(
        &mut self,
        core: CoreId,
        number: u32,
        faults: &impl Faults,
        send: &mut impl FnMut(ToOwner),
    ) {
        if !self.refunds.is_empty() && (self.used.requests != 0 || self.used.tokens != 0) {
            self.report(core, number, Back::Nothing, Answers::Nothing, faults, send);
        }
        let org = self.org;
        self.refunds.drain(..).for_each(|refund| send(refund.settle(org, number)));
    }

    /// Gives everything back: the lease is over.
    pub(super) fn close(&mut self, core: CoreId, number: u32, faults: &impl Faults, send: &mut impl FnMut(ToOwner)) {
        self.pay_refunds(core, number, faults, send);
        self.report(core, number, Back::All, Answers::Closing, faults, send);
        self.keep = false;
    }

    pub(super) fn report(
        &mut self,
        core: CoreId,
        number: u32,
        back: Back,
        answers: Answers,
        faults: &impl Faults,
        send: &mut impl FnMut(ToOwner),
    ) {
        let mut given = if back == Back::All { std::mem::take(&mut self.left) } else { Amounts::default() };
        if faults.planted(Fault::SliceLost) {
            given = Amounts::default();
        }
        let used = std::mem::take(&mut self.used);
        send(ToOwner::Report(Report {
            home: core,
            chain: number,
            used_requests: used.requests,
            used_tokens: used.tokens,
            used_units: used.units,
            back: given,
            tick: self.tick,
            second: self.second,
            slices: self.slices,
            closes: answers != Answers::Nothing,
            answers: answers == Answers::Recall,
        }));
    }
}

impl Refund {
    pub(super) fn settle(self, org: u64, chain: u32) -> ToOwner {
        let Self { tick, version, requests, tokens } = self;
        ToOwner::Settle(Settle { org, chain, version, tick, requests, tokens })
    }
}

/// Whether a lease is of other limits or of another period.
pub(super) fn is_void(faults: &impl Faults, lease: &Lease, chain: &Chain, second: u32) -> bool {
    let is_old = lease.version != chain.version && !faults.planted(Fault::LeaseAfterRevoke);
    let is_over = lease.span.is_none_or(|span| second >= span.end) && !faults.planted(Fault::LeaseOverPeriod);
    is_old || is_over
}
