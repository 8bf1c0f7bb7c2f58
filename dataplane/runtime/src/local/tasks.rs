//! A core's tasks, and which of them are ready.
//!
//! Wakers are numbers: which core, which task, and which life of its place. They cost nothing to copy and, used on
//! another thread or too late, wake nobody. Called by the turn and by wakers; never polls while something is borrowed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

use super::timers::{NEVER, Timers};
use crate::late::Side;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What of a task is fetched before it is polled: a stream's own state is in its first part, what a request needs only
/// at its ends comes behind.
const WARM_BYTES: usize = 1536;

/// The place of the future that a runtime was started with.
const MAIN: u32 = u32::MAX;

const _: () = assert!(size_of::<usize>() == 8, "a waker's number fills a pointer");

/// Runtime (16 bits), life of the place (16 bits), place (32 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId(u64);

impl TaskId {
    fn place(self) -> u32 {
        self.0 as u32
    }

    fn life(self) -> u16 {
        (self.0 >> 32) as u16
    }

    fn runtime(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

struct Slot {
    task: Option<Task>,
    life: u16,
    is_queued: bool,
    /// When its timer fires.
    armed: u64,
}

/// All tasks of a core but the main one, which its runtime holds itself.
pub(super) struct Tasks {
    runtime: u16,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<TaskId>>,
    is_main_ready: Cell<bool>,
    main_armed: Cell<u64>,
    /// The earliest deadline that the task being polled waits for.
    wanted: Cell<u64>,
    timers: RefCell<Timers>,
    /// The task being polled, and how many of this turn's are still to be.
    current: Cell<Option<TaskId>>,
    to_run: Cell<usize>,
    /// Those that wait for the others of this turn, by [`Side`].
    late: [RefCell<Vec<TaskId>>; 2],
}

impl Tasks {
    pub(super) fn new() -> Self {
        /// Tells the wakers of this process's runtimes apart; after 65,536 of them numbers come again.
        static RUNTIMES: AtomicU16 = AtomicU16::new(0);
        Self {
            runtime: RUNTIMES.fetch_add(1, Ordering::Relaxed),
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            is_main_ready: Cell::new(true),
            main_armed: Cell::new(NEVER),
            wanted: Cell::new(NEVER),
            timers: RefCell::default(),
            current: Cell::new(None),
            to_run: Cell::new(0),
            late: Default::default(),
        }
    }

    fn id(&self, place: u32, life: u16) -> TaskId {
        TaskId(u64::from(self.runtime) << 48 | u64::from(life) << 32 | u64::from(place))
    }

    /// Cost: the task's own box; its place is one that was used before, where there is one.
    pub(super) fn spawn(&self, task: Task) {
        let mut slots = self.slots.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot { task: None, life: 0, is_queued: false, armed: NEVER });
            u32::try_from(slots.len() - 1).unwrap_or(MAIN)
        });
        let Some(slot) = slots.get_mut(place as usize) else { return };
        (slot.task, slot.is_queued, slot.armed) = (Some(task), true, NEVER);
        self.ready.borrow_mut().push_back(self.id(place, slot.life));
    }

    /// Runs every task that was ready when this was called. Those that became so meanwhile wait for the next turn, so
    /// that none can starve the ring. Calls `before` each of them.
    pub(super) fn run_ready(&self, before: impl Fn()) {
        let count = self.ready.borrow().len();
        for done in 1..=count {
            let Some(id) = self.ready.borrow_mut().pop_front() else { break };
            self.to_run.set(count - done);
            self.warm_next();
            before();
            self.run(id);
        }
        self.to_run.set(0);
        for side in &self.late {
            // One that writes, fails and tries another engine at once stands here again.
            while !side.borrow().is_empty() {
                let mut late = side.take();
                for id in late.drain(..) {
                    before();
                    self.run(id);
                }
                if side.borrow().is_empty() {
                    side.replace(late);
                }
            }
        }
    }

    /// Has the task that is polled next fetched into the cache while another one is polled. A core has thousands of
    /// streams, each silent long enough to be out of its cache.
    fn warm_next(&self) {
        let Some(&next) = self.ready.borrow().front() else { return };
        if let Some(Slot { task: Some(task), .. }) = self.slots.borrow().get(next.place() as usize) {
            let task: &dyn Future<Output = ()> = &**task;
            warm(std::ptr::from_ref(task).cast(), size_of_val(task).min(WARM_BYTES));
        }
    }

    /// Puts the task being polled off until the others that are ready in this turn have been polled, and behind those
    /// that write to the other side before. Answer: whether there are any; else it goes on.
    pub(super) fn put_off(&self, side: Side) -> bool {
        let Some(id) = self.current.get() else { return false };
        let has_others = self.to_run.get() > 0 || self.late.iter().any(|late| !late.borrow().is_empty());
        if has_others && let Some(late) = self.late.get(side as usize) {
            late.borrow_mut().push(id);
        }
        has_others
    }

    fn run(&self, id: TaskId) {
        // Who was woken in the poll that it ended with is still listed when its place has another holder already.
        let task = self.slots.borrow_mut().get_mut(id.place() as usize).filter(|slot| slot.life == id.life()).and_then(
            |slot| {
                slot.is_queued = false;
                slot.task.take()
            },
        );
        let Some(mut task) = task else { return };
        self.begin_poll();
        let waker = waker(id);
        self.current.set(Some(id));
        let outcome = task.as_mut().poll(&mut Context::from_waker(&waker));
        self.current.set(None);
        if outcome.is_ready() {
            // Outside of any borrow: what the task held may wake others, or close connections.
            drop(task);
            if let Some(slot) = self.slots.borrow_mut().get_mut(id.place() as usize) {
                slot.life = slot.life.wrapping_add(1);
                self.free.borrow_mut().push(id.place());
            }
            return;
        }
        if let Some(slot) = self.slots.borrow_mut().get_mut(id.place() as usize) {
            slot.task = Some(task);
            let wanted = self.wanted.get();
            if wanted < slot.armed {
                slot.armed = wanted;
                self.timers.borrow_mut().push(wanted, id.0);
            }
        }
    }

    /// Forgets what the task polled before this one waited for.
    pub(super) fn begin_poll(&self) {
        self.wanted.set(NEVER);
    }

    /// The task being polled waits for `deadline`, too.
    #[inline]
    pub(super) fn want(&self, deadline: u64) {
        self.wanted.set(self.wanted.get().min(deadline));
    }

    /// Arms the main future's timer after it was polled.
    pub(super) fn arm_main(&self) {
        let wanted = self.wanted.get();
        if wanted < self.main_armed.get() {
            self.main_armed.set(wanted);
            self.timers.borrow_mut().push(wanted, self.id(MAIN, 0).0);
        }
    }

    /// Wakes the tasks whose time has come.
    pub(super) fn fire(&self, now: u64) {
        loop {
            let Some((at, id)) = self.timers.borrow_mut().pop(now) else { break };
            let id = TaskId(id);
            if id.place() == MAIN {
                if self.main_armed.get() == at {
                    self.main_armed.set(NEVER);
                    self.is_main_ready.set(true);
                }
                continue;
            }
            let is_current = match self.slots.borrow_mut().get_mut(id.place() as usize) {
                Some(slot) if slot.life == id.life() && slot.armed == at => {
                    slot.armed = NEVER;
                    true
                }
                _ => false,
            };
            if is_current {
                self.wake(id);
            }
        }
        self.timers.borrow_mut().compact(|at, id| {
            let id = TaskId(id);
            if id.place() == MAIN {
                return self.main_armed.get() == at;
            }
            let slots = self.slots.borrow();
            slots.get(id.place() as usize).is_some_and(|slot| slot.life == id.life() && slot.armed == at)
        });
    }

    /// When the next timer fires.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.timers.borrow().next()
    }

    pub(super) fn has_ready(&self) -> bool {
        self.is_main_ready.get() || !self.ready.borrow().is_empty()
    }

    /// Whether the main future is to be polled; it is not ready any more then.
    pub(super) fn take_main(&self) -> bool {
        self.is_main_ready.replace(false)
    }

    pub(super) fn main_waker(&self) -> Waker {
        waker(self.id(MAIN, 0))
    }

    fn wake(&self, id: TaskId) {
        if id.runtime() != self.runtime {
            return;
        }
        if id.place() == MAIN {
            self.is_main_ready.set(true);
            return;
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(id.place() as usize) else { return };
        if slot.life == id.life() && !slot.is_queued {
            slot.is_queued = true;
            self.ready.borrow_mut().push_back(id);
        }
    }

    /// Ends every task where it stands.
    pub(super) fn drop_all(&self) {
        loop {
            let tasks: Vec<Task> = self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.task.take()).collect();
            if tasks.is_empty() {
                return;
            }
            drop(tasks);
        }
    }
}

/// Fetches `len` bytes from `start` on into the cache, without waiting.
#[cfg(target_arch = "x86_64")]
#[inline]
fn warm(start: *const i8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for at in (0..len).step_by(64) {
        // SAFETY: a hint, which reads nothing and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn warm(_: *const i8, _: usize) {}

fn waker(id: TaskId) -> Waker {
    // SAFETY: the table's functions read the pointer as the number that it is and follow it nowhere; they may be called
    // on any thread and in any order.
    unsafe { Waker::from_raw(raw(id.0)) }
}

const fn raw(id: u64) -> RawWaker {
    RawWaker::new(std::ptr::without_provenance(id as usize), &TABLE)
}

static TABLE: RawWakerVTable = RawWakerVTable::new(|data| raw(data.addr() as u64), wake, wake, |_| {});

fn wake(data: *const ()) {
    super::with(|local| local.tasks.wake(TaskId(data.addr() as u64)));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;
    use std::time::Duration;

    use crate::driver::{DriverChoice, block_on, choose};

    #[test]
    fn who_was_woken_in_its_last_poll_does_not_take_the_next_holder_of_its_place_along() {
        let ran = Rc::new(Cell::new(false));
        let seen = ran.clone();
        block_on(choose(DriverChoice::Auto).unwrap().0, async move {
            crate::spawn(poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::Ready(())
            }));
            crate::spawn(async move {
                crate::spawn(async move { ran.set(true) });
            });
            crate::timer::sleep(Duration::from_millis(2)).await;
        })
        .unwrap();
        assert!(seen.get(), "the new holder was dropped unrun");
    }
}
