//! Waiting for the others of a turn.
//!
//! Who writes as soon as it has read one request lets the peer answer it and go to sleep before the next one comes, and
//! pays for waking it with each write. So all that came in a turn is read before anything is written: writes leave in
//! the same turn, together. Called by
//! whoever writes whole requests and answers; events of a stream wait for nobody.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::local;

/// See [`late`].
#[derive(Debug, Default)]
#[must_use = "nothing is waited for unless this is awaited"]
pub struct Late {
    has_waited: bool,
}

/// Ready when every task that is ready in this turn was polled once. Cost: nothing where there is no other; else one
/// more poll of the task. On epoll it waits for nobody.
pub fn late() -> Late {
    Late::default()
}

impl Late {
    /// As its future's.
    pub fn poll_now(&mut self) -> Poll<()> {
        if !self.has_waited {
            self.has_waited = true;
            if local::with(local::Local::put_off) == Some(true) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

impl Future for Late {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.poll_now()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::driver::{DriverChoice, block_on, choose};

    #[test]
    fn whoever_is_late_goes_on_in_the_same_turn_after_the_others() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let seen = order.clone();
        block_on(choose(DriverChoice::Auto).unwrap().0, async move {
            for name in ["a", "b", "c"] {
                let order = order.clone();
                crate::spawn(async move {
                    order.borrow_mut().push(format!("{name} reads"));
                    late().await;
                    order.borrow_mut().push(format!("{name} writes"));
                });
            }
            crate::timer::sleep(std::time::Duration::from_millis(2)).await;
        })
        .unwrap();
        // The last of a turn has nobody to wait for.
        let ring = ["a reads", "b reads", "c reads", "c writes", "a writes", "b writes"];
        let epoll = ["a reads", "a writes", "b reads", "b writes", "c reads", "c writes"];
        let seen = seen.borrow();
        assert!(*seen == ring || *seen == epoll, "{seen:?}");
    }
}
