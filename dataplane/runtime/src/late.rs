//! Waiting for the others of a turn.
//!
//! Who writes as soon as it has read one request lets the peer answer it and go to sleep before the next one comes, and
//! pays for waking it with each write. So all that came in a turn is read before anything is written: writes leave in
//! the same turn, together. Called by whoever writes whole requests and answers; events of a stream wait for nobody.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::local;

/// Whom it is written to. All that goes to one side leaves before anything goes to the other: whoever is woken finds
/// the next at hand when it has done the first, and does not sleep in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Engines = 0,
    Clients = 1,
}

/// See [`late`].
#[derive(Debug)]
#[must_use = "nothing is waited for unless this is awaited"]
pub struct Late {
    side: Side,
    has_waited: bool,
}

/// Ready when every task that is ready in this turn was polled once, and it is that side's turn. Cost: nothing where
/// there is no other; else one more poll of the task. On epoll it waits for nobody.
pub fn late(side: Side) -> Late {
    Late { side, has_waited: false }
}

impl Late {
    /// As its future's.
    pub fn poll_now(&mut self) -> Poll<()> {
        if !self.has_waited {
            self.has_waited = true;
            if local::with(|local| local.put_off(self.side)) == Some(true) {
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

    /// What happens in one turn of three tasks that read and then write to these sides.
    fn a_turn(sides: [Side; 3]) -> Vec<&'static str> {
        let order = Rc::new(RefCell::new(Vec::new()));
        let seen = order.clone();
        block_on(choose(DriverChoice::Auto).unwrap().0, async move {
            let words = [("a reads", "a writes"), ("b reads", "b writes"), ("c reads", "c writes")];
            for ((reads, writes), side) in words.into_iter().zip(sides) {
                let order = order.clone();
                crate::spawn(async move {
                    order.borrow_mut().push(reads);
                    late(side).await;
                    order.borrow_mut().push(writes);
                });
            }
            crate::timer::sleep(std::time::Duration::from_millis(2)).await;
        })
        .unwrap();
        seen.take()
    }

    const ON_EPOLL: [&str; 6] = ["a reads", "a writes", "b reads", "b writes", "c reads", "c writes"];

    #[test]
    fn whoever_is_late_goes_on_in_the_same_turn_after_the_others() {
        let seen = a_turn([Side::Clients; 3]);
        let ring = ["a reads", "b reads", "c reads", "a writes", "b writes", "c writes"];
        assert!(seen == ring || seen == ON_EPOLL, "{seen:?}");
    }

    #[test]
    fn all_that_goes_to_engines_leaves_before_anything_goes_to_clients() {
        let seen = a_turn([Side::Clients, Side::Engines, Side::Clients]);
        let ring = ["a reads", "b reads", "c reads", "b writes", "a writes", "c writes"];
        assert!(seen == ring || seen == ON_EPOLL, "{seen:?}");
    }

    #[test]
    fn who_writes_twice_in_a_turn_is_not_forgotten() {
        let count = Rc::new(RefCell::new(0));
        let seen = count.clone();
        block_on(choose(DriverChoice::Auto).unwrap().0, async move {
            for side in [Side::Engines, Side::Clients, Side::Engines] {
                let count = count.clone();
                crate::spawn(async move {
                    late(side).await;
                    late(Side::Engines).await;
                    *count.borrow_mut() += 1;
                });
            }
            crate::timer::sleep(std::time::Duration::from_millis(2)).await;
        })
        .unwrap();
        assert_eq!(seen.take(), 3);
    }
}
