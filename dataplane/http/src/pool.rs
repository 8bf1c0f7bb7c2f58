//! This core's idle upstream connections.
//!
//! Asked by the client half before it connects, filled when a response body has ended cleanly. Every idle connection
//! has a read pending, so one look says whether the engine has closed it. One a core, never shared; never connects by
//! itself and never reads the clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use ahash::AHashMap;
use llmgw_kit::clock::Mono;
use llmgw_runtime::io::Io;

use crate::client::{Address, Place};
use crate::limits::{IDLE_BUF_BYTES, SPARE_BUFS_MAX};
use crate::read_ahead::ReadAhead;

/// Where an upstream connection leads, and how long it may wait for its next use.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Stable name of the endpoint; connections are kept by it and the address.
    pub key: u64,
    /// Where to connect, and how.
    pub address: Address<'a>,
    /// Longest idle time; below the engine's own, so that we close first.
    pub idle_limit: Duration,
    /// Most idle connections kept on this core.
    pub idle_max: usize,
}

impl Target<'_> {
    pub(crate) fn shelf(&self) -> Shelf {
        let Self { key, address, idle_limit, idle_max } = self;
        Shelf { place: (*key, address.place()), idle_limit: *idle_limit, idle_max: *idle_max }
    }
}

/// Whose connections they are, and where they lead.
type Key = (u64, Place);

/// Where connections to one target are kept, without what it borrows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shelf {
    place: Key,
    idle_limit: Duration,
    idle_max: usize,
}

/// What the pool did, since the start.
#[derive(Debug, Default)]
pub struct PoolCounts {
    /// Connections opened.
    pub opened: Cell<u64>,
    /// Requests sent on a connection used before.
    pub reused: Cell<u64>,
    /// Idle connections found closed, or speaking unasked, and discarded.
    pub stale: Cell<u64>,
    /// Idle connections closed for their age or for room.
    pub retired: Cell<u64>,
    /// Requests sent a second time because a reused connection had closed.
    pub silent_retries: Cell<u64>,
}

pub(crate) fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

struct Idle<I: Io> {
    ahead: ReadAhead<I>,
    since: Mono,
    limit: Duration,
}

/// How long the place for an endpoint's idle connections is kept while all of them are in use.
const EMPTY_KEPT: Duration = Duration::from_secs(60);

struct Queue<I: Io> {
    idle: VecDeque<Idle<I>>,
    /// Since when sweeps have found it so.
    empty_since: Option<Mono>,
}

impl<I: Io> Default for Queue<I> {
    fn default() -> Self {
        Self { idle: VecDeque::new(), empty_since: None }
    }
}

struct Inner<I: Io> {
    /// By whose they are and where they lead, so that none outlives a change of either; oldest first.
    idle: RefCell<AHashMap<Key, Queue<I>>>,
    spare: RefCell<Vec<Vec<u8>>>,
    counts: PoolCounts,
}

/// A handle on this core's pool; clones name the same one.
pub struct Pool<I: Io>(Rc<Inner<I>>);

impl<I: Io> Clone for Pool<I> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<I: Io> Default for Pool<I> {
    fn default() -> Self {
        Self(Rc::new(Inner {
            idle: RefCell::new(AHashMap::new()),
            spare: RefCell::new(Vec::new()),
            counts: PoolCounts::default(),
        }))
    }
}

impl<I: Io> Pool<I> {
    /// What it did so far.
    pub fn counts(&self) -> &PoolCounts {
        &self.0.counts
    }

    /// Idle connections at hand. Cost: one pass over the endpoints.
    pub fn idle_count(&self) -> usize {
        self.0.idle.borrow().values().map(|queue| queue.idle.len()).sum()
    }

    /// An empty buffer for a head, used before where possible.
    pub fn buffer(&self) -> Vec<u8> {
        self.0.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        let mut spare = self.0.spare.borrow_mut();
        if spare.len() < SPARE_BUFS_MAX {
            buffer.clear();
            buffer.shrink_to(2 * IDLE_BUF_BYTES);
            spare.push(buffer);
        }
    }

    /// Takes the youngest healthy idle connection; what is found old or closed on the way is closed.
    pub(crate) fn checkout(&self, shelf: &Shelf, now: Mono) -> Option<ReadAhead<I>> {
        let mut idle = self.0.idle.borrow_mut();
        let queue = &mut idle.get_mut(&shelf.place)?.idle;
        while let Some(mut entry) = queue.pop_back() {
            if now.since(entry.since) >= entry.limit.min(shelf.idle_limit) {
                self.retire(1 + queue.len());
                queue.clear();
                return None;
            }
            if is_healthy(&mut entry.ahead) {
                return Some(entry.ahead);
            }
            count(&self.0.counts.stale);
        }
        None
    }

    /// Keeps a connection whose last response has ended cleanly; the oldest gives way when there are too many.
    pub(crate) fn put(&self, shelf: &Shelf, mut ahead: ReadAhead<I>, now: Mono) {
        if shelf.idle_max == 0 || !is_healthy(&mut ahead) {
            return;
        }
        let mut idle = self.0.idle.borrow_mut();
        let queue = &mut idle.entry(shelf.place).or_default().idle;
        if queue.len() >= shelf.idle_max {
            let surplus = queue.len() + 1 - shelf.idle_max;
            queue.drain(..surplus);
            self.retire(surplus);
        }
        queue.push_back(Idle { ahead, since: now, limit: shelf.idle_limit });
    }

    /// Closes what is over its age or was closed by the engine. To be called every second or so.
    ///
    /// Cost: one look at each idle connection.
    pub fn sweep(&self, now: Mono) {
        self.0.idle.borrow_mut().retain(|_, queue| {
            queue.idle.retain_mut(|entry| {
                if now.since(entry.since) >= entry.limit {
                    self.retire(1);
                    return false;
                }
                let healthy = is_healthy(&mut entry.ahead);
                if !healthy {
                    count(&self.0.counts.stale);
                }
                healthy
            });
            if !queue.idle.is_empty() {
                queue.empty_since = None;
                return true;
            }
            now.since(*queue.empty_since.get_or_insert(now)) < EMPTY_KEPT
        });
    }

    /// Closes all idle connections of an endpoint that is gone.
    pub fn forget(&self, key: u64) {
        self.0.idle.borrow_mut().retain(|place, queue| {
            let is_kept = place.0 != key;
            if !is_kept {
                self.retire(queue.idle.len());
            }
            is_kept
        });
    }

    fn retire(&self, connections: usize) {
        let retired = &self.0.counts.retired;
        retired.set(retired.get() + connections as u64);
    }
}

/// The engine has neither closed nor spoken unasked.
fn is_healthy<I: Io>(ahead: &mut ReadAhead<I>) -> bool {
    ahead.poke();
    ahead.end().is_none() && ahead.held().is_empty()
}
