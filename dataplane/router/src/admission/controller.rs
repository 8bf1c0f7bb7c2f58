//! The owner's half of admission: keeps the queues of its gates and grants places, who goes next.
//!
//! One on every core, called by that core's loop with the messages of [`crate::message`]; answers go out through a
//! closure. Work is bounded: hearing a message costs a few list operations, and grants come from [`Controller::turn`],
//! so many at most a turn. Never waits, sends, reads a clock, or looks at engines.
//!
//! Invariants: a ticket ends in exactly one grant, refusal or withdrawal; `waiting` of a pool is the highest band with
//! a ticket for it, stored before the pool's load is summed again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use llmgw_kit::clock::Mono;
use llmgw_types::{BandRank, CoreId, PoolSlot};

use super::fairness::Turns;
use super::queue::{Limits, Line, Rank, Waiting};
use super::slab::{NONE, Slab};
use super::{BANDS_MAX, Cells, Fault, displace, sum};
use crate::message::{Enqueue, Refusal, Ticket};

/// Grants in one turn; then others have theirs.
pub const GRANTS_PER_TURN: usize = 64;
/// Deadlines of tickets that are gone already are swept when they are more than those that wait, and than this.
const DEADLINES_SPARE: usize = 64;

/// What a ticket is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has a place in that pool; this core has counted it.
    Granted(PoolSlot),
    /// It has none.
    Refused(Refusal),
}

/// Whether a turn got through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing more to do until a message or a deadline.
    Done,
    /// There is: come back after others had a turn.
    More,
}

/// What waits in one band of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Hash of the gate's base model.
    pub gate: u64,
    /// The band.
    pub band: BandRank,
    /// Requests.
    pub count: u32,
    /// What they hold in memory.
    pub bytes: u64,
}

/// One pool's queue: turns by band.
#[derive(Default)]
struct PoolQueue {
    turns: [Option<Box<Turns>>; BANDS_MAX + 1],
    /// What the cell says.
    shown: BandRank,
    /// It lies in the list of those to be pumped.
    is_listed: bool,
    /// Only the net had it listed.
    is_by_net: bool,
}

impl PoolQueue {
    fn top(&self) -> BandRank {
        let is_there = |turns: &Option<Box<Turns>>| turns.as_ref().is_some_and(|turns| !turns.is_empty());
        BandRank(self.turns.iter().rposition(is_there).unwrap_or(0) as u8)
    }

    fn bottom(&self) -> BandRank {
        let is_there = |turns: &Option<Box<Turns>>| turns.as_ref().is_some_and(|turns| !turns.is_empty());
        BandRank(self.turns.iter().position(is_there).unwrap_or(0) as u8)
    }
}

/// The queues of all gates that one core owns. Owner: that core.
pub struct Controller<C: Cells> {
    cells: C,
    core: CoreId,
    tickets: Slab<Waiting>,
    by_ticket: HashMap<Ticket, u32, ahash::RandomState>,
    /// By gate; one without anybody goes with the next table.
    lines: HashMap<u64, Line, ahash::RandomState>,
    limits: HashMap<u64, Limits>,
    usual: Limits,
    pools: HashMap<u32, PoolQueue, ahash::RandomState>,
    to_pump: VecDeque<PoolSlot>,
    deadlines: BinaryHeap<Reverse<(Mono, u32, u32)>>,
    stamps: u32,
    /// The table that this core works with.
    generation: u64,
    found_by_net: u64,
}

impl<C: Cells> Controller<C> {
    /// A controller for the gates that `core` owns; nobody waits.
    pub fn new(cells: C, core: CoreId) -> Self {
        Self {
            cells,
            core,
            tickets: Slab::default(),
            by_ticket: HashMap::default(),
            lines: HashMap::default(),
            limits: HashMap::new(),
            usual: Limits::default(),
            pools: HashMap::default(),
            to_pump: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            stamps: 0,
            generation: 0,
            found_by_net: 0,
        }
    }

    /// Bounds from here on: the usual ones, and those of gates that have their own. Who waits already stays.
    pub fn set_limits(&mut self, usual: Limits, own: impl IntoIterator<Item = (u64, Limits)>) {
        self.usual = usual;
        self.limits.clear();
        self.limits.extend(own);
        for (gate, line) in &mut self.lines {
            line.limits = self.limits.get(gate).copied().unwrap_or(usual);
        }
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What waits, by gate and band, in no order; bands in which nobody does are left out. For metrics: one pass over
    /// the gates.
    pub fn depths(&self) -> impl Iterator<Item = Depth> + '_ {
        self.lines.iter().flat_map(|(gate, line)| {
            (0u8..).zip(&line.ranks).filter(|(_, rank)| rank.count > 0).map(|(band, rank)| Depth {
                gate: *gate,
                band: BandRank(band),
                count: rank.count,
                bytes: rank.bytes,
            })
        })
    }

    /// Grants that only the net found, each a nudge that was lost: 0, unless there is a fault in the protocol.
    pub fn found_by_net(&self) -> u64 {
        self.found_by_net
    }

    /// Takes a ticket in, or refuses it, or others to make room for it. `is_known` says which pools of that gate are in
    /// the table that this core works with. The grant, if there is one, comes with the next [`Controller::turn`].
    pub fn enqueue(
        &mut self,
        asked: &Enqueue,
        is_known: impl Fn(u64, PoolSlot) -> bool,
        mut answer: impl FnMut(Ticket, Answer),
    ) {
        let Enqueue { ticket, band, bytes, gate, .. } = *asked;
        let mut refuse = |ticket, refusal| answer(ticket, Answer::Refused(refusal));
        // A pool that is not in our table is gone, and its slot may be another's, unless the asking table is newer:
        // then that is on its way here too.
        let is_ahead = asked.generation > self.generation;
        let pools = || asked.pools.iter().filter(|pool| is_ahead || is_known(gate, *pool));
        // What was tried and lowered on the way here is looked at in its place, whatever becomes of it.
        asked.pools.iter().for_each(|pool| self.list(pool));
        if pools().next().is_none() || band == BandRank::NOBODY || band.idx() > BANDS_MAX {
            return refuse(ticket, Refusal::NoEndpoint);
        }
        let line = self.line(asked.gate);
        if !line.has_room_in(band) || !displace::is_enough_below(line, band, bytes) {
            return refuse(ticket, Refusal::Full);
        }
        while !self.line(asked.gate).fits(bytes, Rank::default()) {
            let oldest = self.cells.planted(Fault::OldestDisplaced);
            let Some(victim) = displace::victim(self.line(asked.gate), band, oldest) else { break };
            if let Some(gone) = self.take_out(victim) {
                refuse(gone.ticket, Refusal::Displaced);
            }
        }
        self.stamps = self.stamps.wrapping_add(1);
        let mut waiting = Waiting::new(ticket, band, asked.gate, self.stamps);
        (waiting.bytes, waiting.deadline, waiting.pools) = (bytes, asked.deadline, pools().collect());
        waiting.generation = asked.generation;
        let (stays, deadline, stamp) = (waiting.pools, waiting.deadline, waiting.stamp);
        let row = self.tickets.insert(waiting);
        if let Some(line) = self.lines.get_mut(&asked.gate) {
            line.push(&mut self.tickets, row);
        }
        self.by_ticket.insert(ticket, row);
        self.deadlines.push(Reverse((deadline, row, stamp)));
        let cost = if self.cells.planted(Fault::TurnsForgotten) { 0 } else { asked.cost };
        for (nth, pool) in stays.iter().enumerate() {
            let queue = self.pools.entry(pool.0).or_default();
            let turns = queue.turns[band.idx()].get_or_insert_default();
            let at = turns.push(asked.tenant, cost, row);
            if let Some(ticket) = self.tickets.get_mut(row) {
                ticket.rows[nth] = at;
            }
            if !self.cells.planted(Fault::SumsBeforeSaying) {
                self.show(pool);
            }
            self.list(pool);
        }
    }

    /// Hears that a place was given up in a pool, or that it has new room.
    pub fn nudge(&mut self, pool: PoolSlot) {
        self.list(pool);
    }

    /// Forgets a ticket, if it is still there.
    pub fn withdraw(&mut self, ticket: Ticket) {
        if let Some(row) = self.by_ticket.get(&ticket).copied() {
            self.take_out(row);
        }
    }

    /// When the next deadline may pass; `None` when nobody waits.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.peek().map(|Reverse((at, ..))| *at).filter(|_| !self.is_empty())
    }

    /// Refuses those whose deadline has passed.
    pub fn expire(&mut self, now: Mono, mut answer: impl FnMut(Ticket, Answer)) {
        if self.cells.planted(Fault::DeadlineIgnored) {
            return;
        }
        while let Some(Reverse((at, row, stamp))) = self.deadlines.peek().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop();
            if self.tickets.get(row).is_some_and(|ticket| ticket.stamp == stamp)
                && let Some(gone) = self.take_out(row)
            {
                answer(gone.ticket, Answer::Refused(Refusal::Ttl));
            }
        }
    }

    /// A newer table: tickets lose pools that are not in it, and those that have none left are refused, to be resolved
    /// anew. Called before the core says on the board that it works with that table: from then on a slot may be
    /// another's.
    pub fn keep_to(
        &mut self,
        generation: u64,
        is_known: impl Fn(u64, PoolSlot) -> bool,
        mut answer: impl FnMut(Ticket, Answer),
    ) {
        self.generation = generation;
        for row in 0..self.tickets.end() {
            let Some(ticket) = self.tickets.get(row) else { continue };
            let (gate, is_ahead) = (ticket.gate, ticket.generation > generation);
            let is_known = |pool: PoolSlot| is_ahead || is_known(gate, pool);
            if ticket.pools.iter().all(is_known) {
                continue;
            }
            if !ticket.pools.iter().any(is_known) {
                if let Some(gone) = self.take_out(row) {
                    answer(gone.ticket, Answer::Refused(Refusal::NoEndpoint));
                }
                continue;
            }
            let (band, pools, rows) = (ticket.band, ticket.pools, ticket.rows);
            let mut left = [NONE; crate::message::TICKET_POOLS_MAX];
            let mut kept = 0;
            for (pool, at) in pools.iter().zip(rows) {
                if is_known(pool) {
                    left[kept] = at;
                    kept += 1;
                } else if let Some(turns) = self.turns(pool, band) {
                    turns.remove(at);
                    self.show(pool);
                }
            }
            if let Some(ticket) = self.tickets.get_mut(row) {
                (ticket.pools, ticket.rows) = (pools.iter().filter(|pool| is_known(*pool)).collect(), left);
            }
        }
        self.pools.retain(|_, queue| queue.is_listed || queue.top() != BandRank::NOBODY);
        self.lines.retain(|_, line| line.count > 0);
    }

    /// Looks at every pool that somebody waits for: a net below the nudges, for a timer.
    pub fn net(&mut self) {
        let waited_for = self.pools.iter().filter(|(_, queue)| queue.top() != BandRank::NOBODY && !queue.is_listed);
        let mut pools: Vec<u32> = waited_for.map(|(pool, _)| *pool).collect();
        pools.sort_unstable();
        for pool in pools {
            self.list(PoolSlot(pool));
            if let Some(queue) = self.pools.get_mut(&pool) {
                queue.is_by_net = true;
            }
        }
    }

    /// Grants what there is room for, a turn's worth.
    pub fn turn(&mut self, mut answer: impl FnMut(Ticket, Answer)) -> Progress {
        let mut left = GRANTS_PER_TURN;
        while let Some(pool) = self.to_pump.front().copied() {
            let is_by_net = self.pools.get(&pool.0).is_some_and(|queue| queue.is_by_net);
            loop {
                if left == 0 {
                    return Progress::More;
                }
                let Some(ticket) = self.grant(pool) else { break };
                left -= 1;
                self.found_by_net += u64::from(is_by_net);
                answer(ticket, Answer::Granted(pool));
            }
            self.to_pump.pop_front();
            if let Some(queue) = self.pools.get_mut(&pool.0) {
                (queue.is_listed, queue.is_by_net) = (false, false);
            }
        }
        Progress::Done
    }

    /// Grants one place of a pool to whoever is next, if it has room for one of that band.
    fn grant(&mut self, pool: PoolSlot) -> Option<Ticket> {
        let queue = self.pools.get(&pool.0)?;
        let lowest_first = self.cells.planted(Fault::LowestBandFirst);
        let band = if lowest_first { queue.bottom() } else { queue.top() };
        let row = queue.turns[band.idx()].as_ref().and_then(|turns| turns.next());
        let Some(row) = row else {
            self.show(pool);
            return None;
        };
        if !self.raise(pool, band) {
            if self.cells.planted(Fault::SumsBeforeSaying) {
                self.show(pool);
            }
            return None;
        }
        if let Some(turns) = self.turns(pool, band) {
            turns.serve();
        }
        self.take_out(row).map(|granted| granted.ticket)
    }

    /// Counts one up on the owner's cell if there is room for one of that band.
    fn raise(&self, pool: PoolSlot, band: BandRank) -> bool {
        let Self { cells, core, .. } = self;
        let has_room = |sum: i64| sum <= i64::from(cells.room(pool, band));
        if cells.planted(Fault::GrantChecksFirst) {
            let has_room = has_room(sum(cells, pool, *core) + 1);
            if has_room {
                cells.add_load(*core, pool, 1);
            }
            return has_room;
        }
        // Raise first, as everybody.
        cells.add_load(*core, pool, 1);
        if has_room(sum(cells, pool, *core)) {
            return true;
        }
        // Nobody need look: who failed because of this enqueues, and that pumps.
        cells.add_load(*core, pool, -1);
        false
    }

    /// Takes a ticket out of its line and of the turns of all its pools, and says so in the cells.
    fn take_out(&mut self, row: u32) -> Option<Waiting> {
        let gate = self.tickets.get(row)?.gate;
        let gone = self.lines.get_mut(&gate)?.remove(&mut self.tickets, row)?;
        self.by_ticket.remove(&gone.ticket);
        for (pool, at) in gone.pools.iter().zip(gone.rows) {
            if let Some(turns) = self.turns(pool, gone.band) {
                turns.remove(at);
            }
            self.show(pool);
            self.list(pool);
        }
        self.sweep();
        Some(gone)
    }

    fn turns(&mut self, pool: PoolSlot, band: BandRank) -> Option<&mut Turns> {
        self.pools.get_mut(&pool.0)?.turns[band.idx()].as_deref_mut()
    }

    /// Says who waits for a pool, where that has changed.
    fn show(&mut self, pool: PoolSlot) {
        let Some(queue) = self.pools.get_mut(&pool.0) else { return };
        let top = queue.top();
        if top != queue.shown {
            queue.shown = top;
            self.cells.set_waiting(pool, top);
        }
    }

    /// The pool is to be looked at in this turn, if somebody waits for it.
    fn list(&mut self, pool: PoolSlot) {
        let Some(queue) = self.pools.get_mut(&pool.0) else { return };
        queue.is_by_net = false;
        if !queue.is_listed {
            queue.is_listed = true;
            self.to_pump.push_back(pool);
        }
    }

    fn line(&mut self, gate: u64) -> &mut Line {
        let limits = self.limits.get(&gate).copied().unwrap_or(self.usual);
        self.lines.entry(gate).or_insert_with(|| Line::new(limits))
    }

    /// Drops deadlines of tickets that are gone once they are the most: at most one pass for as many tickets.
    fn sweep(&mut self) {
        if self.deadlines.len() > 2 * self.tickets.len() + DEADLINES_SPARE {
            let tickets = &self.tickets;
            self.deadlines.retain(|Reverse((_, row, stamp))| tickets.get(*row).is_some_and(|t| t.stamp == *stamp));
        }
    }
}

#[cfg(test)]
mod tests;
