//! `cargo x bench`: the load generator, optimised, with the rest of the command line handed to it.

use std::process::Command;

use crate::args::{Args, Outcome};
use crate::figures::{self, BINARY};
use crate::shell;

/// Builds the programs and starts the load generator; without words it says what it can do.
pub(crate) fn run(args: Args) -> Outcome {
    let programs = figures::build()?;
    shell::run(Command::new(programs.join(BINARY)).current_dir(shell::root()).args(args.into_rest()))
}
