//! Whether a request follows its prompt to where it is cached: thresholds, and the word for what became of it.
//!
//! Called by the dispatcher for each request of a model with a prefix table. Changes when the meaning of a threshold
//! does. Never looks at the table or the board: numbers in, a word out.

use llmgw_types::snapshot::ArchivedPrefixSpec;

/// When a prompt is worth following.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The least part of a prompt that must be cached somewhere, 0 to 1.
    pub cache: f32,
    /// How much more the engine that has it may have to do than the least loaded one: in requests like this one.
    pub balance_abs: f32,
    /// The same as a multiple. Both must be passed for a prompt not to be followed.
    pub balance_rel: f32,
}

impl Thresholds {
    /// Those of a pool.
    pub fn of(spec: &ArchivedPrefixSpec) -> Self {
        Self {
            cache: spec.cache_threshold.to_native(),
            balance_abs: spec.balance_abs.to_native(),
            balance_rel: spec.balance_rel.to_native(),
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { cache: 0.30, balance_abs: 16.0, balance_rel: 1.5 }
    }
}

/// What became of a request's prompt, in metrics and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It went where enough of it is cached.
    CacheHit,
    /// Too little of it is cached anywhere: load decided.
    CacheMissMinLoad,
    /// Enough of it is cached somewhere, and load sent it elsewhere.
    LoadBalanceOverride,
    /// Enough of it was cached somewhere, but has been pushed out since, or its engine is gone.
    Stale,
    /// It has no prompt, or its model no table.
    NoTree,
    /// Nobody may get it.
    NoHealthyWorker,
}

impl Decision {
    /// All of them, in the order of their metric.
    pub const ALL: [Self; 6] = [
        Self::CacheHit,
        Self::CacheMissMinLoad,
        Self::LoadBalanceOverride,
        Self::Stale,
        Self::NoTree,
        Self::NoHealthyWorker,
    ];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CacheHit => "cache_hit",
            Self::CacheMissMinLoad => "cache_miss_min_load",
            Self::LoadBalanceOverride => "load_balance_override",
            Self::Stale => "stale",
            Self::NoTree => "no_tree",
            Self::NoHealthyWorker => "no_healthy_worker",
        }
    }
}

/// How an engine is to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// By what the profile says, the prefix included.
    Follow,
    /// By what the profile says without it.
    Ignore(Decision),
    /// The least loaded one, whatever the profile says.
    LeastLoaded(Decision),
}

/// What is known of a request and the engines that may get it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// Blocks of the prompt.
    pub blocks: u32,
    /// Those that the engine has that has most of them.
    pub cached: u32,
    /// Those that some engine had once.
    pub known: u32,
    /// What that engine has to do; of several the least. Units: of [`load`](super::cost::Work::load).
    pub load_there: f32,
    /// What the least loaded engine has to do.
    pub load_least: f32,
    /// What this request would add where nothing of it is cached.
    pub load_of_one: f32,
}

/// Decides how an engine is to be chosen.
///
/// The load compared is that of the engine the prefix points to: one that is slow for reasons of its own does not keep
/// all others' prompts from being followed.
pub fn judge(facts: &Facts, thresholds: &Thresholds) -> Course {
    let is_enough = |blocks: u32| blocks > 0 && blocks as f32 >= thresholds.cache * facts.blocks as f32;
    if facts.blocks == 0 {
        return Course::Ignore(Decision::NoTree);
    }
    if !is_enough(facts.cached) {
        let was_enough = is_enough(facts.known);
        return Course::Ignore(if was_enough { Decision::Stale } else { Decision::CacheMissMinLoad });
    }
    let more = facts.load_there - facts.load_least;
    let is_far = more > thresholds.balance_abs * facts.load_of_one;
    if is_far && facts.load_there > thresholds.balance_rel * facts.load_least {
        return Course::LeastLoaded(Decision::LoadBalanceOverride);
    }
    Course::Follow
}

/// The word for what became of a request that was to follow its prompt and went to an engine with `cached` blocks.
pub fn followed(cached: u32, blocks: u32, thresholds: &Thresholds) -> Decision {
    if cached > 0 && cached as f32 >= thresholds.cache * blocks as f32 {
        Decision::CacheHit
    } else {
        Decision::LoadBalanceOverride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_followed_unless_too_little_is_cached_or_its_engine_has_far_more_to_do() {
        let check = |blocks, cached, known, loads: (f32, f32), expected| {
            let (load_there, load_least) = loads;
            let facts = Facts { blocks, cached, known, load_there, load_least, load_of_one: 100.0 };
            assert_eq!(judge(&facts, &Thresholds::default()), expected, "{facts:?}");
        };
        check(0, 0, 0, (0.0, 0.0), Course::Ignore(Decision::NoTree));
        check(10, 3, 3, (0.0, 0.0), Course::Follow);
        check(10, 2, 2, (0.0, 0.0), Course::Ignore(Decision::CacheMissMinLoad));
        check(10, 2, 9, (0.0, 0.0), Course::Ignore(Decision::Stale));
        check(10, 9, 9, (1600.0, 0.0), Course::Follow);
        check(10, 9, 9, (1601.0, 0.0), Course::LeastLoaded(Decision::LoadBalanceOverride));
        // Far more, but no large multiple.
        check(10, 9, 9, (9000.0, 7000.0), Course::Follow);
        check(10, 9, 9, (9000.0, 5000.0), Course::LeastLoaded(Decision::LoadBalanceOverride));
    }

    #[test]
    fn a_request_that_load_sent_elsewhere_is_no_hit() {
        let word = |cached| followed(cached, 10, &Thresholds::default()).word();
        assert_eq!([word(0), word(2), word(3)], ["load_balance_override", "load_balance_override", "cache_hit"]);
        // With no threshold a hit is still a block at least.
        let none = Thresholds { cache: 0.0, ..Thresholds::default() };
        assert_eq!(followed(0, 10, &none), Decision::LoadBalanceOverride);
        assert_eq!(judge(&Facts { blocks: 4, ..Facts::default() }, &none), Course::Ignore(Decision::CacheMissMinLoad));
    }
}
