//! `/v1/models`: public names, in the order of the route table.

use llmgw_openai::list::{Listed, write_list};

use crate::error::ApiError;
use crate::resolve;
use crate::snapshot::Tables;

/// The body of `GET /v1/models`.
pub(crate) fn list(tables: &Tables) -> Vec<u8> {
    let mut out = Vec::new();
    let models = tables.routes().models.iter();
    write_list(&mut out, models.map(|model| Listed { name: &model.name, created: model.created.to_native() }));
    out
}

/// The body of `GET /v1/models/NAME`; an alias is answered under the name it was asked by.
///
/// Errors: no such model.
pub(crate) fn one(tables: &Tables, name: &str) -> Result<Vec<u8>, ApiError> {
    let row = resolve::model(tables.routes(), name)?;
    let created = tables.routes().models.get(row as usize).map_or(0, |model| model.created.to_native());
    let mut out = Vec::new();
    Listed { name, created }.write(&mut out);
    Ok(out)
}
