//! `cargo x lint`: format and lints. Called by people and by CI; what is linted is every target of every package.

use crate::args::{Args, Outcome};
use crate::metadata::Metadata;
use crate::shell::{self, cargo};
use crate::suites::REAL_VLLM;

/// Checks, or with `--fix` repairs.
pub(crate) fn run_with(fix: bool) -> Outcome {
    match fix {
        true => shell::run(&mut cargo(&["fmt", "--all"]))?,
        false => shell::run(&mut cargo(&["fmt", "--all", "--", "--check"]))?,
    }
    clippy(&["--all-targets"], fix)?;
    // The product without its optional parts builds too.
    clippy(&["--no-default-features"], fix)?;
    // Suites that plain `cargo test` leaves out are left out of --all-targets too, so they are named.
    for suite in Metadata::read()?.suites_on_request() {
        clippy(&["--test", &suite, "--features", REAL_VLLM], fix)?;
    }
    Ok(())
}

/// The chore.
pub(crate) fn run(mut args: Args) -> Outcome {
    let fix = args.flag("--fix");
    args.finish()?;
    run_with(fix)
}

/// The `ci` profile lets the macros and build scripts be shared with the tests; the checks themselves need no codegen.
fn clippy(targets: &[&str], fix: bool) -> Outcome {
    let mut command = cargo(&["clippy", "--quiet", "--profile", "ci", "--workspace"]);
    command.args(targets);
    if fix {
        command.args(["--fix", "--allow-dirty", "--allow-staged"]);
    }
    shell::run(command.args(["--", "-D", "warnings"]))
}
