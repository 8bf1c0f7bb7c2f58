//! Requests that wait for an owner's word, each in a slot of its own.
//!
//! Called by `limits` alone. A slot is closed by its own core, whatever the owner says later.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use llmgw_router::limiter::{Answer, Truth};

use super::Limits;

/// Where the answer to a request that waits goes.
pub(super) enum Slot {
    Waiting(Option<Waker>),
    Answered(Answer),
}

impl Limits {
    /// Puts an answer where its request waits.
    pub(super) fn answered(&self, number: u64, answer: Answer) {
        if let Some(slot) = self.open.borrow_mut().get_mut(&number)
            && let Slot::Waiting(Some(waker)) = std::mem::replace(slot, Slot::Answered(answer))
        {
            waker.wake();
        }
    }
}

/// A question that stands. Dropped, it does no more, and what a late yes brings goes back.
pub(super) struct Asking {
    limits: Rc<Limits>,
    number: u64,
}

impl Asking {
    /// A question of that number: what is said to it is kept for this.
    pub(super) fn new(limits: &Rc<Limits>, number: u64) -> Self {
        limits.open.borrow_mut().insert(number, Slot::Waiting(None));
        Self { limits: limits.clone(), number }
    }

    /// The owner's word.
    pub(super) fn answer(&mut self) -> impl Future<Output = Answer> + '_ {
        poll_fn(|cx| {
            let mut open = self.limits.open.borrow_mut();
            match open.get_mut(&self.number) {
                Some(Slot::Answered(answer)) => {
                    let answer = *answer;
                    open.remove(&self.number);
                    Poll::Ready(answer)
                }
                Some(Slot::Waiting(waker)) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let slot = self.limits.open.borrow_mut().remove(&self.number);
        match slot {
            Some(Slot::Waiting(_)) => self.limits.home.borrow_mut().leave(self.number),
            // Said, and nobody took it.
            Some(Slot::Answered(Answer::Go(it, _))) => self.limits.end(it, Truth::default(), super::now()),
            _ => {}
        }
    }
}
