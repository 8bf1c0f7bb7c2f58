//! Answers that need no engine.

pub(crate) mod health;
pub(crate) mod models;
