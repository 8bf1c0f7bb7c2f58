//! The body of an answer to a client: whole, or passed on as an engine sends it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::bare::Bare;
use crate::finish::Finish;
use crate::relay::Streaming;
use crate::retry::Granted;
use crate::whole::Passing;

/// The answer broke: its connection ends without the body's proper end.
#[derive(Debug)]
pub(crate) struct Aborted;

impl std::fmt::Display for Aborted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer broke off")
    }
}

impl std::error::Error for Aborted {}

/// See the module. What ends with the answer ends with its body.
pub(crate) enum Answer {
    /// All of it is here.
    Full(Full),
    /// An engine's answer that is no stream and did not come in one piece.
    Passing(Box<Passing>),
    /// A stream of events.
    Streaming(Box<Streaming>),
    /// Whatever comes, in the mode without a gateway's work.
    Bare(Bare),
}

/// An answer in one piece.
pub(crate) struct Full {
    pub(crate) bytes: Bytes,
    #[expect(dead_code, reason = "counts and records when it is dropped")]
    pub(crate) finish: Box<Finish>,
    #[expect(dead_code, reason = "the request counts at its endpoint until this is dropped")]
    pub(crate) granted: Option<Granted>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match self.get_mut() {
            Self::Full(full) => {
                let bytes = std::mem::take(&mut full.bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Passing(passing) => passing.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
            Self::Streaming(streaming) => {
                streaming.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Bare(bare) => bare.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(full) => full.bytes.is_empty(),
            Self::Bare(bare) => bare.is_over(),
            Self::Passing(_) | Self::Streaming(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(full) => SizeHint::with_exact(full.bytes.len() as u64),
            Self::Passing(passing) => passing.left().map(SizeHint::with_exact).unwrap_or_default(),
            Self::Bare(bare) => bare.length().map(SizeHint::with_exact).unwrap_or_default(),
            Self::Streaming(_) => SizeHint::default(),
        }
    }
}
