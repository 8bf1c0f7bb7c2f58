//! A core's own runtime: tasks, timers and one ring, in turns.
//!
//! A turn runs every task that is ready, hands to the kernel what they asked for, and takes in what it finished: one
//! system call a turn. Made by [`crate::driver`] on the core's thread and reached from tasks through a thread-local;
//! nothing of it is seen by another thread. Never knows what a task is about.

mod buffers;
mod ring;
mod tasks;
mod timers;

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::late::Side;
use ring::{Ring, Wait};
pub(crate) use ring::{RingFd, RingPlace, receive_now};
use tasks::Tasks;

thread_local! {
    static CURRENT: Cell<*const Local> = const { Cell::new(std::ptr::null()) };
}

/// The runtime of this thread.
pub(crate) struct Local {
    tasks: Tasks,
    ring: RefCell<Ring>,
    clock: Clock,
}

/// Nanoseconds since the runtime began. Read once a turn, and once more by each task that sets itself a deadline.
struct Clock {
    began: Mono,
    turn: Cell<u64>,
    /// As the task being polled has read it, if it has.
    task: Cell<Option<u64>>,
}

impl Clock {
    fn read(&self) -> u64 {
        u64::try_from(Mono::now().since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Says whether this kernel has all that the ring needs. Errors: what it refuses.
pub(crate) fn probe() -> io::Result<()> {
    Ring::new(8, 8).map(drop)
}

/// Runs `future` to its end on this thread, and with it every task that is spawned meanwhile; those that are left are
/// dropped then.
///
/// Errors: the ring could not be made.
pub(crate) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let local = Local {
        tasks: Tasks::new(),
        ring: RefCell::new(Ring::new(ring::ENTRIES, ring::BUFFERS)?),
        clock: Clock { began: Mono::now(), turn: Cell::new(0), task: Cell::new(None) },
    };
    // Operations may be outstanding when the runtime ends, and the kernel writes to its buffers until then. A core ends
    // with its process, so nothing is lost by keeping them.
    let local: &'static Local = Box::leak(Box::new(local));
    let _entered = Entered::enter(local);
    let ended = local.run(future);
    local.tasks.drop_all();
    local.ring.borrow_mut().submit();
    Ok(ended)
}

/// This thread's runtime is [`CURRENT`] as long as this lives.
struct Entered;

impl Entered {
    fn enter(local: &'static Local) -> Self {
        let before = CURRENT.replace(std::ptr::from_ref(local));
        assert!(before.is_null(), "a runtime cannot run within another");
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}

/// Calls `f` with this thread's runtime; none where the thread has none of its own (epoll, or no core at all).
#[inline]
pub(crate) fn with<T>(f: impl FnOnce(&Local) -> T) -> Option<T> {
    let local = CURRENT.get();
    // SAFETY: set by `Entered` only, to a `Local` that is leaked and so lives for ever.
    unsafe { local.as_ref() }.map(f)
}

/// Whether this thread has such a runtime.
pub(crate) fn is_here() -> bool {
    !CURRENT.get().is_null()
}

impl Local {
    fn run<F: Future>(&self, future: F) -> F::Output {
        let mut main = pin!(future);
        let waker = self.tasks.main_waker();
        loop {
            let now = self.clock.read();
            self.clock.turn.set(now);
            self.tasks.fire(now);
            if self.tasks.take_main() {
                self.clock.task.set(None);
                self.tasks.begin_poll();
                if let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return value;
                }
                self.tasks.arm_main();
            }
            self.tasks.run_ready(|| self.clock.task.set(None));
            let wait = if self.tasks.has_ready() {
                Wait::None
            } else {
                match self.tasks.next_deadline() {
                    None => Wait::ForEver,
                    // The tasks have taken some of the time since the turn began.
                    Some(deadline) => match deadline.saturating_sub(self.clock.read()) {
                        0 => Wait::None,
                        left => Wait::For(Duration::from_nanos(left)),
                    },
                }
            };
            self.ring.borrow_mut().turn(&wait);
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(Box::pin(task));
    }

    /// When `time` will have passed, on this runtime's clock; counted from when the task being polled first asked.
    pub(crate) fn deadline(&self, time: Duration) -> u64 {
        let now = self.clock.task.get().unwrap_or_else(|| {
            let now = self.clock.read();
            self.clock.task.set(Some(now));
            now
        });
        now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// See [`crate::late::late`]. Answer: whether the task being polled is polled again in this turn, after others.
    pub(crate) fn put_off(&self, side: Side) -> bool {
        self.tasks.put_off(side)
    }

    /// `moment` on this runtime's clock.
    pub(crate) fn moment(&self, moment: Mono) -> u64 {
        u64::try_from(moment.since(self.clock.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Ready once `deadline` has passed; else the task that is being polled is polled again by then.
    ///
    /// Cost: two comparisons. A task has one timer, for the earliest of what it waits for; so whoever waits must ask
    /// again each time its task is polled.
    #[inline]
    pub(crate) fn poll_deadline(&self, deadline: u64) -> Poll<()> {
        if self.clock.turn.get() >= deadline {
            return Poll::Ready(());
        }
        self.tasks.want(deadline);
        Poll::Pending
    }
}
