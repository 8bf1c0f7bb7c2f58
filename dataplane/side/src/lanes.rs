//! The side runtime's ends of its lanes to the cores.
//!
//! Used by `publish` for what every core must hear and by `scrape` for what an endpoint's owner should. Never waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llmgw_router::message::CoreMessage;
use llmgw_runtime::mailbox::Post;
use llmgw_runtime::owner::{owner_of, owner_of_number};
use llmgw_types::{BoardSlot, CoreId, PoolSlot};

/// See the module. One thread uses it, so nobody waits for the lock.
#[derive(Clone)]
pub(crate) struct Lanes {
    post: Arc<Mutex<Post<CoreMessage>>>,
    core_count: u32,
}

impl Lanes {
    pub(crate) fn new(post: Post<CoreMessage>, core_count: usize) -> Self {
        Self { post: Arc::new(Mutex::new(post)), core_count: u32::try_from(core_count).unwrap_or(u32::MAX) }
    }

    /// Tells every core what it must hear: what finds no room waits for [`Lanes::flush`].
    pub(crate) fn tell_all(&self, message: CoreMessage) {
        let mut post = self.post();
        for core in 0..self.core_count {
            post.send_or_keep(CoreId(core), message);
        }
    }

    /// Tells the core that owns the endpoint. Loss: where its lane is full.
    pub(crate) fn tell_owner(&self, slot: BoardSlot, message: CoreMessage) {
        if self.core_count > 0 {
            let _ = self.post().try_send(owner_of_number(slot.0, self.core_count), message);
        }
    }

    /// Tells the owner of a gate that one of its pools has new room. Answer: whether its lane had any for that.
    pub(crate) fn nudge(&self, gate: u64, pool: PoolSlot) -> bool {
        self.core_count == 0 || self.post().try_send(owner_of(gate, self.core_count), CoreMessage::Nudge(pool)).is_ok()
    }

    /// Tries again what waits. Answer: whether nothing waits any more.
    pub(crate) fn flush(&self) -> bool {
        self.post().flush()
    }

    fn post(&self) -> MutexGuard<'_, Post<CoreMessage>> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
