//! Which metric of an engine is which number of the contract.
//!
//! Each engine's folder has a `Vocabulary`; a configured endpoint may replace single names (`metrics:` in the
//! configuration). `contract` reads pages by the result.

use std::borrow::Cow;

use llmgw_types::endpoint::EngineKind;

use crate::kind;

/// Value of an override by which an endpoint says that its engine has no such metric.
pub const OFF: &str = "off";

/// A number of the contract. Its name in the configuration is `name()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    Running,
    Waiting,
    KvUsage,
    PromptTokens,
    GenerationTokens,
    PrefixHits,
    PrefixQueries,
    BlockSize,
    BlockCount,
    KvCapacityTokens,
    RequestsCompleted,
}

impl Field {
    pub const ALL: [Self; 11] = [
        Self::Running,
        Self::Waiting,
        Self::KvUsage,
        Self::PromptTokens,
        Self::GenerationTokens,
        Self::PrefixHits,
        Self::PrefixQueries,
        Self::BlockSize,
        Self::BlockCount,
        Self::KvCapacityTokens,
        Self::RequestsCompleted,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::KvUsage => "kv_usage",
            Self::PromptTokens => "prompt_tokens",
            Self::GenerationTokens => "generation_tokens",
            Self::PrefixHits => "prefix_hits",
            Self::PrefixQueries => "prefix_queries",
            Self::BlockSize => "block_size",
            Self::BlockCount => "block_count",
            Self::KvCapacityTokens => "kv_capacity_tokens",
            Self::RequestsCompleted => "requests_completed",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    /// Whether an engine must publish it: the first two always, KV usage where its name is known.
    pub const fn is_required(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::KvUsage)
    }
}

/// An engine's names. Several names for a field are those of several releases; the first that is on the page counts.
#[derive(Debug)]
pub struct Vocabulary {
    /// What the names of this engine's metrics begin with.
    pub prefix: &'static str,
    pub running: &'static [&'static str],
    pub waiting: &'static [&'static str],
    /// A share from 0 to 1, never percent whatever its name says; empty where the engine has no such metric.
    pub kv_usage: &'static [&'static str],
    pub prompt_tokens: &'static [&'static str],
    pub generation_tokens: &'static [&'static str],
    /// Prompt tokens found in the prefix cache, and those looked up.
    pub prefix_hits: &'static [&'static str],
    pub prefix_queries: &'static [&'static str],
    pub block_size: &'static [&'static str],
    pub block_count: &'static [&'static str],
    pub kv_capacity_tokens: &'static [&'static str],
    /// Requests that have ended, whatever ended them: each gave its place in the batch back.
    pub requests_completed: &'static [&'static str],
    pub cache_info: Option<CacheInfo>,
    /// Labels that tell apart lines with the same number: of such lines the largest counts, once.
    pub copy_labels: &'static [&'static str],
    /// Labels that split a number whose whole is published too.
    pub part_labels: &'static [PartLabel],
}

/// A metric whose labels hold the cache's block size and count.
#[derive(Clone, Copy, Debug)]
pub struct CacheInfo {
    pub name: &'static str,
    pub block_size_label: &'static str,
    pub block_count_label: &'static str,
}

/// A label that splits a number. The line for the whole lacks it or has the value `whole`.
#[derive(Clone, Copy, Debug)]
pub struct PartLabel {
    pub name: &'static str,
    pub whole: &'static str,
}

impl Vocabulary {
    pub(crate) fn names(&self, field: Field) -> &'static [&'static str] {
        match field {
            Field::Running => self.running,
            Field::Waiting => self.waiting,
            Field::KvUsage => self.kv_usage,
            Field::PromptTokens => self.prompt_tokens,
            Field::GenerationTokens => self.generation_tokens,
            Field::PrefixHits => self.prefix_hits,
            Field::PrefixQueries => self.prefix_queries,
            Field::BlockSize => self.block_size,
            Field::BlockCount => self.block_count,
            Field::KvCapacityTokens => self.kv_capacity_tokens,
            Field::RequestsCompleted => self.requests_completed,
        }
    }
}

/// The names one endpoint is read by: its engine's, with the configured ones in their place.
#[derive(Clone, Debug)]
pub struct Names {
    kind: EngineKind,
    overrides: Vec<(Field, String)>,
}

/// A configured name that is for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "metrics: `{0}` is no part of the contract: running, waiting, kv_usage, prompt_tokens, \
         generation_tokens, prefix_hits, prefix_queries, block_size, block_count, kv_capacity_tokens or \
         requests_completed"
    )]
    UnknownField(String),
    #[error(
        "metrics: `{0}` cannot be off: an engine that does not publish it cannot be judged by its metrics; \
         set `metrics_path: off`"
    )]
    Mandatory(&'static str),
    #[error("metrics: the name for `{0}` is empty")]
    Empty(&'static str),
}

impl Names {
    pub fn of(kind: EngineKind) -> Self {
        Self { kind, overrides: Vec::new() }
    }

    /// Replaces the names of one field; `off` for an engine that does not publish it.
    pub fn replace(&mut self, field: &str, name: &str) -> Result<(), NameError> {
        let field = Field::from_name(field).ok_or_else(|| NameError::UnknownField(field.into()))?;
        match name.trim() {
            "" => return Err(NameError::Empty(field.name())),
            OFF if matches!(field, Field::Running | Field::Waiting) => return Err(NameError::Mandatory(field.name())),
            _ => {}
        }
        self.overrides.retain(|(earlier, _)| *earlier != field);
        self.overrides.push((field, name.trim().into()));
        Ok(())
    }

    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Names to look for, the preferred one first; none if the engine has no such metric.
    pub fn candidates(&self, field: Field) -> Vec<Cow<'static, str>> {
        match self.overrides.iter().find(|(overridden, _)| *overridden == field) {
            Some((_, name)) if name == OFF => Vec::new(),
            Some((_, name)) => vec![Cow::Owned(name.clone())],
            None => self.vocabulary().names(field).iter().map(|name| Cow::Borrowed(*name)).collect(),
        }
    }

    pub(crate) fn vocabulary(&self) -> &'static Vocabulary {
        &kind::engine(self.kind).vocabulary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_name_takes_the_place_of_the_engines() {
        let mut names = Names::of(EngineKind::Vllm);
        assert_eq!(names.candidates(Field::KvUsage).len(), 2);
        names.replace("kv_usage", "my_kv").and_then(|()| names.replace("kv_usage", "my_kv_2")).expect("lawful");
        assert_eq!(names.candidates(Field::KvUsage), ["my_kv_2"]);
        names.replace("kv_usage", OFF).expect("lawful");
        assert!(names.candidates(Field::KvUsage).is_empty());
    }

    #[test]
    fn a_name_for_nothing_is_refused() {
        let mut names = Names::of(EngineKind::Vllm);
        let cases = [("wating", "x", "wating"), ("running", OFF, "metrics_path"), ("waiting", " ", "empty")];
        for (field, name, expected) in cases {
            let told = names.replace(field, name).expect_err(field).to_string();
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn every_field_is_found_by_its_own_name_and_every_engine_names_the_mandatory_ones() {
        for field in Field::ALL {
            assert_eq!(Field::from_name(field.name()), Some(field));
            assert!(NameError::UnknownField(String::new()).to_string().contains(field.name()));
        }
        for kind in EngineKind::ALL {
            let names = Names::of(kind);
            assert!(!names.candidates(Field::Running).is_empty() && !names.candidates(Field::Waiting).is_empty());
            for name in Field::ALL.into_iter().flat_map(|field| names.candidates(field)) {
                assert!(name.starts_with(names.vocabulary().prefix), "{name}");
            }
        }
    }
}
