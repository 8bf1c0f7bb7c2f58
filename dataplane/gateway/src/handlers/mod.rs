//! Answers that need no engine.

pub(crate) mod health;
pub(crate) mod models;
pub(crate) mod stored;
