//! Waiting for the first of two things.
//!
//! Plain structs rather than `async fn`s: an `async fn` keeps its arguments beside what it makes of them, so each layer
//! would double the size of what it waits for, and a connection's task is all of its layers.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Which of the two came first.
#[derive(Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first argument.
    Left(A),
    /// The second argument.
    Right(B),
}

/// See [`race`].
#[must_use = "nothing is waited for unless this is awaited"]
pub struct Race<A, B> {
    left: A,
    right: B,
}

/// Waits for whichever is ready first; the other is dropped with it. When both are ready the left one wins.
///
/// A read of a connection that goes on living must not be dropped: pass it by reference (`&mut pinned`).
pub fn race<A: Future, B: Future>(left: A, right: B) -> Race<A, B> {
    Race { left, right }
}

impl<A: Future, B: Future> Future for Race<A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the fields are pinned with the struct: they are never moved out of it, it has no `Drop` of its own,
        // and it is `Unpin` only where both fields are.
        let (left, right) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.left), Pin::new_unchecked(&mut this.right))
        };
        if let Poll::Ready(value) = left.poll(cx) {
            return Poll::Ready(Either::Left(value));
        }
        right.poll(cx).map(Either::Right)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn the_left_one_wins_when_both_are_ready() {
        crate::run_local(async {
            assert_eq!(race(ready(1), ready(2)).await, Either::Left(1));
            assert_eq!(race(pending::<()>(), ready(2)).await, Either::Right(2));
        });
    }

    #[test]
    fn a_race_is_no_larger_than_its_runners() {
        let large = async {
            let bytes = [0u8; 1000];
            ready(()).await;
            bytes.len()
        };
        let size = size_of_val(&large);
        assert!(size_of_val(&race(large, ready(()))) <= size + 16);
    }
}
