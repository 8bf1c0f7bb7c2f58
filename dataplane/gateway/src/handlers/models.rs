//! `/v1/models`: public names that the caller may use, in the order of the route table.

use llmgw_openai::list::{Listed, write_list};

use crate::error::ApiError;
use crate::identity::Rights;
use crate::resolve;
use crate::snapshot::Tables;

/// The body of `GET /v1/models`.
pub(crate) fn list(tables: &Tables, rights: Option<Rights<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    let models = tables.routes().models.iter();
    let models = models.filter(|model| rights.is_none_or(|rights| rights.allows(&model.name)));
    write_list(&mut out, models.map(|model| Listed { name: &model.name, created: model.created.to_native() }));
    out
}

/// The body of `GET /v1/models/NAME`; an alias is answered under the name it was asked by.
///
/// Errors: no such model for this caller.
pub(crate) fn one(tables: &Tables, rights: Option<Rights<'_>>, name: &str) -> Result<Vec<u8>, ApiError> {
    let row = resolve::model(tables.routes(), rights, name)?;
    let created = tables.routes().models.get(row as usize).map_or(0, |model| model.created.to_native());
    let mut out = Vec::new();
    Listed { name, created }.write(&mut out);
    Ok(out)
}
