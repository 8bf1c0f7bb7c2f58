//! What was used of keys' limits, counted in one place: a request takes its lock when it is let in, and once more when
//! it ends.
//!
//! The decisions are those of `llmgw_router::limiter`, by one home core whose owner is at hand: whoever holds the lock
//! hears the owner's word at once, so nothing is lent, waited for or called back. Called by `reserve`; what a request
//! holds is a guard, kept by `finish`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llmgw_gateway::quota::{Denied, LimitAsk, NoQuota, Outcome, Rates};
use llmgw_kit::clock::{Mono, Wall};
use llmgw_router::limiter::message::{Look, Reserve};
use llmgw_router::limiter::{
    Answer, Home, Now, Owner, Remaining, Reservation, Reserved, Standing, ToHome, ToOwner, Truth,
};
use llmgw_router::metrics::CoreCells;
use llmgw_router::quota::{Amounts, LimitTable, Measures};
use llmgw_types::KeyIdx;
use llmgw_types::snapshot::ArchivedModelRoute;

use crate::state::CORE;

/// See the module.
pub(crate) struct Limits {
    /// Those of limits are written by whoever holds the lock.
    cells: Arc<CoreCells>,
    counting: Mutex<Counting>,
}

struct Counting {
    table: Arc<LimitTable>,
    home: Home,
    owner: Owner,
}

impl Limits {
    /// Nothing is limited until a table says so.
    pub(crate) fn new(cells: Arc<CoreCells>) -> Arc<Self> {
        let counting = Counting { table: Arc::default(), home: Home::new(CORE), owner: Owner::new(1) };
        Arc::new(Self { cells, counting: Mutex::new(counting) })
    }

    /// Takes newer limits.
    pub(crate) fn keep_to(&self, table: Arc<LimitTable>) {
        let older = std::mem::replace(&mut self.counting().table, table);
        // It may be large: not under the lock.
        drop(older);
    }

    /// Reserves the most that a request to that model may use; of what nothing limits, nothing is held.
    ///
    /// Errors: a limit is reached.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        model: &ArchivedModelRoute,
        ask: &LimitAsk,
        now: Now,
    ) -> Result<Option<(Held, Option<Rates>)>, Box<Denied>> {
        let amounts = ask.amounts(model.units.to_units());
        let mut counting = self.counting();
        let Some(chain) = counting.table.chain_of(ask.key().0, &model.name) else { return Ok(None) };
        match counting.reserve(chain, amounts, now) {
            Ok(None) => Ok(None),
            Ok(Some((it, remaining))) => {
                Outcome::Owner.count(&self.cells);
                let rates = Rates::of(&counting.table, chain, remaining, None);
                Ok(Some((Held { limits: self.clone(), it: Some(it) }, rates)))
            }
            Err(why) => {
                // What it is told is written without the lock.
                let table = counting.table.clone();
                drop(counting);
                Err(Box::new(Denied::of(&table, chain, why, &amounts)))
            }
        }
    }

    /// What is used of the levels above a key, by row.
    pub(crate) fn standings(&self, key: KeyIdx) -> Vec<(u32, Standing)> {
        let now = now();
        let Counting { table, owner, .. } = &mut *self.counting();
        let places = table.places_of(key.0).into_iter();
        let standings = places.filter_map(|(row, chain, nth)| {
            let look = ToOwner::Look(Look { home: CORE, number: 0, chain, nth });
            match hear(owner, table, &look, now)? {
                ToHome::Stands(standing) => Some((row, standing)),
                _ => None,
            }
        });
        standings.collect()
    }

    /// Counts what became of a request, with the lock that its cells want.
    pub(crate) fn count(&self, count: impl FnOnce(&CoreCells)) {
        let _writer = self.counting();
        count(&self.cells);
    }

    /// Lets go of what counts nothing any more. Called now and then.
    pub(crate) fn tick(&self) {
        self.counting().owner.tick(now());
    }

    fn end(&self, it: Reservation, truth: Truth, now: Now) {
        let Counting { table, home, owner } = &mut *self.counting();
        home.end(it, truth, now, |_, message| {
            hear(owner, table, &message, now);
            true
        });
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counting {
    fn reserve(&mut self, chain: u32, ask: Amounts, now: Now) -> Result<Option<(Reservation, Remaining)>, NoQuota> {
        let Self { table, home, owner } = self;
        let mut said = None;
        let reserved = home.reserve(table, chain, ask, now, |_, message| {
            said = hear(owner, table, &message, now);
            true
        });
        match reserved {
            Reserved::Free => return Ok(None),
            Reserved::Go(it, remaining) => return Ok(Some((it, remaining))),
            Reserved::Refused(refused) => return Err(NoQuota::Refused(refused, Remaining::default())),
            Reserved::Overloaded => return Err(NoQuota::Overloaded),
            Reserved::Wait(_) => {}
        }
        let Some(ToHome::Verdict(verdict)) = said else { return Err(NoQuota::Busy) };
        // With nothing lent it says nothing to that.
        match home.verdict(table, &verdict, now, |_, _| true) {
            Some((_, Answer::Go(it, remaining))) => Ok(Some((it, remaining))),
            Some((_, Answer::Refused(refused, remaining))) => Err(NoQuota::Refused(refused, remaining)),
            Some((_, Answer::Free)) | None => Ok(None),
        }
    }
}

/// Tells the owner something, and what it says to that.
fn hear(owner: &mut Owner, table: &LimitTable, message: &ToOwner, now: Now) -> Option<ToHome> {
    let message = match *message {
        // Its word is at hand for the next request too: nothing has to be lent.
        ToOwner::Reserve(asked) => ToOwner::Reserve(Reserve { lacks: Measures::default(), ..asked }),
        other => other,
    };
    let mut said = None;
    owner.hear(table, &message, now, |_, word| said = Some(word));
    said
}

/// What a request holds of its limits. Settled once: by [`Held::settle`], or as one that used nothing when it is
/// dropped.
pub(crate) struct Held {
    limits: Arc<Limits>,
    it: Option<Reservation>,
}

impl Held {
    /// When it was admitted: in whose period it counts. Units: unix seconds.
    pub(crate) fn second(&self) -> u32 {
        self.it.as_ref().map_or(0, |it| it.second)
    }

    /// The request is over `now`: what it did not use goes back, what it used beyond counts.
    pub(crate) fn settle(mut self, truth: Truth, now: Now) {
        if let Some(it) = self.it.take() {
            self.limits.end(it, truth, now);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(it) = self.it.take() {
            self.limits.end(it, Truth::default(), now());
        }
    }
}

/// A fresh reading.
fn now() -> Now {
    Now::of(Mono::now(), Wall::now())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
    use std::thread;

    use llmgw_router::quota::table::{ChainRow, KeyChains};
    use llmgw_router::quota::{Level, Measure, Scope};

    use super::*;

    /// One key, held to so many places and tokens.
    fn table(places: i64, tokens: i64) -> Arc<LimitTable> {
        let limits = [None, Some(tokens), Some(places), None];
        let level = Level { scope: Scope::Key, of_model: false, limits, budget: None };
        let row = ChainRow { levels: std::iter::once(0).collect(), org: 1, version: 1, counts_since: 1 };
        let keys = vec![KeyChains { all: Some(0), ..KeyChains::default() }];
        Arc::new(LimitTable::new(1, vec![Some(level)], vec![Some(row)], Vec::new()).with_keys(keys))
    }

    #[test]
    fn threads_that_race_hold_no_more_than_there_is_and_leave_what_they_used() {
        let limits = Limits::new(Arc::default());
        limits.keep_to(table(3, 1_000_000));
        let (running, most, used) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
        thread::scope(|scope| {
            for thread in 0..8 {
                let (limits, running, most, used) = (&limits, &running, &most, &used);
                scope.spawn(move || {
                    for turn in 0..2000 {
                        let taken = limits.counting().reserve(0, Amounts::of_request(100, 0), now());
                        let Ok(Some((it, _))) = taken else { continue };
                        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        let held = Held { limits: limits.clone(), it: Some(it) };
                        thread::yield_now();
                        running.fetch_sub(1, SeqCst);
                        // Every third one never ran.
                        if (thread + turn) % 3 == 0 {
                            continue;
                        }
                        used.fetch_add(7, SeqCst);
                        held.settle(Truth { ran: true, tokens: 7, units: 0 }, now());
                    }
                });
            }
        });
        let (counted, held) = limits.counting().owner.at_level(0, now());
        assert_eq!((counted[Measure::Tokens as usize], held), (used.into_inner(), [0; 4]));
        assert!((1..=3).contains(&most.into_inner()));
        assert!(limits.counting().home.is_idle() && limits.counting().owner.is_idle());
    }

    #[test]
    fn newer_limits_hold_from_the_next_request_on_and_what_runs_ends_by_them() {
        let limits = Limits::new(Arc::default());
        let reserve = || limits.counting().reserve(0, Amounts::of_request(100, 0), now());
        assert_eq!(reserve(), Ok(None), "nothing is limited yet");
        limits.keep_to(table(2, 1000));
        let Ok(Some((it, remaining))) = reserve() else { panic!("there is room") };
        assert_eq!(remaining.tokens, 900);
        limits.keep_to(table(1, 1000));
        assert!(matches!(reserve(), Err(NoQuota::Refused(refused, _)) if refused.measure == Measure::Parallel));
        drop(Held { limits: limits.clone(), it: Some(it) });
        assert!(matches!(reserve(), Ok(Some(_))));
    }
}
