//! One client connection, as two halves: a reader of requests and a writer of responses.
//!
//! The gateway holds both, so that a response can be written while the reader watches whether the client is still
//! there: `next` a head, `body`, then any answer through the writer, and around again. What the halves must tell each
//! other (does this connection end after the answer, may the answer be chunked) is in one shared struct. Never
//! routes, never interprets a body.

mod reader;
mod request_body;
mod writer;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use llmgw_runtime::io::Io;

pub use reader::{Next, RequestReader};
pub use writer::{BodyLength, ResponseWriter};

use crate::body::Framing;
use crate::head::{RequestHead, Version};
use crate::limits::ServerLimits;

/// The two halves of a client connection.
///
/// Dropping the reader closes the connection at once.
pub struct ServerConn<I: Io> {
    /// Receives requests and notices that the client has left.
    pub reader: RequestReader<I>,
    /// Sends responses.
    pub writer: ResponseWriter<I>,
}

impl<I: Io> ServerConn<I> {
    /// A connection that was just accepted.
    pub fn new(io: I, limits: Rc<ServerLimits>) -> Self {
        let turn = Rc::new(Turn::default());
        turn.taking_in.set(limits.client_idle);
        let writer = ResponseWriter::new(io.clone(), Rc::clone(&turn));
        Self { reader: RequestReader::new(io, limits, turn), writer }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// No request is open.
    #[default]
    Between,
    /// A request was read, or refused; its answer has not begun.
    Asked,
    /// An answer has begun and not ended.
    Answering,
}

/// What the halves know of the request in hand.
#[derive(Debug, Default)]
struct Turn {
    phase: Cell<Phase>,
    /// The connection ends after this answer.
    closes: Cell<bool>,
    /// Body bytes of this request may still come.
    has_unread_body: Cell<bool>,
    is_head_request: Cell<bool>,
    is_http10: Cell<bool>,
    /// How long the client may take to take in a whole answer.
    taking_in: Cell<Duration>,
}

impl Turn {
    fn begin(&self, head: &RequestHead) {
        self.phase.set(Phase::Asked);
        self.closes.set(self.closes.get() || !head.keeps_alive());
        self.has_unread_body.set(!matches!(head.framing(), Framing::None | Framing::Length(0)));
        self.is_head_request.set(head.method() == b"HEAD");
        self.is_http10.set(head.version() == Version::Http10);
    }

    /// A request was refused; whatever else the client sends is not understood.
    fn refuse(&self) {
        self.phase.set(Phase::Asked);
        self.closes.set(true);
        self.has_unread_body.set(true);
        self.is_head_request.set(false);
        self.is_http10.set(false);
    }

    /// No answer is half sent.
    fn has_ended_in_order(&self) -> bool {
        self.phase.get() == Phase::Between
    }

    /// The connection may be asked for another request.
    fn may_go_on(&self) -> bool {
        self.phase.get() == Phase::Between && !self.closes.get() && !self.has_unread_body.get()
    }
}
