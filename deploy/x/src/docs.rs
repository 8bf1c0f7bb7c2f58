//! `cargo x docs`: writes the generated reference pages again. A page that is stale fails an ordinary test of its room.

use crate::args::{Args, Outcome};
use crate::shell::{self, cargo};

/// Set for the rooms' page tests: they write the page instead of comparing it.
const BLESS: &str = "LLMGW_BLESS";

/// Runs the tests that own a page, which are named `*reference_page*`, with leave to write.
pub(crate) fn run(args: Args) -> Outcome {
    args.finish()?;
    let mut command = cargo(&["test", "--profile", "ci", "--workspace", "--lib"]);
    shell::run(command.env(BLESS, "1").args(["--", "reference_page"]))
}
