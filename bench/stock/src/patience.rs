//! A timer whose deadline moves with every step and hardly ever comes: armed once, and again only when it fired early
//! or a nearer deadline is set.
//!
//! A tokio timer that is reset for each request costs two turns at the timer wheel's lock; this one costs a comparison.

use std::pin::Pin;
use std::task::{Context, Poll};

use llmgw_kit::clock::Mono;
use tokio::time::{Instant, Sleep, sleep_until};

/// See the module. Belongs to one task: its waker is registered once.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    sleep: Option<Pin<Box<Sleep>>>,
    armed_for: Mono,
}

impl Patience {
    /// Ready when `until` has come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, until: Mono) -> Poll<()> {
        self.poll_by(cx, Mono::now, until)
    }

    fn poll_by(&mut self, cx: &mut Context<'_>, clock: impl Fn() -> Mono, until: Mono) -> Poll<()> {
        // The usual case looks at no clock: the timer would have woken this task.
        let is_armed = self.armed_for <= until && self.sleep.as_ref().is_some_and(|sleep| !sleep.is_elapsed());
        if is_armed {
            return Poll::Pending;
        }
        let now = clock();
        if now >= until {
            return Poll::Ready(());
        }
        self.armed_for = until;
        let at = Instant::now() + until.since(now);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
        // It may fire a little early, as timers of whole milliseconds do: then it is armed again.
        match self.sleep.as_mut().map(|sleep| sleep.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_at_the_deadline_that_holds_when_it_is_asked() {
        let (mut patience, began) = (Patience::default(), Instant::now());
        // The clock of this test stands still but for tokio's own: `Mono` is derived from it.
        let now = move || Mono(1 + u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut deadlines = vec![Mono(40_000_001), Mono(20_000_001), Mono(90_000_001)];
        let mut until = Mono(30_000_001);
        poll_fn(|cx| {
            if let Some(next) = deadlines.pop() {
                until = next;
                cx.waker().wake_by_ref();
            }
            patience.poll_by(cx, now, until)
        })
        .await;
        assert!(began.elapsed() >= Duration::from_millis(40) && began.elapsed() < Duration::from_millis(90));
    }
}
