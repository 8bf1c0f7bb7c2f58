//! A core's ends of its lanes to the others, and whose each thing is.
//!
//! Used by `admission`, `evidence`, `limits` and `sessions`. Never waits: a full lane is said to the sender.

use std::cell::{OnceCell, RefCell};

use llmgw_router::message::CoreMessage;
use llmgw_runtime::mailbox::Post;
use llmgw_runtime::owner::{owner_of, owner_of_number};
use llmgw_types::CoreId;

/// See the module. Owner: one core.
pub(crate) struct Lanes {
    pub(crate) core: CoreId,
    core_count: u32,
    post: OnceCell<RefCell<Post<CoreMessage>>>,
}

impl Lanes {
    /// Not tied to any lane yet: whatever is sent is lost.
    pub(crate) fn new(core: CoreId, core_count: u32) -> Self {
        Self { core, core_count: core_count.max(1), post: OnceCell::new() }
    }

    /// Gives it the ends of this core's lanes to the others.
    pub(crate) fn open(&self, post: Post<CoreMessage>) {
        // A second one would be a fault of the start and changes nothing.
        let _ = self.post.set(RefCell::new(post));
    }

    /// Who owns what is known by this hash.
    pub(crate) fn owner_of(&self, hash: u64) -> CoreId {
        owner_of(hash, self.core_count)
    }

    /// Who owns what is known by this small number.
    pub(crate) fn owner_of_number(&self, number: u32) -> CoreId {
        owner_of_number(number, self.core_count)
    }

    /// Sends. Answer: whether there was room.
    pub(crate) fn send(&self, to: CoreId, message: CoreMessage) -> bool {
        self.post.get().is_some_and(|post| post.borrow_mut().try_send(to, message).is_ok())
    }

    /// Sends what must arrive: what finds no room waits for [`Lanes::flush`]. Answer: whether it was sent.
    pub(crate) fn send_or_keep(&self, to: CoreId, message: CoreMessage) -> bool {
        self.post.get().is_none_or(|post| post.borrow_mut().send_or_keep(to, message))
    }

    /// How many cores there are.
    pub(crate) fn core_count(&self) -> u32 {
        self.core_count
    }

    /// Tries again what waits. Answer: whether nothing waits any more.
    pub(crate) fn flush(&self) -> bool {
        self.post.get().is_none_or(|post| post.borrow_mut().flush())
    }
}
