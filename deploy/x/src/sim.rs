//! `cargo x sim`: the simulator, built with the `ci` profile. Called by people and by `ci`; what it can do is in
//! tests/sim.

use std::process::Command;

use crate::args::Outcome;
use crate::metadata::Metadata;
use crate::shell::{self, cargo};

/// The simulator's package and program.
const NAME: &str = "llmgw-sim";

/// Builds it and starts it with these words; they are its own.
pub(crate) fn run(words: &[String]) -> Outcome {
    shell::run(&mut cargo(&["build", "--profile", "ci", "-p", NAME]))?;
    let program = Metadata::read()?.target_directory.join("ci").join(NAME);
    shell::run(Command::new(program).current_dir(shell::root()).args(words))
}

/// A fixed and a fresh set of worlds, and every planted mistake.
pub(crate) fn ci() -> Outcome {
    run(&["--ci".to_owned()])
}
