//! Limits on a level, for all models or for one.

use llmgw_tenancy::limits::{Limits, LimitsRow};
use serde_json::{Value, json};

use crate::desk::{Desk, Request};
use crate::find;
use crate::refusal::Refusal;

fn shown(row: &LimitsRow) -> Value {
    json!({ "level": row.scope.kind.word(), "scope_id": row.scope.id, "model": row.model, "limits": row.limits })
}

fn shown_all(rows: &[LimitsRow]) -> Value {
    json!({ "limits": rows.iter().map(shown).collect::<Vec<_>>() })
}

pub(crate) fn list(desk: &Desk, _: &Request<'_>) -> Result<Value, Refusal> {
    let rows = desk.store()?.read(|rows| rows.limits())?;
    Ok(shown_all(&rows))
}

pub(crate) fn show(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    desk.store()?.read(|rows| {
        let scope = find::scope(rows, request.part(0), request.part(1), request.now)?;
        Ok(shown_all(&rows.limits_of(&scope)?))
    })
}

pub(crate) fn set(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let limits: Limits = request.body()?;
    let (level, wanted, now) = (request.part(0).to_owned(), request.part(1).to_owned(), request.now);
    let model = request.query("model").map(str::to_owned).filter(|model| !model.is_empty());
    let event = request.event("limits.set", (&level, ""), None, None);
    desk.write(move |tx| {
        let scope = find::scope(tx, &level, &wanted, now)?;
        let row = LimitsRow { scope, model, limits };
        row.check()?;
        let before = tx.limits_of(&row.scope)?.into_iter().find(|there| there.model == row.model);
        tx.set_limits(&row)?;
        tx.audit(&event.about(&row.scope.id, before.as_ref().map(shown), Some(shown(&row))))?;
        Ok(shown(&row))
    })
}

pub(crate) fn clear(desk: &Desk, request: &Request<'_>) -> Result<Value, Refusal> {
    let (level, wanted, now) = (request.part(0).to_owned(), request.part(1).to_owned(), request.now);
    let model = request.query("model").map(str::to_owned).filter(|model| !model.is_empty());
    let event = request.event("limits.clear", (&level, ""), None, None);
    desk.write(move |tx| {
        let scope = find::scope(tx, &level, &wanted, now)?;
        let before = tx.limits_of(&scope)?.into_iter().find(|there| there.model == model);
        let Some(before) = before else { return Err(Refusal::missing("limit on", &wanted)) };
        tx.clear_limits(&scope, model.as_deref())?;
        tx.audit(&event.about(&scope.id, Some(shown(&before)), None))?;
        Ok(shown_all(&tx.limits_of(&scope)?))
    })
}
