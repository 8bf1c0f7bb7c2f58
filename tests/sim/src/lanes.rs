//! Lanes between threads as the runtime has them: bounded, one for each sender and receiver, in order within and with
//! no order between; and every sender's outbox for what must not be lost.

use std::collections::VecDeque;

use llmgw_router::message::CoreMessage;

pub(crate) struct Lanes {
    /// By receiver, then sender; the side runtime is the last sender.
    lanes: Vec<Vec<VecDeque<CoreMessage>>>,
    /// By sender, then receiver.
    outboxes: Vec<Vec<VecDeque<CoreMessage>>>,
    capacity: usize,
}

impl Lanes {
    pub(crate) fn new(cores: usize, capacity: usize) -> Self {
        let lanes = (0..cores).map(|_| (0..=cores).map(|_| VecDeque::new()).collect()).collect();
        let outboxes = (0..=cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        Self { lanes, outboxes, capacity }
    }

    /// Sends, or says that the lane is full.
    pub(crate) fn try_send(&mut self, from: usize, to: usize, message: CoreMessage) -> bool {
        self.flush_to(from, to);
        let has_room = self.has_room(from, to);
        if has_room {
            self.lanes[to][from].push_back(message);
        }
        has_room
    }

    /// Sends what must arrive.
    pub(crate) fn send_or_keep(&mut self, from: usize, to: usize, message: CoreMessage) {
        if !self.try_send(from, to, message) {
            self.outboxes[from][to].push_back(message);
        }
    }

    fn flush_to(&mut self, from: usize, to: usize) {
        while self.lanes[to][from].len() < self.capacity {
            let Some(message) = self.outboxes[from][to].pop_front() else { return };
            self.lanes[to][from].push_back(message);
        }
    }

    pub(crate) fn flush(&mut self, from: usize) {
        (0..self.lanes.len()).for_each(|to| self.flush_to(from, to));
    }

    /// Whether a sender's outbox holds something that a lane has room for.
    pub(crate) fn can_flush(&self, from: usize) -> bool {
        (0..self.lanes.len())
            .any(|to| !self.outboxes[from][to].is_empty() && self.lanes[to][from].len() < self.capacity)
    }

    /// Whether a message would go through.
    pub(crate) fn has_room(&self, from: usize, to: usize) -> bool {
        self.outboxes[from][to].is_empty() && self.lanes[to][from].len() < self.capacity
    }

    /// Senders whose lane to a core holds something.
    pub(crate) fn senders(&self, to: usize) -> impl Iterator<Item = usize> + '_ {
        self.lanes[to].iter().enumerate().filter(|(_, lane)| !lane.is_empty()).map(|(from, _)| from)
    }

    pub(crate) fn take(&mut self, to: usize, from: usize) -> Option<CoreMessage> {
        self.lanes[to][from].pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().flatten().all(VecDeque::is_empty) && self.outboxes.iter().flatten().all(VecDeque::is_empty)
    }
}
