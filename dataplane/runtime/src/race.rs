//! Waiting for the first of two things.

use std::pin::pin;
use std::task::Poll;

/// Which of the two came first.
#[derive(Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first argument.
    Left(A),
    /// The second argument.
    Right(B),
}

/// Waits for whichever is ready first; the other is dropped. When both are ready the left one wins.
///
/// A read of a connection that goes on living must not be dropped: pass it by reference (`&mut pinned`).
pub async fn race<A, B>(left: A, right: B) -> Either<A::Output, B::Output>
where
    A: Future,
    B: Future,
{
    let mut left = pin!(left);
    let mut right = pin!(right);
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(value) = left.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(value));
        }
        right.as_mut().poll(cx).map(Either::Right)
    })
    .await
}
