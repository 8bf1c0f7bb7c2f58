//! The client-facing wire: request scan, edits, server-sent events, usage, errors.
//!
//! Called by the gateway's request path, the simulated engine and the load generator. Changes when the
//! OpenAI-compatible wire changes. Never does I/O, reads a clock, starts a task or rebuilds a body: bytes in, positions
//! and bytes out.
//!
//! The rule behind every module: what the client sent is what the engine gets, and what the engine sent is what the
//! client gets, byte for byte, except for the few edits named in [`patch`] and the one event withheld by [`tap`].
//!
//! - [`json`] - the one string escaper and unescaper
//! - [`scan`] - checks a request body and finds the fields the gateway needs
//! - [`prompt`] - what of a body an engine's prefix cache could share with another
//! - [`patch`] - splices a served model, `include_usage`, a priority into a body without copying it
//! - [`sse`] - where events begin and end in a stream; writers of an error event and a comment
//! - [`usage`] - token counts out of a body or an event, and how several reports become one
//! - [`tap`] - what a relay learns from, and withholds of, a streamed answer
//! - [`error`] - the error body, and engine errors brought into its shape
//! - [`style`] - the shapes errors are written in: OpenAI's, Anthropic's
//! - [`list`] - `/v1/models`
//! - [`multipart`] - checks a form and finds the fields the gateway needs
//! - [`stored`] - the id of a stored response, read while its answer passes

mod reader;
mod refusal;
mod special;

pub mod error;
pub mod json;
pub mod list;
pub mod multipart;
pub mod patch;
pub mod prompt;
pub mod scan;
pub mod sse;
pub mod stored;
pub mod style;
pub mod tap;
pub mod usage;

pub use reader::{MAX_DEPTH, Span, Text};
