//! A simulated inference engine: a pure model of continuous batching behind an OpenAI-compatible front.
//!
//! Everything else is tested against it. The model (`batch`, `store`, `kv`, `pace`, `token`) and the vocabulary of
//! faults do no I/O and read no clock, so a simulation may run them in virtual time; the front serves them over
//! HTTP/1.1 on one thread, with control over every byte it writes. Shares no code with the router: its tokens, hashes
//! and blocks are its own.
//!
//! Reading order: [`batch`] and [`faults`], then `answer`, then `api`.

pub mod batch;
pub mod kv;
mod mix;
pub mod pace;
pub mod store;
pub mod token;

pub mod config;
pub mod faults;

mod answer;
mod api;
mod conn;
mod control;
mod head;
mod metrics;
pub mod record;
mod reply;
mod server;
mod shared;
mod wire;

mod base64;
mod date;

pub use config::{EngineConfig, Vocabulary};
pub use control::StateView;
pub use faults::Faults;
pub use server::{Engine, Handle};
pub use shared::Served;
