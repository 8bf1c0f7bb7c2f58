//! Answers that need no engine.

pub(crate) mod health;
pub(crate) mod me;
pub(crate) mod models;
pub(crate) mod stored;
