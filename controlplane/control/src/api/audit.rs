//! The audit trail, to be read.

use llmgw_store::audit::{Event, Wanted};
use serde_json::{Value, json};

use crate::desk::{Desk, Request};
use crate::refusal::Refusal;

pub(crate) fn list(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let limit = request.number("limit")?;
    let limit = limit.map(|limit| u32::try_from(limit).map_err(|_| Refusal::wrong("limit is not a count")));
    let wanted = Wanted {
        target_id: request.query("target").map(str::to_owned),
        before_seq: request.number("before")?,
        limit: limit.transpose()?,
    };
    let events = desk.store()?.read(|rows| rows.events(&wanted))?;
    Ok(json!({ "events": events.iter().map(shown).collect::<Vec<_>>() }))
}

fn shown(event: &Event) -> Value {
    json!({
        "seq": event.seq,
        "ts": event.ts,
        "actor": event.actor,
        "action": event.action,
        "target_type": event.target_type,
        "target_id": event.target_id,
        "before": event.before,
        "after": event.after,
    })
}
