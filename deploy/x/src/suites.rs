//! `cargo x test`: which suites there are, what each needs, how each is run. Called by people, `ci` and `.ci/run`.

use crate::args::{Args, Outcome};
use crate::metadata::Metadata;
use crate::shell::{self, cargo};
use crate::{behaviour, figures};

/// Set for the trials: run at full length instead of scaled down.
const FULL_LENGTH: &str = "LLMGW_FULL_TRIALS";

/// A group of tests with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Needs Rust and a C compiler.
    Plain,
    /// Needs real clients and a real engine.
    E2e,
    /// Needs 6 GB, minutes, and what e2e needs: a real vLLM.
    Vllm,
    /// Needs the machine for itself.
    Figures,
    /// All of these, at full length.
    All,
}

/// What happens when something that a suite needs is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is said and the suite is left out.
    Skips,
    /// It is said and the chore fails.
    Fails,
}

/// The chore.
pub(crate) fn run(mut args: Args) -> Outcome {
    let is_required = args.flag("--require") || shell::is_ci();
    let kind = match args.word().as_deref() {
        None => Kind::Plain,
        Some("e2e") => Kind::E2e,
        Some("vllm") => Kind::Vllm,
        Some("behaviour") => return behaviour::run(&args.into_rest()),
        Some("isolation") => return isolation(Length::Full),
        Some("figures") => Kind::Figures,
        Some("all") => Kind::All,
        Some(other) => {
            return Err(format!("unknown suite {other:?}; there are e2e, vllm, behaviour, isolation, figures and all"));
        }
    };
    let filter = args.finish()?;
    test(kind, if is_required { Missing::Fails } else { Missing::Skips }, &filter)
}

/// Runs one kind; `filter` is handed to the test programs.
pub(crate) fn test(kind: Kind, missing: Missing, filter: &[String]) -> Outcome {
    match kind {
        Kind::Plain => cargo_test(&[], Length::Scaled, filter),
        Kind::E2e => on_request(E2E, Length::Scaled, missing, filter),
        Kind::Vllm => on_request(VLLM, Length::Scaled, missing, filter),
        Kind::Figures => figures::run(Length::Scaled),
        Kind::All => {
            cargo_test(&[], Length::Full, filter)?;
            on_request(E2E, Length::Full, missing, filter)?;
            behaviour::run(&[])?;
            isolation(Length::Full)?;
            figures::run(Length::Full)
        }
    }
}

/// What a flood of the lowest band does to the highest, in virtual time: the figures, and at full length the larger
/// flood. The short form is part of every run of all tests.
fn isolation(length: Length) -> Outcome {
    let mut command =
        cargo(&["test", "--profile", "ci", "-p", "llmgw-isolation", "--", "--nocapture", "--test-threads=1"]);
    if length == Length::Full {
        command.env(FULL_LENGTH, "1");
    }
    shell::run(&mut command)
}

/// How long the trials take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Scaled,
    Full,
}

/// A program that a suite starts, and the words that show that it works.
#[derive(Debug)]
struct Need {
    program: &'static str,
    shown_by: &'static [&'static str],
    called: &'static str,
}

const E2E_NEEDS: &[Need] = &[
    Need { program: "python3", shown_by: &["-c", "import venv, ensurepip"], called: "python3 with venv" },
    Need { program: "node", shown_by: &["-e", "fetch.call"], called: "node 18 or newer" },
    Need { program: "curl", shown_by: &["--version"], called: "curl" },
    Need { program: "bash", shown_by: &["-c", "true"], called: "bash" },
];

/// A test target that plain `cargo test` leaves out.
#[derive(Debug, Clone, Copy)]
struct Suite {
    target: &'static str,
    needs: &'static [Need],
    /// What cargo is told beside the target, and the test programs beside the filter.
    features: &'static [&'static str],
    only: &'static [&'static str],
}

const E2E: Suite = Suite { target: "e2e", needs: E2E_NEEDS, features: &[], only: &[] };
const VLLM: Suite =
    Suite { target: "e2e", needs: E2E_NEEDS, features: &["--features", REAL_VLLM], only: &["vllm::", "--nocapture"] };

/// Adds the test with a real vLLM to the end-to-end suite.
pub(crate) const REAL_VLLM: &str = "llmgw/real-vllm";

/// Runs a suite that plain `cargo test` leaves out.
fn on_request(suite: Suite, length: Length, missing: Missing, filter: &[String]) -> Outcome {
    let target = suite.target;
    if !Metadata::read()?.suites_on_request().iter().any(|known| known == target) {
        return Err(format!("there is no suite {target:?} in the workspace"));
    }
    let not_there: Vec<&str> = suite.needs.iter().filter(|need| !is_met(need)).map(|need| need.called).collect();
    match (not_there.is_empty(), missing) {
        (true, _) => {
            let words: Vec<&str> = ["--test", target].iter().chain(suite.features).copied().collect();
            let only = suite.only.iter().map(|word| (*word).to_owned());
            cargo_test(&words, length, &only.chain(filter.iter().cloned()).collect::<Vec<_>>())
        }
        (false, Missing::Fails) => Err(format!("{target} needs {}: not found", not_there.join(", "))),
        (false, Missing::Skips) => {
            println!("{target} skipped: {} not found (--require makes this a failure)", not_there.join(", "));
            Ok(())
        }
    }
}

fn is_met(need: &Need) -> bool {
    shell::is_there(need.program, need.shown_by)
}

/// One way of building for every suite: the whole workspace with the `ci` profile, so that each crate is built once.
fn cargo_test(targets: &[&str], length: Length, filter: &[String]) -> Outcome {
    let mut command = cargo(&["test", "--profile", "ci", "--workspace", "--no-fail-fast"]);
    command.args(targets);
    if length == Length::Full {
        command.env(FULL_LENGTH, "1");
    }
    if !filter.is_empty() {
        command.arg("--").args(filter);
    }
    shell::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_a_need_not_met() {
        let need = Need { program: "llmgw-no-such-program", shown_by: &[], called: "a program" };
        assert!(!is_met(&need));
    }

    #[test]
    fn an_unknown_suite_is_named_not_passed_over() {
        let suite = Suite { target: "no-such-suite", ..E2E };
        let outcome = on_request(suite, Length::Scaled, Missing::Skips, &[]);
        assert!(outcome.is_err_and(|message| message.contains("no-such-suite")));
    }
}
