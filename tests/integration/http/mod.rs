//! What a client may send, what an engine gets of it, and what comes back.

mod bodies;
mod conversation;
mod engine_errors;
mod headers;
mod names;
mod smuggling;
mod upstream;
