//! Limits, on any level, for all models or for one.

use llmgw_tenancy::limits::{Limits, LimitsRow, Period};
use llmgw_tenancy::scope::{Scope, ScopeKind};
use rusqlite::types::Type;
use rusqlite::{Row, params};

use crate::error::StoreError;
use crate::store::{Rows, Tx};

const LIMITS: &str = "SELECT scope_type, scope_id, model, rpm, tpm, parallel, budget_micros, budget_period, \
                      time_zone, allowed_models FROM limits";

fn limits(row: &Row<'_>) -> rusqlite::Result<LimitsRow> {
    // What is not as we write it was written by hand; it is refused rather than read as no limit.
    let odd = |at: usize, what: &str| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, what.into());
    let kind: String = row.get(0)?;
    let kind = ScopeKind::of(&kind).ok_or_else(|| odd(0, "no level of limits"))?;
    let model: String = row.get(2)?;
    let count = |at: usize| {
        let value: Option<i64> = row.get(at)?;
        value.map(u64::try_from).transpose().map_err(|_| odd(at, "a limit below 0"))
    };
    let period: Option<String> = row.get(7)?;
    let period = period.map(|word| Period::of(&word).ok_or_else(|| odd(7, "no period"))).transpose()?;
    let allowed: Option<String> = row.get(9)?;
    let allowed =
        allowed.map(|text| serde_json::from_str(&text).map_err(|_| odd(9, "no list of names"))).transpose()?;
    Ok(LimitsRow {
        scope: Scope::new(kind, row.get::<_, String>(1)?),
        model: Some(model).filter(|name| !name.is_empty()),
        limits: Limits {
            rpm: count(3)?,
            tpm: count(4)?,
            parallel: count(5)?,
            budget_micros: count(6)?,
            budget_period: period,
            time_zone: row.get(8)?,
            allowed_models: allowed,
        },
    })
}

impl Rows<'_> {
    /// All limits there are, by level and model.
    pub fn limits(&self) -> Result<Vec<LimitsRow>, StoreError> {
        self.list(&format!("{LIMITS} ORDER BY scope_type, scope_id, model"), [], limits)
    }

    /// All limits there are as they lie, in no order.
    pub fn limits_unsorted(&self) -> Result<Vec<LimitsRow>, StoreError> {
        self.list(LIMITS, [], limits)
    }

    /// The limits that hang on a level: those for all models first.
    pub fn limits_of(&self, scope: &Scope) -> Result<Vec<LimitsRow>, StoreError> {
        let sql = format!("{LIMITS} WHERE scope_type = ?1 AND scope_id = ?2 ORDER BY model");
        self.list(&sql, [scope.kind.word(), scope.id.as_str()], limits)
    }
}

impl Tx<'_> {
    /// Hangs limits on a level, in place of those that hung there for the same model.
    pub fn set_limits(&self, row: &LimitsRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO limits (scope_type, scope_id, model, rpm, tpm, parallel, budget_micros, \
                   budget_period, time_zone, allowed_models) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
                   ON CONFLICT (scope_type, scope_id, model) DO UPDATE SET rpm = excluded.rpm, tpm = excluded.tpm, \
                   parallel = excluded.parallel, budget_micros = excluded.budget_micros, \
                   budget_period = excluded.budget_period, time_zone = excluded.time_zone, \
                   allowed_models = excluded.allowed_models";
        let LimitsRow { scope, model, limits } = row;
        let number = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        let allowed = limits.allowed_models.as_ref().map(|names| serde_json::json!(names).to_string());
        let values = params![
            scope.kind.word(),
            scope.id,
            model.as_deref().unwrap_or(""),
            number(limits.rpm),
            number(limits.tpm),
            number(limits.parallel),
            number(limits.budget_micros),
            limits.budget_period.map(Period::word),
            limits.time_zone,
            allowed,
        ];
        self.change(sql, values)
    }

    /// Takes the limits away that hang on a level for all models, or for one.
    pub fn clear_limits(&self, scope: &Scope, model: Option<&str>) -> Result<(), StoreError> {
        let sql = "DELETE FROM limits WHERE scope_type = ?1 AND scope_id = ?2 AND model = ?3";
        self.change(sql, params![scope.kind.word(), scope.id, model.unwrap_or("")])
    }
}
