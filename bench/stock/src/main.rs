//! `llmgw-stock`: the gateway in its conventional form, to be measured against.
//!
//! tokio on several threads, hyper on both sides, one shared state behind locks. Decisions, scans, splices, taps and
//! errors are the gateway's own, the configuration and the admin address too; what differs is how a request comes to
//! them. Reading order: `server`, `connection`, `serve` and the rooms that it names.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser as _, ValueEnum};
use llmgw_obs::log::{self, Format};
use llmgw_router::access::AccessLog;
use llmgw_side::ConfigFile;

use crate::server::Mode;

mod answer;
mod arrived;
mod attempt;
mod bare;
mod bell;
mod body;
mod callers;
mod check;
mod client_io;
mod connection;
mod engine_io;
mod finish;
mod headers;
mod keys;
mod limit;
mod limits;
mod lists;
mod patience;
mod pieces;
mod pool;
mod prompt;
mod refusal;
mod relay;
mod reserve;
mod respond;
mod retry;
mod routing;
mod serve;
mod server;
mod state;
mod stored;
mod tables;
mod turn;
mod upstream;
mod whole;

/// The gateway in its conventional form, to be measured against `llmgw server`: tokio, hyper, state behind locks.
#[derive(Debug, clap::Parser)]
#[command(name = "llmgw-stock", version)]
struct Args {
    /// May be said, so that it is started as `llmgw server` is.
    #[arg(hide = true, value_parser = ["server"])]
    role: Option<String>,
    /// The configuration, as for `llmgw server`.
    #[arg(long, value_name = "FILE", default_value = "server.yaml")]
    config: PathBuf,
    /// Passes requests on and does nothing else: endpoints in turn, no decision, scan, count, log line or second try.
    /// For measuring what tokio and hyper cost by themselves.
    #[arg(long)]
    bare: bool,
    /// What is logged to standard error: error, warn, info, debug or trace. At debug every request has a line; else
    /// only those that failed.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// How it looks.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Json,
    Text,
}

/// Exit code of a mistake on the command line.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Nobody to read it is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let file = ConfigFile::at(&args.config);
    let config = llmgw_config::from_process_env(&args.config)?;
    let format = match args.log_format {
        LogFormat::Json => Format::Json,
        LogFormat::Text => Format::Text,
    };
    let log = log::init(format, &args.log_level)?;
    let access_log =
        if matches!(args.log_level.as_str(), "debug" | "trace") { AccessLog::All } else { AccessLog::Failures };
    server::run(config, file, &log, Mode { access_log, is_bare: args.bare })?;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a start that failed is told in plain words")]
fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
