//! The metric contract: an engine's page and its names → what the router may know about it.
//!
//! Called by the side runtime after every scrape, and by checks that an operator runs. An engine that reports neither
//! what it is doing nor what waits cannot be judged by its metrics; which of that is missing, and why that may be, is
//! said in a `ContractViolation`. Saying it once, and routing on without, is the caller's.

use std::borrow::Cow;
use std::fmt;

use llmgw_types::endpoint::EngineKind;

use crate::kind;
use crate::names::{Field, Names};
use crate::promtext::{self, Labels, Samples};
use crate::tally::{Join, Tally};

/// One reading of an engine.
///
/// Lines of several models or data-parallel ranks are summed, but for `kv_usage` and `block_size`, of which the largest
/// counts: the fullest rank is the one that will push requests out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Requests in its batch.
    pub running: u64,
    /// Requests in its queue.
    pub waiting: u64,
    /// Share of the KV cache in use, 0 to 1; `None` of an engine that has no such metric.
    pub kv_usage: Option<f64>,
    /// Tokens in a block of the KV cache.
    pub block_size: Option<u64>,
    pub block_count: Option<u64>,
    /// Tokens that fit into the KV cache: published, or size times count.
    pub kv_capacity_tokens: Option<u64>,
    /// Counters since the engine's start, in tokens.
    pub prompt_tokens: Option<u64>,
    pub generation_tokens: Option<u64>,
    pub prefix_hits: Option<u64>,
    pub prefix_queries: Option<u64>,
    /// Requests that have ended since the engine's start.
    pub requests_completed: Option<u64>,
}

/// What a page lacks, or holds in a form that is no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub field: Field,
    /// The names that were looked for.
    pub names: Vec<Cow<'static, str>>,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Missing,
    /// There, but negative, infinite or not a number.
    NotANumber,
}

/// A page that does not keep the contract. Equal violations are the same trouble, whatever the numbers were.
#[derive(Clone, Debug)]
pub struct ContractViolation {
    pub expected: EngineKind,
    pub gaps: Vec<Gap>,
    /// Another engine whose metrics were found in place of the expected one's.
    pub spoken: Option<EngineKind>,
    pub is_empty: bool,
    /// What could be read all the same: there when only `kv_usage` is the trouble.
    pub rest: Option<EngineStats>,
}

impl PartialEq for ContractViolation {
    fn eq(&self, other: &Self) -> bool {
        let trouble = |violation: &Self| (violation.expected, violation.spoken, violation.is_empty);
        trouble(self) == trouble(other) && self.gaps == other.gaps
    }
}

impl std::error::Error for ContractViolation {}

impl fmt::Display for ContractViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected;
        if let Some(spoken) = self.spoken {
            return write!(f, "{spoken} metrics where {expected}'s were expected; set `engine: {spoken}`");
        }
        if self.is_empty {
            write!(f, "no metrics on the page")?;
            return match kind::engine(expected).metrics_flag {
                Some(flag) => write!(f, "; {expected} publishes them when started with {flag}"),
                None => Ok(()),
            };
        }
        for (at, gap) in self.gaps.iter().enumerate() {
            let names = gap.names.join(" or ");
            let (before, field) = (if at == 0 { "" } else { "; " }, gap.field.name());
            match gap.fault {
                Fault::Missing => write!(f, "{before}{field} is missing: no {names}")?,
                Fault::NotANumber => write!(f, "{before}{field} is no number: {names}")?,
            }
        }
        Ok(())
    }
}

/// Reads a page by an endpoint's names.
///
/// Cost: one look at each line, and a closer one at those with a name of the contract. A page that does not keep the
/// contract is read once more, to say what it is.
pub fn read(page: &[u8], names: &Names) -> Result<EngineStats, Box<ContractViolation>> {
    let mut reading = Reading::new(names);
    let looked_for = reading.looked_for();
    for sample in promtext::wanted(page, |name| looked_for.has(name)) {
        reading.take(sample.name, sample.labels, sample.value);
    }
    drop(looked_for);
    reading.finish(page)
}

/// The names of the contract, asked for by lines of every kind.
struct LookedFor {
    names: Vec<Cow<'static, str>>,
    /// Which lengths there are, by the length's lowest bits: most lines are told apart by that alone.
    lengths: u64,
}

impl LookedFor {
    fn has(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name.len()) != 0 && self.names.iter().any(|wanted| wanted.as_bytes() == name)
    }
}

fn length_bit(length: usize) -> u64 {
    1 << (length % 64)
}

struct Reading<'n> {
    names: &'n Names,
    /// One for each name that is looked for.
    wanted: Vec<(Field, Cow<'static, str>, Tally)>,
    /// Block size and count out of the labels of the cache's description.
    from_info: [Tally; 2],
}

impl<'n> Reading<'n> {
    fn new(names: &'n Names) -> Self {
        let names_of = |field| names.candidates(field).into_iter().map(move |name| (field, name, Tally::default()));
        let wanted = Field::ALL.into_iter().flat_map(names_of).collect();
        Self { names, wanted, from_info: Default::default() }
    }

    fn looked_for(&self) -> LookedFor {
        let info = self.names.vocabulary().cache_info.map(|info| Cow::Borrowed(info.name));
        let names: Vec<_> = self.wanted.iter().map(|(_, name, _)| name.clone()).chain(info).collect();
        let lengths = names.iter().fold(0, |lengths, name| lengths | length_bit(name.len()));
        LookedFor { names, lengths }
    }

    fn take(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        let vocabulary = self.names.vocabulary();
        for (_, _, tally) in self.wanted.iter_mut().filter(|(_, wanted, _)| wanted == name) {
            tally.add(vocabulary, labels, value);
        }
        if let Some(info) = vocabulary.cache_info.filter(|info| info.name == name) {
            for (tally, label) in self.from_info.iter_mut().zip([info.block_size_label, info.block_count_label]) {
                // A label such as `None` says that the engine has not settled it.
                if let Some(value) = labels.find(label).and_then(|label| label.raw.parse().ok()) {
                    tally.add(vocabulary, labels, value);
                }
            }
        }
    }

    fn finish(self, page: &[u8]) -> Result<EngineStats, Box<ContractViolation>> {
        let gaps: Vec<Gap> = Field::ALL.into_iter().filter_map(|field| self.gap(field)).collect();
        let stats = self.stats();
        if gaps.is_empty() {
            return Ok(stats);
        }
        let is_blind = gaps.iter().any(|gap| gap.field != Field::KvUsage);
        let expected = self.names.kind();
        let (heard, is_empty) = survey(page);
        let spoken = if heard.contains(&expected) { None } else { heard.first().copied() };
        let rest = (!is_blind).then_some(stats);
        Err(Box::new(ContractViolation { expected, gaps, spoken, is_empty, rest }))
    }

    /// Why a field that must be there is not.
    fn gap(&self, field: Field) -> Option<Gap> {
        let names = self.names.candidates(field);
        if !field.is_required() || names.is_empty() || self.number(field).is_some() {
            return None;
        }
        let mut lines = self.wanted.iter().filter(|(wanted, _, _)| *wanted == field);
        let is_there = lines.any(|(_, _, tally)| tally.has_unreadable_lines());
        Some(Gap { field, names, fault: if is_there { Fault::NotANumber } else { Fault::Missing } })
    }

    /// The number under the first name that has one.
    fn number(&self, field: Field) -> Option<f64> {
        let join = if matches!(field, Field::KvUsage | Field::BlockSize) { Join::Max } else { Join::Sum };
        let published = self.wanted.iter().filter(|(wanted, _, _)| *wanted == field);
        let published = published.into_iter().find_map(|(_, _, tally)| tally.value(join));
        let [size, count] = &self.from_info;
        published.or_else(|| match field {
            Field::BlockSize => size.value(join),
            Field::BlockCount => count.value(join),
            _ => None,
        })
    }

    fn stats(&self) -> EngineStats {
        let count = |field| self.number(field).map(whole);
        let blocks = || count(Field::BlockSize)?.checked_mul(count(Field::BlockCount)?);
        EngineStats {
            running: count(Field::Running).unwrap_or_default(),
            waiting: count(Field::Waiting).unwrap_or_default(),
            kv_usage: self.number(Field::KvUsage).map(|share| share.min(1.0)),
            block_size: count(Field::BlockSize),
            block_count: count(Field::BlockCount),
            kv_capacity_tokens: count(Field::KvCapacityTokens).or_else(blocks),
            prompt_tokens: count(Field::PromptTokens),
            generation_tokens: count(Field::GenerationTokens),
            prefix_hits: count(Field::PrefixHits),
            prefix_queries: count(Field::PrefixQueries),
            requests_completed: count(Field::RequestsCompleted),
        }
    }
}

/// Whose metrics are on the page, in the order in which they begin, and whether there are none at all.
fn survey(page: &[u8]) -> (Vec<EngineKind>, bool) {
    let (mut heard, mut is_empty) = (Vec::new(), true);
    for sample in Samples::new(page) {
        is_empty = false;
        for kind in EngineKind::ALL {
            if sample.name.starts_with(kind::engine(kind).vocabulary.prefix) && !heard.contains(&kind) {
                heard.push(kind);
            }
        }
    }
    (heard, is_empty)
}

/// The nearest count; what does not fit is the largest there is.
fn whole(value: f64) -> u64 {
    // The conversion saturates, and the tally holds neither negative numbers nor such as are none.
    value.round() as u64
}

#[cfg(test)]
mod tests;
