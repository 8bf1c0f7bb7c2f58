//! What is said about an engine's metrics: trouble once when it begins, and once when it is over. No I/O.

use llmgw_engines::contract::ContractViolation;

/// Scrapes in a row without an answer that are trouble: fewer are a blip.
pub(crate) const UNANSWERED_MAX: u32 = 3;
/// Different troubles said before one good page; more are not said.
const TOLD_MAX: usize = 8;

/// What one scrape came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A page that keeps the contract.
    Kept,
    /// A page that does not.
    Broken(Box<ContractViolation>),
    /// The engine answers, but not with a page that can be read.
    NoPage { status: u16, reason: String },
    /// Nothing came: no connection, or no answer in time.
    Unanswered(String),
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Saying {
    Broken(String),
    Unanswered(String),
    Healed,
}

#[derive(Debug, PartialEq)]
enum Trouble {
    Contract(Box<ContractViolation>),
    NoPage(u16),
    Unanswered,
}

impl Outcome {
    /// What it says of the engine itself. A page in other words than ours, and a path that the engine does not know,
    /// are a mistake in its version or in our configuration: requests are none the worse for them.
    pub(crate) fn sign(&self) -> Sign {
        match self {
            Self::Kept => Sign::Alive,
            Self::Broken(violation) if violation.rest.is_some() => Sign::Alive,
            Self::Broken(_) => Sign::None,
            Self::NoPage { status: 500 | 502..=599, .. } | Self::Unanswered(_) => Sign::Failing,
            Self::NoPage { .. } => Sign::None,
        }
    }
}

/// What a scrape says of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It showed its numbers.
    Alive,
    /// It did not do what it did before.
    Failing,
    /// Nothing.
    None,
}

/// Scrapes of one endpoint that failed in a row, for its breaker.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    was_alive: bool,
    failed: u32,
}

impl Pulse {
    /// Takes a scrape's sign. Answer: whether the engine's metrics are lost by now. Those of an engine that never
    /// showed any cannot be.
    pub(crate) fn hear(&mut self, sign: Sign) -> bool {
        self.failed = if sign == Sign::Failing { self.failed.saturating_add(1) } else { 0 };
        self.was_alive |= sign == Sign::Alive;
        self.was_alive && self.failed >= UNANSWERED_MAX
    }
}

/// What was said of one endpoint's metrics.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    told: Vec<Trouble>,
    /// In a row.
    unanswered: u32,
}

impl Watch {
    /// Takes the outcome of a scrape. The result is to be logged.
    ///
    /// That an engine does not answer is said only of one that is ready: of the others its probes say it.
    pub(crate) fn hear(&mut self, outcome: Outcome, is_ready: bool) -> Option<Saying> {
        let is_unanswered = matches!(outcome, Outcome::Unanswered(_));
        self.unanswered = if is_unanswered { self.unanswered.saturating_add(1) } else { 0 };
        let (trouble, saying) = match outcome {
            Outcome::Kept => {
                let was_told = !self.told.is_empty();
                self.told.clear();
                return was_told.then_some(Saying::Healed);
            }
            Outcome::Broken(violation) => {
                let reason = violation.to_string();
                (Trouble::Contract(violation), Saying::Broken(reason))
            }
            Outcome::NoPage { status, reason } => (Trouble::NoPage(status), Saying::Broken(reason)),
            Outcome::Unanswered(_) if !is_ready || self.unanswered < UNANSWERED_MAX => return None,
            Outcome::Unanswered(reason) => (Trouble::Unanswered, Saying::Unanswered(reason)),
        };
        if self.told.len() >= TOLD_MAX || self.told.contains(&trouble) {
            return None;
        }
        self.told.push(trouble);
        Some(saying)
    }
}

#[cfg(test)]
mod tests {
    use llmgw_engines::contract;
    use llmgw_engines::names::Names;
    use llmgw_types::EngineKind;

    use super::*;

    fn broken(page: &str) -> Outcome {
        Outcome::Broken(contract::read(page.as_bytes(), &Names::of(EngineKind::Vllm)).expect_err("a broken page"))
    }

    fn silent() -> Outcome {
        Outcome::Unanswered("silence".to_owned())
    }

    #[test]
    fn three_failures_in_a_row_of_an_engine_that_showed_its_numbers_are_a_sign() {
        let page = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n";
        let no_page = |status| Outcome::NoPage { status, reason: String::new() };
        for (outcome, sign) in [
            (Outcome::Kept, Sign::Alive),
            (broken(page), Sign::Alive),
            (broken("llamacpp:requests_processing 1\n"), Sign::None),
            (no_page(404), Sign::None),
            (no_page(501), Sign::None),
            (no_page(200), Sign::None),
            (no_page(500), Sign::Failing),
            (no_page(503), Sign::Failing),
            (silent(), Sign::Failing),
        ] {
            assert_eq!(outcome.sign(), sign, "{outcome:?}");
        }
        let heard = |signs: &[Sign]| {
            let mut pulse = Pulse::default();
            signs.iter().map(|sign| pulse.hear(*sign)).collect::<Vec<_>>()
        };
        let (alive, failing, none) = (Sign::Alive, Sign::Failing, Sign::None);
        assert_eq!(heard(&[failing; 5]), [false; 5], "it never showed any");
        assert_eq!(heard(&[alive, failing, failing, failing, failing]), [false, false, false, true, true]);
        assert_eq!(heard(&[alive, failing, failing, alive, failing, failing]), [false; 6]);
        assert_eq!(heard(&[alive, failing, failing, none, failing, failing]), [false; 6], "it answered");
    }

    #[test]
    fn a_violation_is_said_once_with_what_is_missing_and_once_when_it_is_over() {
        let mut watch = Watch::default();
        let page = |running| format!("vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n");
        let said = watch.hear(broken(&page(1)), true);
        assert!(
            matches!(&said, Some(Saying::Broken(reason)) if reason.contains("vllm:kv_cache_usage_perc")),
            "{said:?}"
        );
        for running in 2..9 {
            assert_eq!(watch.hear(broken(&page(running)), true), None, "other numbers are the same trouble");
        }
        assert_eq!(watch.hear(Outcome::Kept, true), Some(Saying::Healed));
        assert_eq!(watch.hear(Outcome::Kept, true), None);
        assert!(watch.hear(broken(&page(1)), true).is_some(), "it began anew");
    }

    #[test]
    fn another_trouble_is_said_beside_the_first_and_each_once() {
        let mut watch = Watch::default();
        let missing = |status| Outcome::NoPage { status, reason: format!("answered {status}") };
        let another = || broken("llamacpp:requests_processing 1\n");
        assert_eq!(watch.hear(missing(404), false), Some(Saying::Broken("answered 404".to_owned())));
        let said = watch.hear(another(), false);
        assert!(matches!(&said, Some(Saying::Broken(reason)) if reason.contains("engine: llamacpp")), "{said:?}");
        assert_eq!((watch.hear(missing(404), false), watch.hear(another(), false)), (None, None));
        let said = (300..400).filter_map(|status| watch.hear(missing(status), false)).count();
        assert_eq!(said, TOLD_MAX - 2, "an engine that answers differently each time does not fill the log");
    }

    #[test]
    fn three_silences_in_a_row_are_trouble_of_an_engine_that_counts_as_ready() {
        let mut watch = Watch::default();
        assert_eq!((watch.hear(silent(), true), watch.hear(silent(), true)), (None, None));
        assert_eq!(watch.hear(Outcome::Kept, true), None, "a blip is not said, nor that it is over");
        for _ in 0..7 {
            assert_eq!(watch.hear(silent(), false), None, "its probes say it");
        }
        assert_eq!(watch.hear(silent(), true), Some(Saying::Unanswered("silence".to_owned())));
        assert_eq!(watch.hear(silent(), true), None);
        assert_eq!(watch.hear(Outcome::Kept, true), Some(Saying::Healed));
    }
}
