//! A simulated inference engine: a pure model of continuous batching behind an OpenAI-compatible front.

pub mod batch;
pub mod chance;
pub mod kv;
pub mod pace;
mod store;
pub mod token;
