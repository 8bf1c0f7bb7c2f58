//! Deadlines on a core. The ring's timers are exact; the wheel of the epoll driver ticks about every millisecond and
//! rounds up.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use llmgw_kit::clock::Mono;

use crate::local;

/// The time was up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// See [`sleep`].
#[must_use = "nothing is waited for unless this is awaited"]
pub struct Sleep(Kind);

enum Kind {
    /// When, on the clock of the core's own runtime.
    Local(u64),
    Epoll(Pin<Box<monoio::time::Sleep>>),
}

/// Waits for `time`. Cost: on the ring two comparisons a poll; on epoll an allocation.
///
/// It must be polled whenever its task is: a task has one timer for all it waits for.
pub fn sleep(time: Duration) -> Sleep {
    match local::with(|local| local.deadline(time)) {
        Some(deadline) => Sleep(Kind::Local(deadline)),
        None => Sleep(Kind::Epoll(Box::pin(monoio::time::sleep(time)))),
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Kind::Local(deadline) => local::with(|local| local.poll_deadline(*deadline)).unwrap_or(Poll::Ready(())),
            Kind::Epoll(sleep) => sleep.as_mut().poll(cx),
        }
    }
}

/// See [`timeout`].
#[must_use = "nothing is waited for unless this is awaited"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

/// Waits for `future`, but no longer than `time`; then it is dropped with the wait.
pub fn timeout<F: Future>(time: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(time) }
}

/// As [`timeout`], until `deadline`. Cost: the clock is not read, where the ring drives.
pub fn timeout_at<F: Future>(deadline: Mono, future: F) -> Timeout<F> {
    let sleep = match local::with(|local| local.moment(deadline)) {
        Some(deadline) => Sleep(Kind::Local(deadline)),
        None => sleep(deadline.since(Mono::now())),
    };
    Timeout { future, sleep }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the future is pinned with the struct, which never moves it out and has no `Drop` of its own; the
        // sleep may be moved, and it is `Unpin`.
        let (future, sleep) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), Pin::new(&mut this.sleep))
        };
        if let Poll::Ready(value) = future.poll(cx) {
            return Poll::Ready(Ok(value));
        }
        ready!(sleep.poll(cx));
        Poll::Ready(Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::driver::{Driver, DriverChoice, block_on, choose};

    #[test]
    fn of_several_limits_the_nearest_ends_the_wait_and_the_others_still_hold() {
        for driver in [Driver::Epoll, choose(DriverChoice::Auto).unwrap().0] {
            let (inner, outer) = block_on(driver, async {
                let millis = Duration::from_millis;
                let began = Mono::now();
                let mut outer = std::pin::pin!(timeout(millis(30), async {
                    let inner = timeout(millis(10), timeout(Duration::MAX, pending::<()>())).await;
                    assert!(Mono::now().since(began) >= millis(10));
                    assert_eq!(inner, Err(Elapsed));
                    pending::<()>().await;
                }));
                let outer = outer.as_mut().await;
                (Mono::now().since(began), outer)
            })
            .unwrap();
            assert!(inner >= Duration::from_millis(30));
            assert_eq!(outer, Err(Elapsed));
        }
    }
}
