//! `llmgw-load`: the load generator on the command line. `--help` says what there is.
//!
//! Exit codes: 0 a good run, 1 a run with faults or one that could not be made, 64 a wrong command line, 77 nothing
//! measured, since the machine or the user does not allow it.

mod args;
mod commands;
mod help;
mod lifetimes;

use std::io::Write;
use std::process::ExitCode;

use args::Args;
use commands::Ended;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => return wrong(&message),
    };
    if args.words.is_empty() || args.is_on("--help") {
        print(help::TEXT);
        return ExitCode::SUCCESS;
    }
    llmgw_load::usage::raise_open_files();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no runtime: {error}")),
    };
    match tokio::task::LocalSet::new().block_on(&runtime, commands::run(&args)) {
        Ok(ended) => {
            print(&ended.table);
            if ended.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(Ended::Usage(message)) => wrong(&message),
        Err(Ended::Failed(message)) => failed(&message),
        Err(Ended::Unavailable(message)) => {
            complain(&message);
            ExitCode::from(77)
        }
    }
}

fn wrong(message: &str) -> ExitCode {
    complain(message);
    ExitCode::from(64)
}

fn failed(message: &str) -> ExitCode {
    complain(message);
    ExitCode::FAILURE
}

// A closed standard output or error is the reader's choice, not a fault of the run.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "llmgw-load: {message}");
}
