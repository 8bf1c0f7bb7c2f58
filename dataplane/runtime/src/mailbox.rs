//! Lanes between threads: one bounded, ordered queue from each sender to each core, and one bell per core.
//!
//! Senders are the cores themselves and the side runtime. One lane keeps order; different lanes overtake each other. A
//! full lane is said to the sender, who decides what its loss costs. Nothing here waits, allocates per message or takes
//! a lock.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crossbeam::atomic::AtomicCell;
use crossbeam::queue::ArrayQueue;
use llmgw_types::CoreId;

use crate::bell::{Bell, Sleeper};

/// Messages a lane holds.
pub const LANE_CAPACITY: usize = 1024;

/// What a core hears of its own accord in one turn before it lets its requests run.
const TURN_MESSAGES: usize = 256;

struct Lane<M> {
    queue: ArrayQueue<M>,
    bell: Arc<Bell>,
}

/// All lanes of a process: `cores` receivers, `cores + extra` senders.
pub struct Mesh<M> {
    /// `lanes[receiver][sender]`.
    lanes: Vec<Vec<Arc<Lane<M>>>>,
    bells: Vec<Arc<Bell>>,
}

impl<M: Send> Mesh<M> {
    /// Makes the lanes between `cores` cores and from `extra` other threads to them, each for `capacity` messages.
    ///
    /// Errors: no descriptor left for a bell.
    pub fn new(cores: usize, extra: usize, capacity: usize) -> io::Result<Self> {
        let bells = (0..cores).map(|_| Bell::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let lanes = bells
            .iter()
            .map(|bell| {
                (0..cores + extra)
                    .map(|_| Arc::new(Lane { queue: ArrayQueue::new(capacity), bell: bell.clone() }))
                    .collect()
            })
            .collect();
        Ok(Self { lanes, bells })
    }

    /// What sender `sender` posts with: a core by its number, other threads after them. Each is given out once.
    pub fn post(&self, sender: usize) -> Post<M> {
        Post {
            lanes: self.lanes.iter().map(|from| from[sender].clone()).collect(),
            outbox: self.lanes.iter().map(|_| VecDeque::new()).collect(),
        }
    }

    /// What `core` receives with; to be opened on that core's own thread.
    pub fn inbox(&self, core: CoreId) -> Inbox<M> {
        Inbox { lanes: self.lanes[core.idx()].clone(), bell: self.bells[core.idx()].clone() }
    }
}

/// A sender's ends of its lanes, with an outbox for what must not be lost.
pub struct Post<M> {
    lanes: Vec<Arc<Lane<M>>>,
    outbox: Vec<VecDeque<M>>,
}

impl<M> Post<M> {
    /// Sends to a core. Loss: gives the message back when the lane is full.
    pub fn try_send(&mut self, to: CoreId, message: M) -> Result<(), M> {
        self.flush_to(to.idx());
        if !self.outbox[to.idx()].is_empty() {
            return Err(message); // order: nothing overtakes what waits
        }
        let lane = &self.lanes[to.idx()];
        lane.queue.push(message)?;
        lane.bell.ring_if_asleep();
        Ok(())
    }

    /// Sends to a core what must arrive: waits in the outbox when the lane is full. Room for it is the caller's promise
    /// (one a request, or a few a process). Answer: whether it was sent; else [`Post::flush`] is to be called later.
    pub fn send_or_keep(&mut self, to: CoreId, message: M) -> bool {
        match self.try_send(to, message) {
            Ok(()) => true,
            Err(message) => {
                self.outbox[to.idx()].push_back(message);
                false
            }
        }
    }

    /// Tries again what waits. Answer: whether nothing waits any more.
    pub fn flush(&mut self) -> bool {
        (0..self.lanes.len()).for_each(|to| self.flush_to(to));
        self.outbox.iter().all(VecDeque::is_empty)
    }

    fn flush_to(&mut self, to: usize) {
        let (lane, outbox) = (&self.lanes[to], &mut self.outbox[to]);
        let mut sent = false;
        while let Some(message) = outbox.pop_front() {
            if let Err(message) = lane.queue.push(message) {
                outbox.push_front(message);
                break;
            }
            sent = true;
        }
        if sent {
            lane.bell.ring_if_asleep();
        }
    }
}

/// A core's receiving ends, before they are tied to its driver.
pub struct Inbox<M> {
    lanes: Vec<Arc<Lane<M>>>,
    bell: Arc<Bell>,
}

impl<M> Inbox<M> {
    /// Ties the inbox to the driver of the core that calls. Errors: no descriptor left.
    pub fn open(self) -> io::Result<Mailbox<M>> {
        let sleeper = Sleeper::new(&self.bell)?;
        Ok(Mailbox { lanes: self.lanes, bell: self.bell, sleeper, next: 0 })
    }
}

/// What a core receives with.
pub struct Mailbox<M> {
    lanes: Vec<Arc<Lane<M>>>,
    bell: Arc<Bell>,
    sleeper: Sleeper,
    next: usize,
}

impl<M> Mailbox<M> {
    /// Takes what has arrived, in each lane's order and lanes in turn, at most a turn's worth. Waits when there is
    /// nothing.
    pub async fn receive(&mut self, into: &mut Vec<M>) {
        loop {
            let Self { lanes, bell, next, .. } = self;
            let look = || {
                take(lanes, next, into);
                !into.is_empty()
            };
            if !bell.may_sleep(look) {
                return;
            }
            self.sleeper.wait().await;
        }
    }

    /// Takes what has arrived, as [`Mailbox::receive`], without a wait. Whatever was sent before a message that is
    /// taken already is taken then, at most a turn's worth.
    pub fn look(&mut self, into: &mut Vec<M>) {
        take(&self.lanes, &mut self.next, into);
    }
}

/// Takes a turn's worth, beginning with the lane `next`.
fn take<M>(lanes: &[Arc<Lane<M>>], next: &mut usize, into: &mut Vec<M>) {
    let count = lanes.len();
    for step in 0..count {
        let lane = &lanes[(*next + step) % count];
        while into.len() < TURN_MESSAGES {
            match lane.queue.pop() {
                Some(message) => into.push(message),
                None => break,
            }
        }
    }
    *next = (*next + 1) % count.max(1);
}

/// A place for the newest of something: a writer replaces what was not taken yet. No lock, no queue.
pub struct Latest<T>(AtomicCell<Option<Arc<T>>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        const { assert!(AtomicCell::<Option<Arc<()>>>::is_lock_free()) };
        Self(AtomicCell::new(None))
    }
}

impl<T> Latest<T> {
    /// Puts the newest there. Loss: what was there and not taken is dropped, which is the point.
    pub fn put(&self, value: Arc<T>) {
        drop(self.0.swap(Some(value)));
    }

    /// Takes what is there.
    pub fn take(&self) -> Option<Arc<T>> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::driver::{Driver, DriverChoice, block_on, choose};

    /// Two cores send `count` numbers to each other and answer each; every number must come back, in order.
    fn ping_pong(driver: Driver, count: u64) {
        let mesh: Mesh<u64> = Mesh::new(2, 0, 64).unwrap();
        let core = |id: u32| {
            let (mut post, inbox) = (mesh.post(id as usize), mesh.inbox(CoreId(id)));
            move || {
                let peer = CoreId(1 - id);
                block_on(driver, async move {
                    let mut mailbox = inbox.open().unwrap();
                    let mut got = Vec::new();
                    let (mut expected, mut sent) = (0, 0);
                    while expected < count || sent < count {
                        while sent < count && sent < expected + 32 {
                            post.try_send(peer, sent).unwrap();
                            sent += 1;
                        }
                        if expected == count {
                            continue;
                        }
                        mailbox.receive(&mut got).await;
                        for number in got.drain(..) {
                            assert_eq!(number, expected);
                            expected += 1;
                        }
                    }
                })
                .unwrap();
            }
        };
        let (first, second) = (thread::spawn(core(0)), thread::spawn(core(1)));
        first.join().unwrap();
        second.join().unwrap();
    }

    #[test]
    fn cores_hear_each_other_on_every_driver() {
        ping_pong(Driver::Epoll, 20_000);
        ping_pong(choose(DriverChoice::Auto).unwrap().0, 20_000);
    }

    #[test]
    fn a_sleeping_core_is_woken_and_an_awake_one_is_not_rung() {
        let mesh: Mesh<u64> = Mesh::new(1, 1, 64).unwrap();
        let (mut post, inbox) = (mesh.post(1), mesh.inbox(CoreId(0)));
        let bell = mesh.bells[0].clone();
        for n in 0..10 {
            post.try_send(CoreId(0), n).unwrap();
        }
        assert_eq!(bell.rung_count(), 0);
        let waker = thread::spawn({
            let bell = bell.clone();
            move || {
                while !bell.asleep() {
                    thread::yield_now();
                }
                post.try_send(CoreId(0), 10).unwrap();
            }
        });
        crate::run_local(async move {
            let mut mailbox = inbox.open().unwrap();
            let mut got = Vec::new();
            while got.len() < 11 {
                let mut more = Vec::new();
                mailbox.receive(&mut more).await;
                got.append(&mut more);
            }
            assert_eq!(got, (0..11).collect::<Vec<_>>());
        });
        waker.join().unwrap();
        assert_eq!(bell.rung_count(), 1);
    }

    #[test]
    fn a_full_lane_gives_the_message_back_and_the_outbox_keeps_order() {
        let mesh: Mesh<u64> = Mesh::new(1, 1, 2).unwrap();
        let mut post = mesh.post(1);
        post.try_send(CoreId(0), 0).unwrap();
        post.send_or_keep(CoreId(0), 1);
        post.send_or_keep(CoreId(0), 2);
        assert_eq!(post.try_send(CoreId(0), 9), Err(9));
        assert!(!post.flush());
        let take = || mesh.lanes[0][1].queue.pop();
        assert_eq!((take(), take()), (Some(0), Some(1)));
        assert!(post.flush());
        assert_eq!((take(), take()), (Some(2), None));
    }

    #[test]
    fn only_the_newest_value_is_taken() {
        let latest = Latest::default();
        latest.put(Arc::new(1));
        latest.put(Arc::new(2));
        assert_eq!(latest.take().as_deref(), Some(&2));
        assert_eq!(latest.take(), None);
    }
}
