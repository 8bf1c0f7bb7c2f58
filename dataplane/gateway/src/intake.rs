//! A request's body: read within limits, checked, and kept as the bytes that came.
//!
//! What a route takes for a body is the route table's word; this room is the only one that knows how to look into each
//! kind, and how to splice it for an engine.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use llmgw_http::head::RequestHead;
use llmgw_http::server::ServerConn;
use llmgw_http::spare::Buffer;
use llmgw_openai::multipart::{self, Form};
use llmgw_openai::patch::{Edits, Segment};
use llmgw_openai::prompt::Piece;
use llmgw_openai::scan::{Scan, scan};
use llmgw_router::prefix::{Fingerprint, Salt};

use crate::door::ClientIo;
use crate::error::{ApiError, Reason};
use crate::route::BodyKind;

/// Bytes of recorded speech that stand for one token of it, as a guess before any engine counted.
const AUDIO_BYTES_PER_TOKEN: u64 = 256;

/// A body and what was found in it.
pub struct Intake {
    body: Body,
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
    conn: &mut ServerConn<ClientIo>,
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
    pub fn of<'h>(
        body: impl Into<Body>,
        kind: BodyKind,
        types: impl Iterator<Item = &'h [u8]>,
    ) -> Result<Self, ApiError> {
        let body = body.into();
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

    /// Who is behind it, in the client's own words.
    pub(crate) fn user(&self) -> Option<Cow<'_, str>> {
        match &self.found {
            Found::Json(scan) => Some(scan.user?.read(&self.body)),
            Found::Multipart(_) => None,
        }
    }

    /// The most tokens that it may be answered with, where it says so; of all its answers together.
    pub(crate) fn output_limit(&self) -> Option<u64> {
        match &self.found {
            Found::Json(scan) => Some(scan.output_limit()?.saturating_mul(scan.n.unwrap_or(1).max(1))),
            Found::Multipart(_) => None,
        }
    }

    /// As [`Self::output_limit`], where an engine that says more is wrong.
    pub fn answer_limit(&self) -> Option<u64> {
        match &self.found {
            Found::Json(scan) if scan.is_answered_once(&self.body) => self.output_limit(),
            _ => None,
        }
    }

    /// What it holds in memory.
    pub(crate) fn size_bytes(&self) -> usize {
        self.body.len()
    }

    /// The stored response that this request goes on from.
    pub fn previous_response(&self) -> Option<Cow<'_, str>> {
        match &self.found {
            Found::Json(scan) => Some(scan.previous_response_id?.read(&self.body)),
            Found::Multipart(_) => None,
        }
    }

    /// Makes the fingerprint of its prompt, as one of that model. Answer: whether there is one to make.
    ///
    /// A request that goes on from a stored response has most of its prompt at its engine, and goes there.
    pub fn fingerprint(&self, fingerprint: &mut Fingerprint, model: &str) -> bool {
        let Found::Json(scan) = &self.found else { return false };
        if scan.previous_response_id.is_some() {
            return false;
        }
        let cache_salt = scan.cache_salt.map(|salt| salt.span.of(&self.body));
        // Adapters are models with names of their own, so that no other name keeps them apart.
        fingerprint.begin(&Salt { model, lora: "", cache_salt });
        scan.prompt_pieces(&self.body, |piece| match piece {
            Piece::Text(text) => fingerprint.text(text),
            Piece::Media(data) => fingerprint.media(data),
            Piece::NextPrompt => fingerprint.next_prompt(),
        });
        fingerprint.finish();
        true
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

    /// The body with what an engine is to read otherwise than the client wrote it.
    pub(crate) fn spliced<'a>(&'a self, splices: Splices<'a>) -> Spliced<'a> {
        let Splices { served_as, adds_usage, priority } = splices;
        let renames = self.model() != served_as;
        let change = match &self.found {
            Found::Json(scan) => {
                let mut edits = Edits::new();
                if renames {
                    edits.served_model(scan, served_as);
                }
                if adds_usage {
                    edits.include_usage(scan);
                }
                if let Some(priority) = priority {
                    edits.priority(scan, priority);
                }
                Change::Edits(edits)
            }
            Found::Multipart(form) if renames => Change::Model(form, served_as),
            Found::Multipart(_) => Change::Nothing,
        };
        Spliced { body: &self.body, change }
    }

    /// As the gateway's own `spliced`, in pieces that share what stays with the original.
    pub fn pieces(&self, served_as: &str, adds_usage: bool) -> Vec<Bytes> {
        let spliced = self.spliced(Splices { served_as, adds_usage, priority: None });
        let own = |bytes: &[u8]| match &self.body {
            Body::Shared(body) => body.slice_ref(bytes),
            Body::Own(_) => Bytes::copy_from_slice(bytes),
        };
        let cut = |segment: Segment<'_>| match segment {
            Segment::Keep(range) => own(self.body.get(range).unwrap_or_default()),
            Segment::Insert(bytes) => Bytes::copy_from_slice(bytes),
        };
        match &spliced.change {
            Change::Edits(edits) => edits.segments(self.body.len()).map(cut).collect(),
            Change::Model(form, name) => form.with_model(self.body.len(), name).map(cut).collect(),
            Change::Nothing => vec![own(&self.body)],
        }
    }
}

/// A body's bytes: this core's, or somebody's who shares them.
pub enum Body {
    Own(Buffer),
    Shared(Bytes),
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<Buffer> for Body {
    fn from(buffer: Buffer) -> Self {
        Self::Own(buffer)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

/// What is spliced into a body.
#[derive(Clone, Copy)]
pub(crate) struct Splices<'a> {
    /// What the engine calls the model.
    pub(crate) served_as: &'a str,
    /// Ask for usage.
    pub(crate) adds_usage: bool,
    /// The request's place in the engine's queue, in the engine's numbers; in place of what the client wrote.
    pub(crate) priority: Option<i64>,
}

/// A body as it goes to an engine, without a copy of what stays.
pub(crate) struct Spliced<'a> {
    body: &'a [u8],
    change: Change<'a>,
}

enum Change<'a> {
    Nothing,
    Edits(Edits<'a>),
    Model(&'a Form, &'a str),
}

/// Pieces of a spliced body: one more than twice the edits there can be.
const PARTS_MAX: usize = 9;

impl Spliced<'_> {
    /// The pieces, in order; what the array has left over is empty. Cost: no allocation.
    pub(crate) fn parts(&self) -> [&[u8]; PARTS_MAX] {
        let mut parts = [&[][..]; PARTS_MAX];
        match &self.change {
            Change::Nothing => parts[0] = self.body,
            Change::Edits(edits) => self.fill(&mut parts, edits.segments(self.body.len())),
            Change::Model(form, name) => self.fill(&mut parts, form.with_model(self.body.len(), name)),
        }
        parts
    }

    fn fill<'s>(&'s self, parts: &mut [&'s [u8]], segments: impl Iterator<Item = Segment<'s>>) {
        for (part, segment) in parts.iter_mut().zip(segments) {
            *part = match segment {
                Segment::Keep(range) => self.body.get(range).unwrap_or_default(),
                Segment::Insert(bytes) => bytes,
            };
        }
    }
}
