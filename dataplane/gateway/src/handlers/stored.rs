//! Requests about a stored response: they go to the engine that holds it, which no other one can answer for.

use crate::error::{ApiError, Reason};

/// No engine is known to hold it.
pub(crate) fn unknown(id: &str) -> ApiError {
    ApiError::new(Reason::ResponseNotFound, format!("response `{id}` is not known here"))
}
