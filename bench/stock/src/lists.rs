//! What is answered here: the models there are, and whether this gateway is ready.

use llmgw_gateway::error::ApiError;
use llmgw_gateway::identity::Rights;
use llmgw_gateway::resolve;
use llmgw_kit::clock::Mono;
use llmgw_openai::list::{Listed, write_list};
use llmgw_router::readiness::Standing;
use llmgw_types::BoardSlot;

use crate::state::Gateway;
use crate::tables::Tables;

pub(crate) fn list(tables: &Tables, rights: Option<Rights<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    let models = tables.routes().models.iter();
    let models = models.filter(|model| rights.is_none_or(|rights| rights.allows(&model.name)));
    write_list(&mut out, models.map(|model| Listed { name: &model.name, created: model.created.to_native() }));
    out
}

pub(crate) fn one(tables: &Tables, rights: Option<Rights<'_>>, name: &str) -> Result<Vec<u8>, ApiError> {
    let row = resolve::model(tables.routes(), rights, name)?;
    let created = tables.routes().models.get(row as usize).map_or(0, |model| model.created.to_native());
    let mut out = Vec::new();
    Listed { name, created }.write(&mut out);
    Ok(out)
}

pub(crate) fn ready(gateway: &Gateway) -> (u16, Vec<u8>) {
    let standing = gateway.tables().map(|tables| {
        let slots = tables.routes().endpoints.iter().map(|endpoint| BoardSlot(endpoint.slot.to_native()));
        Standing::of(&gateway.board, slots, Mono::now())
    });
    let Standing { known, ready, .. } = standing.unwrap_or_default();
    let (is_ready, word) = gateway.readiness.judge(&standing.unwrap_or_default());
    let body = format!("{{\"status\":\"{word}\",\"endpoints_ready\":{ready},\"endpoints\":{known}}}\n");
    (if is_ready { 200 } else { 503 }, body.into_bytes())
}
