//! `cargo x bench`: the load generator, optimised, with the rest of the command line handed to it.

use std::process::Command;

use crate::args::{Args, Outcome};
use crate::metadata::Metadata;
use crate::shell::{self, cargo};

const BINARY: &str = "llmgw-load";

/// Builds every binary of the workspace with the `ci` profile, so that nothing is built twice, and starts the load
/// generator beside the gateway it measures.
pub(crate) fn run(args: Args) -> Outcome {
    let metadata = Metadata::read()?;
    if !metadata.binaries().iter().any(|name| name == BINARY) {
        return Err(format!("there is no binary called {BINARY} in the workspace"));
    }
    shell::run(&mut cargo(&["build", "--profile", "ci", "--workspace", "--bins"]))?;
    let program = metadata.target_directory.join("ci").join(BINARY);
    shell::run(Command::new(program).current_dir(shell::root()).args(args.into_rest()))
}
