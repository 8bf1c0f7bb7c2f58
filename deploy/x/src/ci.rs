//! `cargo x ci`: what CI runs, in its order, each step timed. Called by people before a push.

use crate::args::{Args, Outcome};
use crate::shell::Steps;
use crate::suites::{self, Kind, Missing};
use crate::{behaviour, figures, guard, lint, sim, tidy};

/// Runs every step even when one fails, so that one run tells all.
pub(crate) fn run(args: Args) -> Outcome {
    args.finish()?;
    let mut steps = Steps::default();
    steps.step("lint", || lint::run_with(false));
    steps.step("tidy", tidy::check);
    steps.step("test", || suites::test(Kind::Plain, Missing::Fails, &[]));
    steps.step("test behaviour", || behaviour::run(&[]));
    steps.step("guard", || guard::check(&figures::build()?, false));
    steps.step("sim", sim::ci);
    steps.step("test e2e", || suites::test(Kind::E2e, Missing::Fails, &[]));
    steps.finish()
}
