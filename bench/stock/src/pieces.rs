//! Bodies made of pieces that are there already, as hyper takes them: nothing is copied and the length is known.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A request's body on its way to an engine.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// The usual body is one piece.
    first: Option<Bytes>,
    more: VecDeque<Bytes>,
    left: u64,
}

impl Pieces {
    pub(crate) fn one(piece: Bytes) -> Self {
        let left = piece.len() as u64;
        Self { first: Some(piece).filter(|piece| !piece.is_empty()), more: VecDeque::new(), left }
    }

    pub(crate) fn of(pieces: &[Bytes]) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut pieces = pieces.iter().filter(|piece| !piece.is_empty()).cloned();
        Self { first: pieces.next(), more: pieces.collect(), left }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.first.take().or_else(|| self.more.pop_front());
        self.left -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
