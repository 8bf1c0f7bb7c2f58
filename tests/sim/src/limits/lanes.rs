//! What home cores and owners say to each other: lanes that keep order and overtake each other.

use llmgw_router::limiter::message::Word;
use llmgw_router::limiter::{Answer, Reservation, ToHome, ToOwner};
use llmgw_types::CoreId;

use super::check;
use super::ledger::{Excess, Kept};
use super::requests::{State, keep};
use super::world::{Message, World};
use crate::fired::Trouble;

impl World {
    fn message<T>(&mut self, what: T) -> Message<T> {
        self.said += 1;
        Message { number: self.said, what }
    }

    pub(super) fn send_up(&mut self, home: usize, out: Vec<(u64, ToOwner)>) {
        for (org, message) in out {
            let (owner, message) = (self.owner_of(org), self.message(message));
            self.up[home][owner].push_back(message);
        }
    }

    pub(super) fn send_down(&mut self, owner: usize, out: Vec<(CoreId, ToHome)>) {
        for (home, message) in out {
            if let ToHome::Verdict(verdict) = &message {
                self.decided(owner, home.idx(), verdict.number, &verdict.word);
            }
            if let ToHome::Recall { .. } = &message {
                self.fired.count(Trouble::Recalled);
            }
            self.log(|| format!("core {owner} to {}: {message:?}", home.0));
            let message = self.message(message);
            self.down[owner][home.idx()].push_back(message);
        }
    }

    /// The owner has decided: what it granted counts from here on.
    fn decided(&mut self, owner: usize, home: usize, number: u64, word: &Word) {
        if let Word::Yes { slice, .. } = word
            && !slice.is_zero()
        {
            self.fired.count(Trouble::SliceGiven);
        }
        let Some(at) = self.asked.get(&(home, number)).copied() else { return };
        let chain = self.requests[at].chain;
        match *word {
            Word::Yes { version, tick, second, .. } => {
                // What it asked for is limited as its home core knew.
                let measures = self.masks.get(&at).copied().unwrap_or_default();
                let (org, ask) = (self.shape.org_of(chain / 2).into(), self.requests[at].ask.only(measures));
                let it = Reservation { chain, org, version, measures, ask, tick, second };
                let generation = self.shape.generation_of(chain, version);
                self.ledger.admits(at, it, self.shape.rows(chain), generation);
            }
            Word::No(refused) => {
                self.fired.count(Trouble::RefusedByOwner);
                check::refused(self, owner, at, refused);
            }
            Word::Free => {}
        }
    }

    /// Hears one message, as home or as owner. Answer: whether there was one.
    pub(super) fn deliver(&mut self, core: usize) -> bool {
        let cores = self.plan.cores;
        let from = self.any_core();
        for step in 0..cores {
            let peer = (from + step) % cores;
            let is_up_first = self.chance.below(2) == 0;
            for is_up in [is_up_first, !is_up_first] {
                let heard = if is_up {
                    let message = self.up[peer][core].pop_front();
                    message.map(|message| (message.number, self.hear_as_owner(core, message.what)))
                } else {
                    let message = self.down[peer][core].pop_front();
                    message.map(|message| (message.number, self.hear_as_home(core, message.what)))
                };
                if let Some((number, ())) = heard {
                    let ups = self.up.iter().filter_map(|lanes| lanes[core].front()).map(|message| message.number);
                    let downs = self.down.iter().filter_map(|lanes| lanes[core].front()).map(|message| message.number);
                    if ups.chain(downs).any(|waiting| waiting < number) {
                        self.fired.count(Trouble::Overtaken);
                    }
                    return true;
                }
            }
        }
        false
    }

    fn hear_as_owner(&mut self, core: usize, message: ToOwner) {
        let (limits, now) = (self.tables[core].clone(), self.now());
        match &message {
            ToOwner::Settle(settle) => {
                let (levels, chain) = (self.shape.rows(settle.chain), limits.table.chain(settle.chain));
                if settle.tokens < 0 {
                    self.may_grow = true;
                    // Where a key counts that is gone is known only while something of it is held.
                    let generation = chain.map(|_| limits.table.generation());
                    let (tick, tokens) = (now.tick, -settle.tokens);
                    self.ledger.excess.push(Excess { levels, tick, tokens, generation });
                } else {
                    let is_of_other = chain.is_some_and(|chain| chain.version != settle.version);
                    if chain.is_none_or(|chain| settle.version < chain.counts_since) {
                        let (requests, tokens) = (settle.requests.into(), settle.tokens);
                        self.ledger.kept.push(Kept { levels, tick: settle.tick, requests, tokens });
                        self.fired.count(Trouble::RefundKept);
                    } else if is_of_other {
                        self.fired.count(Trouble::RefundByOther);
                    }
                }
            }
            ToOwner::Report(report) if report.back.units < 0 || report.back.tokens < 0 => self.may_grow = true,
            _ => {}
        }
        self.log(|| format!("core {core} hears {message:?}"));
        let mut down = Vec::new();
        self.owners[core].hear(&limits.table, &message, now, |home, message| down.push((home, message)));
        self.send_down(core, down);
    }

    fn hear_as_home(&mut self, core: usize, message: ToHome) {
        let (limits, now) = (self.tables[core].clone(), self.now());
        let mut out = Vec::new();
        match message {
            ToHome::Recall { chain, org, slices } => {
                self.homes[core].recall(chain, org, slices, now, |org, message| keep(&mut out, org, message));
            }
            ToHome::Verdict(verdict) => {
                let at = self.asked.remove(&(core, verdict.number));
                let answer =
                    self.homes[core].verdict(&limits.table, &verdict, now, |org, message| keep(&mut out, org, message));
                if let Some(at) = at {
                    self.waiting.retain(|waiting| *waiting != at);
                    self.answered(at, answer);
                }
            }
            ToHome::Stands(_) => {}
        }
        self.log(|| format!("core {core} says {out:?}"));
        self.send_up(core, out);
    }

    fn answered(&mut self, at: usize, answer: Option<(u64, Answer)>) {
        let is_gone = self.requests[at].is_gone;
        self.requests[at].state = match answer {
            Some((_, Answer::Go(it, _))) if !is_gone => {
                self.running.push(at);
                State::Running(it)
            }
            None if is_gone => {
                self.fired.count(Trouble::LateVerdict);
                self.over(at, false, 0, 0);
                State::Over
            }
            Some((_, Answer::Refused(..) | Answer::Free)) if !is_gone => State::Over,
            other => {
                self.breaks(format!("request {at}, gone: {is_gone}, is answered {other:?}"));
                State::Over
            }
        };
    }
}
