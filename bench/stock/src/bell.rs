//! How a connection to an engine calls the task that holds it: one waker for the connection's whole life, behind which
//! the task changes, and which can be muted.
//!
//! hyper's halves wake each other through their channels. Where both run in one task such a call comes from the very
//! task that it would wake, which would then run once more for nothing; and a connection at rest would wake the task
//! that held it last. Used by `upstream` alone.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// See the module.
#[derive(Debug)]
pub(crate) struct Bell {
    task: Mutex<Waker>,
    is_muted: AtomicBool,
}

impl Bell {
    /// One that is muted.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { task: Mutex::new(Waker::noop().clone()), is_muted: AtomicBool::new(true) })
    }

    /// Calls `task` from now on. Whoever says so looks at the connection afterwards, for what came while it was muted.
    pub(crate) fn call(&self, task: &Waker) {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(task);
        self.is_muted.store(false, SeqCst);
    }

    /// Calls nobody until it is told to.
    pub(crate) fn mute(&self) {
        self.is_muted.store(true, SeqCst);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_muted.load(SeqCst) {
            self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn it_calls_the_task_it_was_given_last_and_nobody_while_it_is_muted() {
        let (bell, first, second) = (Bell::new(), Arc::new(Calls::default()), Arc::new(Calls::default()));
        let waker = Waker::from(bell.clone());
        let counts = || (first.0.load(SeqCst), second.0.load(SeqCst));
        waker.wake_by_ref();
        assert_eq!(counts(), (0, 0));
        bell.call(&first.clone().into());
        waker.wake_by_ref();
        assert_eq!(counts(), (1, 0));
        bell.call(&second.clone().into());
        waker.wake_by_ref();
        bell.mute();
        waker.wake_by_ref();
        assert_eq!(counts(), (1, 1));
    }
}
