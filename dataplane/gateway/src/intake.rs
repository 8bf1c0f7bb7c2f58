//! A request's body: read within limits, checked, and kept as the bytes that came.
//!
//! What a route takes for a body is the route table's word; this room is the only one that knows how to look into each
//! kind, and how to splice it for an engine.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use llmgw_http::head::RequestHead;
use llmgw_http::server::ServerConn;
use llmgw_openai::multipart::{self, Form};
use llmgw_openai::patch::{Edits, Segment};
use llmgw_openai::scan::{Scan, scan};
use llmgw_runtime::tcp::Tcp;

use crate::error::{ApiError, Reason};
use crate::route::BodyKind;

/// Bytes of recorded speech that stand for one token of it, as a guess before any engine counted.
const AUDIO_BYTES_PER_TOKEN: u64 = 256;

/// A body and what was found in it.
pub struct Intake {
    body: Bytes,
    found: Found,
}

enum Found {
    Json(Scan),
    Multipart(Form),
}

/// Reads and checks a body. `None` when the client left before it was complete.
///
/// Errors: over a limit, too slow, badly framed, or not a body of its kind that names a model.
pub(crate) async fn read(
    head: &RequestHead,
    kind: BodyKind,
    conn: &mut ServerConn<Tcp>,
) -> Result<Option<Intake>, ApiError> {
    let ServerConn { reader, writer } = conn;
    let Some(body) = reader.body(head, writer).await? else { return Ok(None) };
    let types = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
    Intake::of(body, kind, types.map(|(_, value)| value)).map(Some)
}

fn form<'h>(mut types: impl Iterator<Item = &'h [u8]>, body: &[u8]) -> Result<Form, ApiError> {
    let content_type = types.next().unwrap_or_default();
    if types.next().is_some() {
        return Err(ApiError::new(Reason::BadRequest, "Content-Type is given twice; its boundary must be one"));
    }
    let boundary = multipart::boundary(content_type)?;
    Ok(multipart::form(body, &boundary)?)
}

impl Intake {
    /// Checks a body. `types` are the values of the request's `Content-Type` lines.
    ///
    /// Errors: not a body of its kind that names a model.
    pub fn of<'h>(body: Bytes, kind: BodyKind, types: impl Iterator<Item = &'h [u8]>) -> Result<Self, ApiError> {
        let found = match kind {
            BodyKind::Json => Found::Json(scan(&body)?),
            BodyKind::Multipart => Found::Multipart(form(types, &body)?),
        };
        Ok(Self { body, found })
    }

    /// The model's name as the client wrote it.
    pub fn model(&self) -> Cow<'_, str> {
        match &self.found {
            Found::Json(scan) => scan.model(&self.body),
            Found::Multipart(form) => Cow::Borrowed(form.model(&self.body)),
        }
    }

    pub fn is_streaming(&self) -> bool {
        match &self.found {
            Found::Json(scan) => scan.is_streaming(),
            Found::Multipart(form) => form.is_streaming,
        }
    }

    /// Whether the client itself asked for usage in its stream.
    pub fn asks_for_usage(&self) -> bool {
        matches!(&self.found, Found::Json(scan) if scan.asks_for_usage())
    }

    /// What the body says of its session: the key its cache is kept by, else its user.
    pub fn session_key(&self) -> Option<Cow<'_, str>> {
        match &self.found {
            Found::Json(scan) => Some(scan.prompt_cache_key.or(scan.user)?.read(&self.body)),
            Found::Multipart(_) => None,
        }
    }

    /// The stored response that this request goes on from.
    pub fn previous_response(&self) -> Option<Cow<'_, str>> {
        match &self.found {
            Found::Json(scan) => Some(scan.previous_response_id?.read(&self.body)),
            Found::Multipart(_) => None,
        }
    }

    /// A guess at the prompt's length. Units: tokens.
    pub fn prompt_tokens_estimate(&self) -> u64 {
        let bytes = self.body.len() as u64;
        match &self.found {
            Found::Multipart(_) => bytes.div_ceil(AUDIO_BYTES_PER_TOKEN),
            // Texts to be judged or taken apart stand in fields of their own: nearly all of the body.
            Found::Json(scan) if scan.prompts.each().next().is_none() => bytes.div_ceil(4),
            Found::Json(scan) => scan.prompt_tokens_estimate(),
        }
    }

    /// The body for an engine that calls the model `served_as`, asked for usage where `adds_usage` says so; in pieces,
    /// each of what stays shared with the original.
    pub fn pieces(&self, served_as: &str, adds_usage: bool) -> Pieces {
        let renames = self.model() != served_as;
        match &self.found {
            Found::Json(scan) => {
                let mut edits = Edits::new();
                if renames {
                    edits.served_model(scan, served_as);
                }
                if adds_usage {
                    edits.include_usage(scan);
                }
                if !edits.is_empty() {
                    return Pieces::Cut(cut(&self.body, edits.segments(self.body.len())));
                }
            }
            Found::Multipart(form) => {
                if renames {
                    return Pieces::Cut(cut(&self.body, form.with_model(self.body.len(), served_as)));
                }
            }
        }
        Pieces::Whole([self.body.clone()])
    }
}

/// A body as it goes out. The usual one is whole and costs no allocation.
pub enum Pieces {
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

fn cut<'s>(body: &Bytes, segments: impl Iterator<Item = Segment<'s>>) -> Vec<Bytes> {
    segments
        .map(|segment| match segment {
            Segment::Keep(range) => body.slice(range),
            Segment::Insert(bytes) => Bytes::copy_from_slice(bytes),
        })
        .collect()
}
