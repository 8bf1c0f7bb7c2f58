//! Deadlines on a core. The wheel underneath ticks about every millisecond and rounds up.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The time was up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// Waits for `time`.
pub async fn sleep(time: Duration) {
    monoio::time::sleep(time).await;
}

/// See [`timeout`].
#[must_use = "nothing is waited for unless this is awaited"]
pub struct Timeout<F>(monoio::time::Timeout<F>);

/// Waits for `future`, but no longer than `time`; then it is dropped with the wait. See [`crate::io::Io`] on dropping
/// reads.
pub fn timeout<F: Future>(time: Duration, future: F) -> Timeout<F> {
    Timeout(monoio::time::timeout(time, future))
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the only field is pinned with the struct, which never moves it out and has no `Drop` of its own.
        let inner = unsafe { self.map_unchecked_mut(|this| &mut this.0) };
        inner.poll(cx).map_err(|_| Elapsed)
    }
}
