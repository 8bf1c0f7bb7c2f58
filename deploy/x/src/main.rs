//! `cargo x …`: the project's chores. One file a chore; this one reads the command line and picks.
//!
//! Called by people and by `.ci/run`. Needs Rust alone and builds in seconds, so it depends on std and a JSON reader.
//! Never part of the product: nothing depends on it, and it depends on no other room.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod args;
mod behaviour;
mod bench;
mod ci;
mod docs;
mod edges;
mod figures;
mod fuzz;
mod guard;
mod lint;
mod metadata;
mod shell;
mod sim;
mod suites;
mod tidy;

use std::process::ExitCode;

use args::Args;

const HELP: &str = "\
cargo x CHORE: everything the project does with itself, in Rust

  lint [--fix]                 format and lints; --fix repairs what can be repaired
  tidy                         walls between the crates, file sizes, banned words, dead links
  test [KIND] [-- FILTER…]     tests; KIND is one of
                                 (none)     unit, property, golden, integration: needs Rust and a C compiler
                                 e2e        the built binary against real clients and a real engine: needs Python
                                            with venv, Node and curl; says what is missing and skips, or fails with
                                            --require or CI=1
                                 vllm       the same clients against a real vLLM on this CPU: 6 GB and some minutes
                                 behaviour  150 named checks with a raw client and scripted engines; any proxy can be
                                            judged with --url URL [--pid PID …], `-- --help` says more
                                 figures    the promises under load, scaled down; wants an idle machine
                                 all        all of these, the trials at full length
  ci                           lint, tidy, test, test behaviour, guard, sim, test e2e, with a table of times: what CI
                               runs
  bench [ARGS…]                the load generator, optimised; `cargo x bench --help` for its own commands
  bench micro [NAME…] [--save] the parts of the data plane, one by one; --save writes docs/measurements/micro.*
  bench overhead [--peers NAME,…] [--rounds N] [--steps NAME,…] [--quick] [--publish]
                               llmgw with keys, limits and records on, without them, the stock design and the
                               installed peers, in turn on the same load and pinning
  bench quality [--workloads NAME,…] [--policies NAME,…] [--speeds N,…] [--publish]
                               where prompts go: traces as real requests to simulated engines with small caches
  bench runtimes [--rounds N] [--save]
                               the bare proxy on one runtime after another: builds other runtimes first, minutes;
                               --save writes docs/measurements/runtimes.*
  guard [--bless]              counts that must not grow: instructions of the pure parts (needs valgrind), kernel work
                               a request (needs root); --bless writes new figures
  sim --seed N [--steps N]     one simulated world of cores, lanes, engines and faults; a failing seed shows its events
  sim --seeds N | --mutants    many worlds; every planted mistake must be found; `cargo x sim --help` says more
  docs                         write the generated reference pages again (docs/reference)
  fuzz [TARGET] [--seconds N]  fuzz one parser, or each in turn; without targets it says what there are

Every build is made with the `ci` profile, so that lint, test and bench share what they can.
";

fn main() -> ExitCode {
    let mut args = Args::new(std::env::args().skip(1));
    let outcome = match args.word().as_deref() {
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some(_) if args.is_help_wanted() && !args.is_chore("bench") && !args.is_chore("sim") => {
            print!("{HELP}");
            Ok(())
        }
        Some("lint") => lint::run(args),
        Some("tidy") => tidy::run(args),
        Some("test") => suites::run(args),
        Some("ci") => ci::run(args),
        Some("bench") => bench::run(args),
        Some("docs") => docs::run(args),
        Some("guard") => guard::run(args),
        Some("sim") => sim::run(&args.into_rest()),
        Some("fuzz") => fuzz::run(args),
        Some(other) => Err(format!("unknown chore {other:?}; `cargo x --help` lists them")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("x: {message}");
            ExitCode::FAILURE
        }
    }
}
