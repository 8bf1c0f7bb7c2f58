//! Places in pools on one core, from both sides: as home of requests that pass or wait, and as owner of queues.
//!
//! While a pool has room its gate is passed with no message. Where it has none the request is told to the core that
//! owns the gate and waits in a slot of its own until that core grants a place or refuses one; only this core closes
//! the slot. As owner, this core hears such requests, and a task of its own ([`Admission::keep`]) grants places, lets
//! deadlines pass, and sends nudges that are owed. What is decided is `llmgw_router::admission`; this room waits,
//! sends, counts.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use llmgw_kit::clock::Mono;
use llmgw_obs::rows::RowIdx;
use llmgw_router::Board;
use llmgw_router::admission::{Answer, Attempt, Controller, Gate, Limits, PoolGate, PoolPlace, Progress};
use llmgw_router::message::{CoreMessage, Enqueue, Refusal, Ticket, TicketPools};
use llmgw_router::metrics::CoreCells;
use llmgw_runtime::timer::timeout_at;
use llmgw_types::snapshot::ArchivedRouteTable;
use llmgw_types::{BoardSlot, CoreId, PoolSlot};

use crate::lanes::Lanes;

/// How long beyond its deadline a request waits for its owner's word: an owner that is stuck says none.
const OWNERS_TIME: Duration = Duration::from_secs(1);
/// How often pools that somebody waits for are looked at without a message: a net below the nudges.
const NET: Duration = Duration::from_millis(100);
/// Turns of the controller before this core's requests have one.
const TURNS: u32 = 8;
/// How soon what found no room in a lane, or in these turns, is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// A request's count in its pool.
pub(crate) type Place = PoolPlace<Arc<Board>>;

/// Places in [`llmgw_router::metrics::GATE_MESSAGES`].
#[derive(Clone, Copy)]
enum Sent {
    Enqueue = 0,
    Withdraw = 1,
    Nudge = 2,
    Granted = 3,
    Refused = 4,
}

/// Why a request has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    Refused(Refusal),
    /// This gateway ends and grants none any more.
    ShuttingDown,
}

/// Where the answer to a request that waits goes.
enum Slot {
    Waiting(Option<Waker>),
    Granted(Place),
    Refused(Refusal),
    /// Closed before there was an answer.
    Closed,
}

/// What a request asks for where it cannot pass.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    /// Where its band is counted.
    pub(crate) row: RowIdx,
    /// Hash of who shares a turn.
    pub(crate) tenant: u32,
    /// Units: tokens.
    pub(crate) cost: u32,
    /// What it holds while it waits.
    pub(crate) bytes: u32,
    /// Until when it may wait.
    pub(crate) deadline: Mono,
    /// How often it is told that it still waits, if it is a stream.
    pub(crate) heartbeat: Option<Duration>,
}

/// See the module. Owner: one core.
pub(crate) struct Admission {
    lanes: Rc<Lanes>,
    board: Arc<Board>,
    cells: Arc<CoreCells>,
    pub(crate) gate: Gate<Arc<Board>>,
    controller: RefCell<Controller<Arc<Board>>>,
    open: RefCell<HashMap<u64, Slot>>,
    next_number: Cell<u64>,
    /// Gates and pools of this core's table.
    pools: RefCell<HashSet<(u64, PoolSlot)>>,
    keeper: Rc<Keeper>,
    net_at: Cell<Mono>,
    is_unfinished: Rc<Cell<bool>>,
    is_draining: Cell<bool>,
}

impl Admission {
    pub(crate) fn new(lanes: Rc<Lanes>, board: Arc<Board>, cells: Arc<CoreCells>) -> Self {
        let keeper = Rc::new(Keeper::default());
        let called = keeper.clone();
        Self {
            gate: Gate::new(board.clone(), lanes.core, move || called.call()),
            controller: RefCell::new(Controller::new(board.clone(), lanes.core)),
            lanes,
            board,
            cells,
            open: RefCell::default(),
            next_number: Cell::new(0),
            pools: RefCell::default(),
            keeper,
            net_at: Cell::new(Mono(0)),
            is_unfinished: Rc::default(),
            is_draining: Cell::new(false),
        }
    }

    /// Has a request wait for the pools that it found shut in the table of `generation`. `gate` is whose queue they
    /// have.
    ///
    /// Called in the turn in which they were found so. Errors: the owner has more to do than it can, or this gateway
    /// ends.
    pub(crate) fn wait(
        &self,
        attempt: Attempt<Arc<Board>>,
        (gate, generation): (u64, u64),
        model: u32,
        asking: &Asking,
        now: Mono,
    ) -> Result<Waiting<'_>, NoPlace> {
        let counts = self.cells.bands.at(asking.row);
        let refuse = |why: NoPlace| {
            if let Some(count) = counts.rejected.get(why.row()) {
                count.increment();
            }
            Err(why)
        };
        let Some(owner) = attempt.shut().first().map(|pool| pool.owner) else {
            return refuse(NoPlace::Refused(Refusal::NoEndpoint));
        };
        if self.is_draining.get() {
            return refuse(NoPlace::ShuttingDown);
        }
        // The owner is part of the number: a grant that comes too late still says whose count it is.
        let number = (self.next_number.get() << 16) | u64::from(owner.0 & 0xffff);
        self.next_number.set(self.next_number.get() + 1);
        let ticket = Ticket { core: self.lanes.core, number };
        let Asking { row, tenant, cost, bytes, deadline, heartbeat } = *asking;
        let pools = attempt.pools();
        let asked = Enqueue { ticket, gate, generation, tenant, deadline, cost, bytes, pools, band: attempt.band() };
        self.open.borrow_mut().insert(number, Slot::Waiting(None));
        self.count(Sent::Enqueue);
        if owner == self.lanes.core {
            self.enqueue(&asked);
        } else if !self.lanes.send(owner, CoreMessage::Enqueue(asked)) {
            self.open.borrow_mut().remove(&number);
            return refuse(NoPlace::Refused(Refusal::Overloaded));
        }
        attempt.sent();
        counts.waiting.increment();
        let until = deadline + OWNERS_TIME;
        Ok(Waiting { admission: self, ticket, pools, model, began: now, until, heartbeat, row, end: End::Left })
    }

    /// Hears what is said to this core about places.
    pub(crate) fn hear(&self, message: CoreMessage) {
        match message {
            CoreMessage::Enqueue(asked) => self.enqueue(&asked),
            CoreMessage::Withdraw(ticket) => self.withdraw(ticket),
            CoreMessage::Nudge(pool) => {
                self.controller.borrow_mut().nudge(pool);
                self.keeper.call();
            }
            CoreMessage::Granted(ticket, pool) => self.granted(ticket, pool),
            CoreMessage::Refused(ticket, refusal) => self.refused(ticket, refusal),
            _ => {}
        }
    }

    fn enqueue(&self, asked: &Enqueue) {
        let pools = self.pools.borrow();
        self.controller.borrow_mut().enqueue(asked, |gate, pool| pools.contains(&(gate, pool)), self.answer());
        self.keeper.call();
    }

    fn withdraw(&self, ticket: Ticket) {
        self.controller.borrow_mut().withdraw(ticket);
        self.keeper.call();
    }

    /// What the controller's words become: a message, or what the message would do on this very core.
    fn answer(&self) -> impl FnMut(Ticket, Answer) + '_ {
        |ticket, answer| {
            let is_ours = ticket.core == self.lanes.core;
            match answer {
                Answer::Granted(pool) => {
                    self.count(Sent::Granted);
                    if is_ours {
                        self.granted(ticket, pool);
                    } else {
                        self.lanes.send_or_keep(ticket.core, CoreMessage::Granted(ticket, pool));
                    }
                }
                Answer::Refused(refusal) => {
                    self.count(Sent::Refused);
                    if is_ours {
                        self.refused(ticket, refusal);
                    } else {
                        self.lanes.send_or_keep(ticket.core, CoreMessage::Refused(ticket, refusal));
                    }
                }
            }
        }
    }

    fn granted(&self, ticket: Ticket, pool: PoolSlot) {
        let owner = CoreId((ticket.number & 0xffff) as u32);
        let place = self.gate.granted(PoolGate { slot: pool, owner });
        // A slot that is closed, or not there any more, gives the place back.
        self.put(ticket, Slot::Granted(place));
    }

    fn refused(&self, ticket: Ticket, refusal: Refusal) {
        self.put(ticket, Slot::Refused(refusal));
    }

    fn put(&self, ticket: Ticket, answer: Slot) {
        let mut open = self.open.borrow_mut();
        match open.get_mut(&ticket.number) {
            Some(slot @ Slot::Waiting(_)) => {
                if let Slot::Waiting(Some(waker)) = std::mem::replace(slot, answer) {
                    waker.wake();
                }
            }
            _ => {
                drop(open);
                drop(answer);
            }
        }
    }

    /// Counts this core's requests anew by a newer table, before the core says that it works with it.
    pub(crate) fn recount(&self, table: &ArchivedRouteTable) {
        if self.gate.held_count() > 0 {
            let mut members: HashMap<PoolSlot, HashSet<BoardSlot>> = HashMap::new();
            for pool in table.pools.iter() {
                let slots = pool.members.iter().filter_map(|member| {
                    Some(BoardSlot(table.endpoints.get(member.endpoint.to_native() as usize)?.slot.to_native()))
                });
                members.entry(PoolSlot(pool.slot.to_native())).or_default().extend(slots);
            }
            self.gate.recount(|pool, endpoint| match members.get(&pool) {
                Some(members) => members.contains(&endpoint) && !self.board.endpoint(endpoint).is_draining(),
                None => true,
            });
        }
    }

    /// Holds this core's queues to a newer table, before the core says that it works with it.
    pub(crate) fn keep_to(&self, table: &ArchivedRouteTable) {
        let limits = |model: &llmgw_types::snapshot::ArchivedModelRoute| Limits {
            per_band: model.admission.queue_capacity_per_band.to_native(),
            total: model.admission.queue_capacity_total.to_native(),
            bytes: model.admission.queue_bytes_max.to_native(),
        };
        // Models that share a gate are held to what the first of them is.
        let own = table.models.iter().rev().flat_map(|model| {
            let pools = model.pools.iter().filter_map(|row| table.pools.get(row.to_native() as usize));
            pools.map(move |pool| (pool.gate.to_native(), limits(model)))
        });
        let pools = table.pools.iter().map(|pool| (pool.gate.to_native(), PoolSlot(pool.slot.to_native())));
        *self.pools.borrow_mut() = pools.collect();
        let pools = self.pools.borrow();
        let mut controller = self.controller.borrow_mut();
        controller.set_limits(Limits::default(), own);
        let generation = table.generation.to_native();
        controller.keep_to(generation, |gate, pool| pools.contains(&(gate, pool)), self.answer());
        self.keeper.call();
    }

    /// Who waits is told to go elsewhere, and nobody waits from here on.
    pub(crate) fn drain(&self) {
        self.is_draining.set(true);
        for slot in self.open.borrow_mut().values_mut() {
            if let Slot::Waiting(waker) = slot {
                let waker = waker.take();
                *slot = Slot::Closed;
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// To be called when another room has something in the outbox: it is tried again soon.
    pub(crate) fn on_kept(&self) -> impl Fn() + 'static {
        let (is_unfinished, keeper) = (self.is_unfinished.clone(), self.keeper.clone());
        move || {
            is_unfinished.set(true);
            keeper.call();
        }
    }

    /// Does the owner's work as it comes, and sends what is owed. Ends with the core.
    pub(crate) async fn keep(&self) {
        loop {
            match self.next_look() {
                // Time that is up, or a call: both mean work.
                Some(at) => drop(timeout_at(at, self.keeper.called()).await),
                None => self.keeper.called().await,
            }
            self.work(Mono::now());
        }
    }

    fn next_look(&self) -> Option<Mono> {
        if self.is_unfinished.get() {
            return Some(Mono::now() + AGAIN);
        }
        let controller = self.controller.borrow();
        let deadline = controller.next_deadline();
        if controller.is_empty() {
            None
        } else {
            Some(deadline.map_or(self.net_at.get(), |at| at.min(self.net_at.get())))
        }
    }

    fn work(&self, now: Mono) {
        let mut controller = self.controller.borrow_mut();
        if controller.is_empty() {
            self.net_at.set(now + NET);
        }
        controller.expire(now, self.answer());
        if now >= self.net_at.get() {
            self.net_at.set(now + NET);
            controller.net();
        }
        let mut is_done = false;
        for _ in 0..TURNS {
            let is_paid = self.gate.pay(|pool| {
                self.count(Sent::Nudge);
                if pool.owner == self.lanes.core {
                    controller.nudge(pool.slot);
                    return true;
                }
                self.lanes.send(pool.owner, CoreMessage::Nudge(pool.slot))
            });
            is_done = controller.turn(self.answer()) == Progress::Done && is_paid;
            if is_done {
                break;
            }
        }
        self.cells.found_by_net.set(i64::try_from(controller.found_by_net()).unwrap_or(i64::MAX));
        let is_sent = self.lanes.flush();
        self.is_unfinished.set(!is_done || !is_sent);
    }

    fn count(&self, sent: Sent) {
        if let Some(count) = self.cells.gate_messages.get(sent as usize) {
            count.increment();
        }
    }
}

impl NoPlace {
    /// Its place in [`llmgw_router::metrics::REJECTIONS`], which begins with all refusals in their order.
    fn row(self) -> usize {
        match self {
            Self::Refused(refusal) => Refusal::ALL.iter().position(|known| *known == refusal).unwrap_or(0),
            Self::ShuttingDown => Refusal::ALL.len(),
        }
    }
}

/// A request that waits. Dropped, it leaves the queue, and gives back a place that it was granted and has not taken.
pub(crate) struct Waiting<'a> {
    admission: &'a Admission,
    ticket: Ticket,
    pools: TicketPools,
    /// Row of the model whose pools it waits for.
    pub(crate) model: u32,
    began: Mono,
    /// When it waits no longer, whatever its owner does.
    pub(crate) until: Mono,
    /// See [`Asking::heartbeat`].
    pub(crate) heartbeat: Option<Duration>,
    row: RowIdx,
    end: End,
}

/// How a wait ended, as it is counted.
#[derive(Clone, Copy)]
enum End {
    /// The client did not stay.
    Left,
    Placed,
    Refused(NoPlace),
    /// It is decided anew, and what comes of that counts.
    Anew,
}

impl Waiting<'_> {
    /// The place, or why there is none.
    pub(crate) async fn place(&mut self) -> Result<Place, NoPlace> {
        let (open, number) = (&self.admission.open, self.ticket.number);
        let answer = poll_fn(|cx| {
            let mut open = open.borrow_mut();
            match open.get_mut(&number) {
                Some(Slot::Waiting(waker)) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                Some(Slot::Closed) | None => Poll::Ready(None),
                Some(_) => Poll::Ready(open.remove(&number)),
            }
        });
        let outcome = match answer.await {
            Some(Slot::Granted(place)) => Ok(place),
            Some(Slot::Refused(refusal)) => Err(NoPlace::Refused(refusal)),
            _ => Err(NoPlace::ShuttingDown),
        };
        self.end = match &outcome {
            Ok(_) => End::Placed,
            Err(why) => End::Refused(*why),
        };
        outcome
    }

    /// Its own deadline has passed and its owner says nothing.
    pub(crate) fn give_up(&mut self) -> NoPlace {
        let why = NoPlace::Refused(Refusal::Ttl);
        self.end = End::Refused(why);
        why
    }

    /// Leaves the queue, because those it waits for are gone.
    pub(crate) fn moves_on(mut self) {
        self.end = End::Anew;
    }

    /// Whether it waits for that pool.
    pub(crate) fn is_for(&self, pool: PoolSlot) -> bool {
        self.pools.iter().any(|waited_for| waited_for == pool)
    }

    /// How long it has waited.
    pub(crate) fn waited(&self, now: Mono) -> Duration {
        now.since(self.began)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let slot = self.admission.open.borrow_mut().remove(&self.ticket.number);
        if let Some(Slot::Waiting(_) | Slot::Closed) = slot {
            let owner = CoreId((self.ticket.number & 0xffff) as u32);
            self.admission.count(Sent::Withdraw);
            if owner == self.admission.lanes.core {
                self.admission.withdraw(self.ticket);
            } else {
                self.admission.lanes.send_or_keep(owner, CoreMessage::Withdraw(self.ticket));
            }
        }
        drop(slot);
        let counts = self.admission.cells.bands.at(self.row);
        counts.waiting.decrement();
        counts.wait.observe(self.waited(Mono::now()));
        let end = match self.end {
            End::Left => counts.rejected.get(NoPlace::Refused(Refusal::ClientGone).row()),
            End::Placed => counts.admitted.get(1),
            End::Refused(why) => counts.rejected.get(why.row()),
            End::Anew => None,
        };
        if let Some(count) = end {
            count.increment();
        }
    }
}

/// Calls the task that keeps the gates.
#[derive(Default)]
struct Keeper {
    is_called: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Keeper {
    fn call(&self) {
        if !self.is_called.replace(true)
            && let Some(task) = self.task.borrow_mut().take()
        {
            task.wake();
        }
    }

    fn called(&self) -> impl Future<Output = ()> + '_ {
        poll_fn(|cx| {
            if self.is_called.replace(false) {
                return Poll::Ready(());
            }
            *self.task.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests;
