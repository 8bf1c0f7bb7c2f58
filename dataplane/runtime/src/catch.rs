//! Keeping a panic to the future it happened in.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// See [`without_panic`].
#[must_use = "nothing runs unless this is awaited"]
pub struct WithoutPanic<F>(F);

/// Runs a future; a panic in it ends only it, and is the answer. What it shared with others must be restored by guards
/// on unwinding, as for any early return.
pub fn without_panic<F: Future>(future: F) -> WithoutPanic<F> {
    WithoutPanic(future)
}

impl<F: Future> Future for WithoutPanic<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the only field is pinned with the struct, which never moves it out and has no `Drop` of its own.
        let inner = unsafe { self.map_unchecked_mut(|this| &mut this.0) };
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_only_the_future_it_happened_in() {
        crate::run_local(async {
            assert_eq!(without_panic(async { 1 }).await.unwrap(), 1);
            let caught = without_panic(async { std::panic::resume_unwind(Box::new("no message")) }).await;
            let caught: Result<(), _> = caught;
            assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"no message"));
        });
    }
}
