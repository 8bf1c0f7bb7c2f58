//! From a name to a row of the route table.

use llmgw_types::snapshot::{ArchivedModelRoute, ArchivedRouteTable};

use crate::error::{ApiError, Reason};
use crate::identity::Rights;

/// Names listed in a "model not found" message; more are counted.
const NAMES_SHOWN: usize = 20;

/// The model that a name or alias means, if the caller may use it.
///
/// Errors: no such model; the message lists the ones that the caller may use. One that it may not use is none.
pub fn model(table: &ArchivedRouteTable, rights: Option<Rights<'_>>, name: &str) -> Result<u32, ApiError> {
    let is_allowed = |model: &ArchivedModelRoute| rights.is_none_or(|rights| rights.allows(&model.name));
    if let Some((row, _)) = table.model(name).filter(|(_, model)| is_allowed(model)) {
        return Ok(row);
    }
    let mut known = String::new();
    let mut allowed = table.models.iter().filter(|model| is_allowed(model));
    for (at, model) in allowed.by_ref().take(NAMES_SHOWN).enumerate() {
        if at > 0 {
            known.push_str(", ");
        }
        known.push_str(&model.name);
    }
    let more = allowed.count();
    if more > 0 {
        known.push_str(&format!(" and {more} more"));
    }
    // The name is the client's own text, given back to it alone; bounded, since a name may be as long as a body.
    let shown: String = name.chars().take(256).collect();
    let message = match rights {
        None => format!("model `{shown}` does not exist here; models: {known}"),
        Some(_) if known.is_empty() => format!("model `{shown}`: this key may use no model"),
        Some(_) => format!("model `{shown}` does not exist here for this key; it may use: {known}"),
    };
    Err(ApiError::new(Reason::ModelNotFound, message).about("model"))
}
