//! What a level may be held to. None of a value means that this level sets no limit; 0 means none at all.

use serde::{Deserialize, Serialize};

use crate::calendar;
use crate::scope::Scope;

/// How long a budget runs, by the calendar of its time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    Day,
    Month,
}

impl Period {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The period a word means.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Day, Self::Month].into_iter().find(|period| period.word() == word)
    }
}

/// Highest value of a limit: more than a year of anything, and far from where sums run over.
pub const LIMIT_MAX: u64 = 1 << 53;
/// Names in one allowlist.
pub const ALLOWED_MODELS_MAX: usize = 1000;

/// The limits that hang on one level, for all models or for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsRow {
    pub scope: Scope,
    /// The public name they are for; none: all models together.
    pub model: Option<String>,
    pub limits: Limits,
}

/// The values. Units: requests a minute, tokens a minute, requests at once, millionths of a budget unit a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub rpm: Option<u64>,
    pub tpm: Option<u64>,
    pub parallel: Option<u64>,
    pub budget_micros: Option<u64>,
    pub budget_period: Option<Period>,
    /// Whose calendar the period follows, as `Europe/Berlin`; none: UTC.
    pub time_zone: Option<String>,
    /// None: every model. Empty: none at all.
    pub allowed_models: Option<Vec<String>>,
}

/// Why limits cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsFault {
    #[error("{0} is more than {LIMIT_MAX}")]
    Large(&'static str),
    #[error("budget_micros and budget_period belong together")]
    HalfABudget,
    #[error("time_zone is for a budget, and there is none")]
    ZoneWithoutBudget,
    #[error("time_zone {0:?} is none; write for example UTC or Europe/Berlin")]
    Zone(String),
    #[error("allowed_models belongs to the limits for all models")]
    AllowedForOne,
    #[error("allowed_models has more than {ALLOWED_MODELS_MAX} names")]
    ManyModels,
    #[error("allowed_models names {0:?} twice")]
    Twice(String),
    #[error("allowed_models has a name that is empty or holds a control character")]
    ModelName,
    #[error("no limit is named; to take limits away, delete them")]
    Nothing,
}

impl LimitsRow {
    /// Whether they can be kept. Errors: the first thing that is wrong.
    pub fn check(&self) -> Result<(), LimitsFault> {
        let limits = &self.limits;
        if *limits == Limits::default() {
            return Err(LimitsFault::Nothing);
        }
        let numbers = [
            ("rpm", limits.rpm),
            ("tpm", limits.tpm),
            ("parallel", limits.parallel),
            ("budget_micros", limits.budget_micros),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, value)| value.is_some_and(|value| value > LIMIT_MAX)) {
            return Err(LimitsFault::Large(name));
        }
        if limits.budget_micros.is_some() != limits.budget_period.is_some() {
            return Err(LimitsFault::HalfABudget);
        }
        if let Some(zone) = &limits.time_zone {
            if limits.budget_micros.is_none() {
                return Err(LimitsFault::ZoneWithoutBudget);
            }
            if !calendar::is_zone(zone) {
                return Err(LimitsFault::Zone(zone.clone()));
            }
        }
        let Some(allowed) = &limits.allowed_models else { return Ok(()) };
        if self.model.is_some() {
            return Err(LimitsFault::AllowedForOne);
        }
        if allowed.len() > ALLOWED_MODELS_MAX {
            return Err(LimitsFault::ManyModels);
        }
        for (at, name) in allowed.iter().enumerate() {
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(LimitsFault::ModelName);
            }
            if allowed.iter().take(at).any(|earlier| earlier == name) {
                return Err(LimitsFault::Twice(name.clone()));
            }
        }
        Ok(())
    }
}

/// The models that every level of a chain allows: none for every model.
///
/// A level without a list allows all; one with an empty list allows nothing, and no level below can add to it.
pub fn intersection<'a>(lists: impl Iterator<Item = Option<&'a [String]>>) -> Option<Vec<String>> {
    let mut allowed: Option<Vec<String>> = None;
    for list in lists.flatten() {
        match &mut allowed {
            None => allowed = Some(list.to_vec()),
            Some(names) => names.retain(|name| list.contains(name)),
        }
    }
    if let Some(names) = &mut allowed {
        names.sort();
        names.dedup();
    }
    allowed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scope::ScopeKind;

    fn row(model: Option<&str>, limits: Limits) -> LimitsRow {
        LimitsRow { scope: Scope::new(ScopeKind::Team, "team-1"), model: model.map(str::to_owned), limits }
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn limits_that_cannot_be_kept_are_told_by_what_is_wrong() {
        let budget = |zone: &str| Limits {
            budget_micros: Some(1),
            budget_period: Some(Period::Day),
            time_zone: Some(zone.to_owned()),
            ..Limits::default()
        };
        let allowed = |of: &[&str]| Limits { allowed_models: Some(names(of)), ..Limits::default() };
        for (model, limits, fault) in [
            (None, Limits { rpm: Some(0), ..Limits::default() }, None),
            (Some("m"), Limits { tpm: Some(LIMIT_MAX), ..Limits::default() }, None),
            (None, budget("Europe/Berlin"), None),
            (None, budget("UTC"), None),
            (None, allowed(&[]), None),
            (None, allowed(&["a", "b"]), None),
            (None, Limits::default(), Some(LimitsFault::Nothing)),
            (None, Limits { parallel: Some(LIMIT_MAX + 1), ..Limits::default() }, Some(LimitsFault::Large("parallel"))),
            (None, Limits { budget_micros: Some(1), ..Limits::default() }, Some(LimitsFault::HalfABudget)),
            (None, Limits { budget_period: Some(Period::Day), ..Limits::default() }, Some(LimitsFault::HalfABudget)),
            (None, budget("Berlin"), Some(LimitsFault::Zone("Berlin".into()))),
            (None, budget("../etc/passwd"), Some(LimitsFault::Zone("../etc/passwd".into()))),
            (Some("m"), allowed(&["m"]), Some(LimitsFault::AllowedForOne)),
            (None, allowed(&["m", "m"]), Some(LimitsFault::Twice("m".into()))),
            (None, allowed(&[""]), Some(LimitsFault::ModelName)),
        ] {
            let checked = row(model, limits).check();
            assert_eq!(checked, fault.map_or(Ok(()), Err));
        }
        let zone = Limits { rpm: Some(1), time_zone: Some("UTC".into()), ..Limits::default() };
        assert_eq!(row(None, zone).check(), Err(LimitsFault::ZoneWithoutBudget));
    }

    #[test]
    fn an_empty_list_allows_nothing_and_an_absent_one_everything() {
        let check = |lists: &[Option<&[&str]>], expected: Option<&[&str]>| {
            let lists: Vec<Option<Vec<String>>> = lists.iter().map(|list| list.map(names)).collect();
            assert_eq!(intersection(lists.iter().map(Option::as_deref)), expected.map(names));
        };
        check(&[], None);
        check(&[None, None], None);
        check(&[None, Some(&["b", "a"]), None], Some(&["a", "b"]));
        check(&[Some(&["a", "b"]), Some(&["b", "c"])], Some(&["b"]));
        check(&[Some(&[]), None, Some(&["a"])], Some(&[]));
        check(&[Some(&["a"]), Some(&["b"])], Some(&[]));
    }

    proptest! {
        #[test]
        fn no_level_allows_what_another_withholds(lists in prop::collection::vec(
            prop::option::of(prop::collection::vec("[a-d]", 0..4)), 0..5)) {
            let allowed = intersection(lists.iter().map(Option::as_deref));
            for name in ["a", "b", "c", "d"] {
                let by_all = lists.iter().flatten().all(|list| list.iter().any(|one| one == name));
                let is_allowed = allowed.as_ref().is_none_or(|names| names.iter().any(|one| one == name));
                prop_assert_eq!(by_all, is_allowed);
            }
        }
    }
}
