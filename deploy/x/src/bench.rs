//! `cargo x bench`: the load generator, optimised, with the rest of the command line handed to it.
//! `cargo x bench micro`: the parts of the data plane, one by one.

use std::path::Path;
use std::process::Command;

use crate::args::{Args, Outcome};
use crate::figures::{self, BINARY};
use crate::shell;

/// Measures the parts.
pub(crate) const MICRO: &str = "llmgw-micro";

/// Where `--save` puts the figures of the parts, beside the page for people.
const MICRO_JSON: &str = "docs/measurements/micro.json";
const MICRO_PAGE: &str = "docs/measurements/micro.md";

/// Builds the programs and starts the load generator; without words it says what it can do.
pub(crate) fn run(mut args: Args) -> Outcome {
    if args.takes("micro") {
        return micro(args);
    }
    start(&figures::build()?, BINARY, args.into_rest())
}

/// The parts that are named, or all; `--save` writes the figures into docs/measurements.
fn micro(mut args: Args) -> Outcome {
    let is_saved = args.flag("--save");
    let mut words = args.into_rest();
    if is_saved {
        words.extend(["--json", MICRO_JSON, "--page", MICRO_PAGE].map(str::to_owned));
    }
    start(&figures::build()?, MICRO, words)
}

fn start(programs: &Path, name: &str, words: Vec<String>) -> Outcome {
    shell::run(Command::new(programs.join(name)).current_dir(shell::root()).args(words))
}
