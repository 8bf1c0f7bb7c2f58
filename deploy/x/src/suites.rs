//! `cargo x test`: which suites there are, what each needs, how each is run. Called by people, `ci` and `.ci/run`.

use crate::args::{Args, Outcome};
use crate::metadata::Metadata;
use crate::shell::{self, cargo};

/// Set for the trials: run at full length instead of scaled down.
const FULL_LENGTH: &str = "LLMGW_TRIALS_FULL";

/// A group of tests with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Needs Rust and a C compiler.
    Plain,
    /// Needs real clients and a real engine.
    E2e,
    /// Needs the machine for itself.
    Behaviour,
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
        Some("behaviour") => Kind::Behaviour,
        Some("all") => Kind::All,
        Some(other) => return Err(format!("unknown suite {other:?}; there are e2e, behaviour and all")),
    };
    let filter = args.finish()?;
    test(kind, if is_required { Missing::Fails } else { Missing::Skips }, &filter)
}

/// Runs one kind; `filter` is handed to the test programs.
pub(crate) fn test(kind: Kind, missing: Missing, filter: &[String]) -> Outcome {
    match kind {
        Kind::Plain => cargo_test(&[], Length::Scaled, filter),
        Kind::E2e => on_request("e2e", E2E_NEEDS, Length::Scaled, missing, filter),
        Kind::Behaviour => on_request("behaviour", &[], Length::Scaled, missing, filter),
        Kind::All => {
            cargo_test(&[], Length::Full, filter)?;
            on_request("e2e", E2E_NEEDS, Length::Full, missing, filter)?;
            on_request("behaviour", &[], Length::Full, missing, filter)
        }
    }
}

/// How long the trials take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
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

/// Runs a suite that plain `cargo test` leaves out.
fn on_request(suite: &str, needs: &[Need], length: Length, missing: Missing, filter: &[String]) -> Outcome {
    if !Metadata::read()?.suites_on_request().iter().any(|known| known == suite) {
        return Err(format!("there is no suite {suite:?} in the workspace"));
    }
    let not_there: Vec<&str> = needs.iter().filter(|need| !is_met(need)).map(|need| need.called).collect();
    match (not_there.is_empty(), missing) {
        (true, _) => cargo_test(&["--test", suite], length, filter),
        (false, Missing::Fails) => Err(format!("{suite} needs {}: not found", not_there.join(", "))),
        (false, Missing::Skips) => {
            println!("{suite} skipped: {} not found (--require makes this a failure)", not_there.join(", "));
            Ok(())
        }
    }
}

fn is_met(need: &Need) -> bool {
    shell::is_there(need.program, need.shown_by)
}

/// One way of building for every suite: the whole workspace with the `ci` profile, so that each crate is built once.
fn cargo_test(targets: &[&str], length: Length, filter: &[String]) -> Outcome {
    let mut command = cargo(&["test", "--profile", "ci", "--workspace"]);
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
        let outcome = on_request("no-such-suite", &[], Length::Scaled, Missing::Skips, &[]);
        assert!(outcome.is_err_and(|message| message.contains("no-such-suite")));
    }
}
