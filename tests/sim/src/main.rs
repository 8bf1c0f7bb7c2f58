//! The simulator: `cargo x sim`. Worlds from seeds, over the router's own code; a world that breaks is told with one
//! command that shows it again, and its last events.
//!
//! Reading order: `world` (what is shared, what is a step), `drive` (who moves), `core` and `side` (the actors),
//! `truth` and `check` (what must hold), `plan` (what worlds are like), `mutants`. `limits` (tenants) and `journal` are
//! worlds of their own.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod arrivals;
mod cells;
mod check;
mod core;
mod drive;
mod engines;
mod fired;
mod journal;
mod lanes;
mod limits;
mod mutants;
mod plan;
mod requests;
mod run;
mod side;
mod tables;
mod truth;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, rest)) if first == "journal" => journal::main(rest),
        _ => run::main(words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("sim: {message}");
            ExitCode::FAILURE
        }
    }
}
