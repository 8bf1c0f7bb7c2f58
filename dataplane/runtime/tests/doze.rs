//! The steps by which a core goes to sleep and is woken, under every order in which threads may see each other's
//! stores.
//!
//! The code is the mailbox's own; the lanes are the least that such a queue is: what is pushed is released, and
//! acquired by whoever takes it. Without the fence the fault that it is there for is found.

use llmgw_runtime::doze::{Doze, Flag};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use loom::thread;

struct LoomFlag {
    flag: AtomicBool,
    is_fenced: bool,
}

impl Flag for LoomFlag {
    fn is_set(&self) -> bool {
        self.flag.load(Relaxed)
    }

    fn set(&self, value: bool) {
        self.flag.store(value, Relaxed);
    }

    fn take(&self) -> bool {
        self.flag.swap(false, AcqRel)
    }

    fn fence(&self) {
        if self.is_fenced {
            fence(SeqCst);
        }
    }
}

/// One lane for each sender: how many messages were pushed. The receiver remembers how many it took.
struct Core {
    doze: Doze<LoomFlag>,
    lanes: Vec<AtomicU32>,
    /// Rings that the kernel keeps until they are read.
    rings: AtomicU32,
}

impl Core {
    fn new(senders: usize, is_fenced: bool) -> Arc<Self> {
        let flag = LoomFlag { flag: AtomicBool::new(false), is_fenced };
        let lanes = (0..senders).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { doze: Doze::awake(flag), lanes, rings: AtomicU32::new(0) })
    }

    fn send(&self, lane: usize) {
        let pushed = self.lanes[lane].load(Relaxed);
        self.lanes[lane].store(pushed + 1, Release);
        if self.doze.must_wake() {
            self.rings.fetch_add(1, SeqCst);
        }
    }

    /// Takes what is there, as a mailbox does.
    fn take(&self, taken: &mut [u32]) -> bool {
        let before: u32 = taken.iter().sum();
        for (taken, lane) in taken.iter_mut().zip(&self.lanes) {
            *taken = lane.load(Acquire);
        }
        taken.iter().sum::<u32>() > before
    }
}

/// Each sender sends once while the receiver goes to sleep as often as it may. A receiver that sleeps is woken for
/// whatever it did not see, and then sees all.
fn nothing_is_slept_through(senders: usize, is_fenced: bool) {
    let mut model = loom::model::Builder::new();
    // With a third thread every order would take minutes: those in which threads are interrupted three times.
    model.preemption_bound = (senders > 1).then_some(3);
    model.check(move || {
        let core = Core::new(senders, is_fenced);
        let threads: Vec<_> = (0..senders)
            .map(|lane| {
                let core = core.clone();
                thread::spawn(move || core.send(lane))
            })
            .collect();
        let mut taken = vec![0; senders];
        let mut sleeps = core.doze.may_sleep(|| core.take(&mut taken));
        threads.into_iter().for_each(|sender| sender.join().unwrap());
        // All was sent by now. As long as it does not sleep, or was woken, it looks again.
        while !sleeps || core.rings.swap(0, SeqCst) > 0 {
            sleeps = core.doze.may_sleep(|| core.take(&mut taken));
        }
        assert_eq!(taken.iter().sum::<u32>(), senders as u32, "asleep beside a message");
        assert!(core.doze.is_asleep());
    });
}

#[test]
fn a_core_does_not_sleep_beside_a_message() {
    nothing_is_slept_through(1, true);
    nothing_is_slept_through(2, true);
}

#[test]
#[should_panic(expected = "asleep beside a message")]
fn without_the_fence_a_core_sleeps_beside_a_message() {
    nothing_is_slept_through(1, false);
}
