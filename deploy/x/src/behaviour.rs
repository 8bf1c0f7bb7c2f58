//! `cargo x test behaviour`: the suite of named checks against the built gateway, or against any proxy by its URL.
//! Called by `suites`; what the checks are is in tests/behaviour.

use std::process::Command;

use crate::args::Outcome;
use crate::shell;

/// The suite's program.
const BINARY: &str = "llmgw-behaviour";

/// Builds the programs and starts the suite with these words; the words of the command line are the program's own.
pub(crate) fn run(words: &[String]) -> Outcome {
    let programs = crate::figures::build()?;
    shell::run(Command::new(programs.join(BINARY)).current_dir(shell::root()).args(words))
}
