//! What each question does: one file a resource.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod scopes;
pub(crate) mod usage;

use serde::{Deserialize, Deserializer};

use crate::refusal::Refusal;

/// A field that is absent (`None`), or null or a value (`Some`).
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Errors: the name of a band or profile is none.
pub(crate) fn checked_word(what: &str, written: Option<&str>) -> Result<(), Refusal> {
    written.map_or(Ok(()), |written| crate::find::checked_name(what, written))
}
