//! `cargo x test behaviour`: the suite of named checks against the built gateway, or against any proxy by its URL.
//! Called by `suites`; what the checks are is in tests/behaviour.

use std::process::Command;

use crate::args::Outcome;
use crate::shell;

/// The suite's program.
const BINARY: &str = "llmgw-behaviour";

/// What the gateway passes: checks for every proxy, and extras. Whoever adds a check counts it here, so that one that
/// does not run is missed.
const PASSES: &str = "139+23";

/// Builds the programs and starts the suite with these words; the words of the command line are the program's own.
pub(crate) fn run(words: &[String]) -> Outcome {
    let programs = crate::figures::build()?;
    let mut command = Command::new(programs.join(BINARY));
    command.current_dir(shell::root()).args(words);
    if words.is_empty() {
        command.args(["--expect", PASSES]);
    }
    shell::run(&mut command)
}
