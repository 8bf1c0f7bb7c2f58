//! From a name to a row of the route table.

use llmgw_types::snapshot::ArchivedRouteTable;

use crate::error::{ApiError, Reason};

/// Names listed in a "model not found" message; more are counted.
const NAMES_SHOWN: usize = 20;

/// The model that a name or alias means.
///
/// Errors: no such model; the message lists the ones there are.
pub fn model(table: &ArchivedRouteTable, name: &str) -> Result<u32, ApiError> {
    if let Some((row, _)) = table.model(name) {
        return Ok(row);
    }
    let mut known = String::new();
    for (at, model) in table.models.iter().enumerate() {
        if at == NAMES_SHOWN {
            known.push_str(&format!(" and {} more", table.models.len() - NAMES_SHOWN));
            break;
        }
        if at > 0 {
            known.push_str(", ");
        }
        known.push_str(&model.name);
    }
    // The name is the client's own text, given back to it alone; bounded, since a name may be as long as a body.
    let shown: String = name.chars().take(256).collect();
    let mut error =
        ApiError::new(Reason::ModelNotFound, format!("model `{shown}` does not exist here; models: {known}"));
    error.param = Some("model");
    Err(error)
}
