//! Going to sleep beside lanes that others push to, and waking whoever sleeps: the order of the steps, and nothing
//! else.
//!
//! Used by `bell` and `mailbox` over std's atomics; the test of memory orders (`tests/doze.rs`) runs it over its own.
//!
//! A sender pushes its message, fences, then looks whether the receiver sleeps. The receiver says that it sleeps,
//! fences, then looks for messages once more. In one total order either the sender sees the sleeper or the receiver
//! sees the message. A false wake costs one turn; a missing one cannot happen.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What the order stands on: one flag that many read and change, and a fence.
pub trait Flag {
    /// Relaxed.
    fn is_set(&self) -> bool;
    /// Relaxed.
    fn set(&self, value: bool);
    /// Acquires and releases. Answer: what it was.
    fn take(&self) -> bool;
    /// A fence in the one order that all threads agree on.
    fn fence(&self);
}

impl Flag for AtomicBool {
    fn is_set(&self) -> bool {
        self.load(Ordering::Relaxed)
    }

    fn set(&self, value: bool) {
        self.store(value, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.swap(false, Ordering::AcqRel)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Whether a receiver sleeps. See the module.
#[derive(Debug, Default)]
pub struct Doze<F>(F);

impl<F: Flag> Doze<F> {
    /// One that is awake, with a flag that is not set.
    pub const fn awake(flag: F) -> Self {
        Self(flag)
    }

    /// Whether the receiver is to be woken. Called by senders after the message is in its lane.
    ///
    /// Cost: a fence and a load; a swap for one that sleeps.
    pub fn must_wake(&self) -> bool {
        self.0.fence();
        self.0.is_set() && self.0.take()
    }

    /// Whether the receiver may sleep: it looked, said so, and looked again, and both times there was nothing. `look`
    /// says whether there was something. Called by the receiver alone.
    pub fn may_sleep(&self, mut look: impl FnMut() -> bool) -> bool {
        if look() {
            return false;
        }
        self.0.set(true);
        self.0.fence();
        let is_idle = !look();
        if !is_idle {
            self.0.set(false);
        }
        is_idle
    }

    /// Whether it said that it sleeps and nobody has woken it since.
    pub fn is_asleep(&self) -> bool {
        self.0.is_set()
    }
}
