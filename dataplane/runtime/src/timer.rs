//! Deadlines on a core. The wheel underneath ticks about every millisecond and rounds up.

use std::time::Duration;

/// The time was up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// Waits for `time`.
pub async fn sleep(time: Duration) {
    monoio::time::sleep(time).await;
}

/// Waits for `future`, but no longer than `time`; then drops it. See [`crate::io::Io`] on dropping reads.
pub async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    monoio::time::timeout(time, future).await.map_err(|_| Elapsed)
}
