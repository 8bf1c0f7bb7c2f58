//! A request's body: read within limits, checked, and kept as the bytes that came.
//!
//! What a route takes for a body is the route table's word; this room is the only one that knows how to look into each
//! kind, and how to splice it for an engine.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use llmgw_http::head::RequestHead;
use llmgw_http::server::ServerConn;
use llmgw_openai::patch::{Edits, Segment};
use llmgw_openai::scan::{Scan, scan};
use llmgw_runtime::tcp::Tcp;

use crate::error::ApiError;

/// A body and what was found in it.
pub(crate) struct Intake {
    body: Bytes,
    scan: Scan,
}

/// Reads and checks a body. `None` when the client left before it was complete.
///
/// Errors: over a limit, too slow, badly framed, or not a JSON object that names a model.
pub(crate) async fn read(head: &RequestHead, conn: &mut ServerConn<Tcp>) -> Result<Option<Intake>, ApiError> {
    let ServerConn { reader, writer } = conn;
    let Some(body) = reader.body(head, writer).await? else { return Ok(None) };
    let scan = scan(&body)?;
    Ok(Some(Intake { body, scan }))
}

impl Intake {
    /// The model's name as the client wrote it.
    pub(crate) fn model(&self) -> Cow<'_, str> {
        self.scan.model(&self.body)
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.scan.is_streaming()
    }

    /// Whether the client itself asked for usage in its stream.
    pub(crate) fn asks_for_usage(&self) -> bool {
        self.scan.asks_for_usage()
    }

    /// A guess at the prompt's length. Units: tokens.
    pub(crate) fn prompt_tokens_estimate(&self) -> u64 {
        self.scan.prompt_tokens_estimate()
    }

    /// The body for an engine that calls the model `served_as`, asked for usage where `adds_usage` says so; in pieces,
    /// each of what stays shared with the original.
    pub(crate) fn pieces(&self, served_as: &str, adds_usage: bool) -> Pieces {
        let mut edits = Edits::new();
        if self.model() != served_as {
            edits.served_model(&self.scan, served_as);
        }
        if adds_usage {
            edits.include_usage(&self.scan);
        }
        if edits.is_empty() { Pieces::Whole([self.body.clone()]) } else { Pieces::Cut(cut(&self.body, &edits)) }
    }
}

/// A body as it goes out. The usual one is whole and costs no allocation.
pub(crate) enum Pieces {
    Whole([Bytes; 1]),
    Cut(Vec<Bytes>),
}

impl Deref for Pieces {
    type Target = [Bytes];

    fn deref(&self) -> &[Bytes] {
        match self {
            Self::Whole(whole) => whole,
            Self::Cut(pieces) => pieces,
        }
    }
}

fn cut(body: &Bytes, edits: &Edits<'_>) -> Vec<Bytes> {
    edits
        .segments(body.len())
        .map(|segment| match segment {
            Segment::Keep(range) => body.slice(range),
            Segment::Insert(bytes) => Bytes::copy_from_slice(bytes),
        })
        .collect()
}
