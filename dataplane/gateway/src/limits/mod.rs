//! Tenants' limits on one core, from both sides: as home of requests that use what is left, and as owner of what their
//! organisations have used.
//!
//! A request that its core's lease covers is admitted with no message. Else the core that owns its organisation is
//! asked, and the request waits in a slot of its own; only this core closes the slot. What a request holds is a guard,
//! [`Held`], which gives back what was not used exactly once, whatever ends the request. What is decided is
//! `llmgw_router::limiter`; this room waits, sends, counts.

mod asking;
mod held;
mod look;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use llmgw_kit::clock::{Mono, Wall};
use llmgw_router::limiter::{Answer, Home, Now, Owner, Reservation, Reserved, ToHome, ToOwner, Truth};
use llmgw_router::message::CoreMessage;
use llmgw_router::metrics::CoreCells;
use llmgw_router::quota::{Amounts, LimitTable};
use llmgw_runtime::timer::timeout;
use llmgw_types::CoreId;

use self::asking::{Asking, Slot};
pub(crate) use self::held::Held;
use self::look::Looking;
use crate::lanes::Lanes;
use crate::quota::{NoQuota, Outcome};

/// How long an owner's word is waited for: it may need slices back from a core that stands still.
const QUOTA_WAIT: Duration = Duration::from_millis(50);

/// What this core says to itself.
enum Own {
    ToOwner(ToOwner),
    ToHome(ToHome),
}

/// See the module. Owner: one core.
pub(crate) struct Limits {
    lanes: Rc<Lanes>,
    cells: Arc<CoreCells>,
    home: RefCell<Home>,
    owner: RefCell<Owner>,
    table: RefCell<Arc<LimitTable>>,
    /// By the number of the question.
    open: RefCell<HashMap<u64, Slot>>,
    own: RefCell<VecDeque<Own>>,
    looking: RefCell<Vec<Looking>>,
    next_look: Cell<u64>,
    ticked: Cell<u32>,
    /// Called when something waits in the outbox.
    on_kept: Box<dyn Fn()>,
}

impl Limits {
    pub(crate) fn new(lanes: Rc<Lanes>, cells: Arc<CoreCells>, on_kept: impl Fn() + 'static) -> Rc<Self> {
        Rc::new(Self {
            home: RefCell::new(Home::new(lanes.core)),
            owner: RefCell::new(Owner::new(lanes.core_count())),
            lanes,
            cells,
            table: RefCell::default(),
            open: RefCell::default(),
            own: RefCell::default(),
            looking: RefCell::default(),
            next_look: Cell::new(0),
            ticked: Cell::new(0),
            on_kept: Box::new(on_kept),
        })
    }

    /// The chain that requests of a key to a model pass; `None` where nothing limits them.
    pub(crate) fn chain_of(&self, key: u32, model: &str) -> Option<u32> {
        self.table.borrow().chain_of(key, model)
    }

    /// The limits of the moment. Not to be kept across a wait.
    pub(crate) fn table(&self) -> std::cell::Ref<'_, Arc<LimitTable>> {
        self.table.borrow()
    }

    /// Takes newer limits: leases of what changed go back.
    pub(crate) fn keep_to(&self, table: Arc<LimitTable>) {
        // What it replaces is freed by whoever published it.
        drop(self.table.replace(table));
        {
            let table = self.table.borrow();
            self.home.borrow_mut().keep_to(&table, |org, message| self.say(org, message));
            self.owner.borrow_mut().keep_to(&table, now(), |home, message| self.tell(home, message));
        }
        self.pump();
    }

    /// Reserves the most that a request of that chain may use; `None` where nothing limits it.
    ///
    /// Cost: with a lease in hand, no message, no wait, no allocation. Errors: a limit is reached, or nobody says
    /// whether.
    pub(crate) async fn reserve(self: &Rc<Self>, chain: u32, ask: Amounts, now: Now) -> Result<Option<Held>, NoQuota> {
        let reserved = {
            let table = self.table.borrow();
            self.home.borrow_mut().reserve(&table, chain, ask, now, |org, message| self.say(org, message))
        };
        let answer = match reserved {
            Reserved::Free => return Ok(None),
            Reserved::Go(it, remaining) => {
                Outcome::Lease.count(&self.cells);
                // A refill may have been asked for on this very core.
                self.pump();
                return Ok(Some(Held { limits: self.clone(), it: Some(it), remaining }));
            }
            Reserved::Refused(refused) => {
                let remaining = self.home.borrow().remaining(chain).unwrap_or_default();
                return Err(NoQuota::Refused(refused, remaining));
            }
            Reserved::Overloaded => {
                Outcome::Overloaded.count(&self.cells);
                return Err(NoQuota::Overloaded);
            }
            Reserved::Wait(number) => {
                let mut asking = Asking::new(self, number);
                self.pump();
                timeout(QUOTA_WAIT, asking.answer()).await
            }
        };
        match answer {
            Ok(Answer::Free) => Ok(None),
            Ok(Answer::Go(it, remaining)) => {
                Outcome::Owner.count(&self.cells);
                Ok(Some(Held { limits: self.clone(), it: Some(it), remaining }))
            }
            Ok(Answer::Refused(refused, remaining)) => Err(NoQuota::Refused(refused, remaining)),
            Err(_) => {
                Outcome::Busy.count(&self.cells);
                Err(NoQuota::Busy)
            }
        }
    }

    /// Hears what another core says about limits.
    pub(crate) fn hear(&self, message: CoreMessage) {
        match message {
            CoreMessage::ToLimiter(message) => self.hear_as_owner(&message),
            CoreMessage::FromLimiter(message) => self.hear_as_home(&message),
            _ => return,
        }
        self.pump();
    }

    /// Called often; does its work once a tick.
    pub(crate) fn tick(&self) {
        let now = now();
        if self.ticked.replace(now.tick) == now.tick {
            return;
        }
        {
            let table = self.table.borrow();
            self.home.borrow_mut().tick(&table, now, |org, message| self.say(org, message));
        }
        self.owner.borrow_mut().tick(now);
        self.pump();
        let home = self.home.borrow().tally;
        let owner = self.owner.borrow().tally;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for (cell, count) in self.cells.limit_slices.iter().zip([owner.slices, owner.recalls, home.refills]) {
            cell.set(number(count));
        }
    }

    fn end(&self, it: Reservation, truth: Truth, now: Now) {
        self.home.borrow_mut().end(it, truth, now, |org, message| self.say(org, message));
        self.pump();
    }

    /// Says something to the owner of an organisation; to this very core once its hands are free. Answer: whether a
    /// question was taken, which a full lane does not.
    fn say(&self, org: u64, message: ToOwner) -> bool {
        let owner = self.lanes.owner_of_number(org as u32);
        if owner == self.lanes.core {
            self.own.borrow_mut().push_back(Own::ToOwner(message));
            return true;
        }
        let is_question = matches!(message, ToOwner::Reserve(_) | ToOwner::Look(_));
        let message = CoreMessage::ToLimiter(message);
        if is_question {
            return self.lanes.send(owner, message);
        }
        if !self.lanes.send_or_keep(owner, message) {
            (self.on_kept)();
        }
        true
    }

    fn tell(&self, home: CoreId, message: ToHome) {
        if home == self.lanes.core {
            self.own.borrow_mut().push_back(Own::ToHome(message));
        } else if !self.lanes.send_or_keep(home, CoreMessage::FromLimiter(message)) {
            (self.on_kept)();
        }
    }

    /// Hears what this core said to itself.
    fn pump(&self) {
        loop {
            let Some(own) = self.own.borrow_mut().pop_front() else { return };
            match own {
                Own::ToOwner(message) => self.hear_as_owner(&message),
                Own::ToHome(message) => self.hear_as_home(&message),
            }
        }
    }

    fn hear_as_owner(&self, message: &ToOwner) {
        let table = self.table.borrow();
        self.owner.borrow_mut().hear(&table, message, now(), |home, message| self.tell(home, message));
    }

    fn hear_as_home(&self, message: &ToHome) {
        match message {
            ToHome::Verdict(verdict) => {
                let answered = {
                    let table = self.table.borrow();
                    let mut home = self.home.borrow_mut();
                    home.verdict(&table, verdict, now(), |org, message| self.say(org, message))
                };
                if let Some((number, answer)) = answered {
                    self.answered(number, answer);
                }
            }
            ToHome::Recall { chain, org, slices } => {
                let mut home = self.home.borrow_mut();
                home.recall(*chain, *org, *slices, now(), |org, message| self.say(org, message));
            }
            ToHome::Stands(standing) => self.looked(standing),
        }
    }
}

/// A fresh reading: reservations are stamped by it.
fn now() -> Now {
    Now::of(Mono::now(), Wall::now())
}
