//! What a flood of a low band does to a high one: the router's own gate, queues and dispatcher before the pure engine
//! model, in virtual time, so that a busy machine changes nothing.
//!
//! [`world`] runs one [`case`] and says what came of it; [`engine`] is the engine, fixed here. No I/O, no clock.

pub mod case;
pub mod engine;
mod table;
pub mod world;

pub use case::{Case, Figures};
pub use engine::{EngineKind, Memory, Speed};
pub use world::run;
