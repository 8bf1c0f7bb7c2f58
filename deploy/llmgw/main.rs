//! `llmgw`: reads which role to play and plays it.

use std::process::ExitCode;

use clap::Parser as _;

mod check;
mod demo;
mod init;
mod probe;
mod server;
mod sim_engine;
mod tenants;

/// The front door of a self-hosted LLM fleet: one OpenAI-compatible address for many inference engines.
#[derive(Debug, clap::Parser)]
#[command(name = "llmgw", version, disable_help_subcommand = true, arg_required_else_help = true)]
enum Role {
    /// Serve: take requests and pass each to one of the engines named in a configuration file.
    Server(server::Args),
    /// Ask engines what they are and write a configuration file for them.
    Init(init::Args),
    /// Show everything working on this machine: a server and three simulated engines.
    Demo(demo::Args),
    /// Operate a server that runs: its endpoints, its configuration, its audit trail, a backup.
    Ctl(llmgw_ctl::Args),
    /// Organisations, teams, projects, keys and limits: make, list, change, rotate, revoke.
    Keys(llmgw_ctl::keys::Args),
    /// A simulated inference engine, for tests and demonstrations.
    SimEngine(sim_engine::Args),
}

/// Exit code of a mistake on the command line.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let role = match Role::try_parse() {
        Ok(role) => role,
        Err(error) => {
            // What was asked for goes to stdout and is no mistake; all else to stderr. Nobody to read it is nobody to
            // tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match role {
        Role::Server(args) => server::run(&args),
        Role::Init(args) => init::run(&args),
        Role::Demo(args) => demo::run(&args),
        Role::Ctl(args) => llmgw_ctl::run(&args, &tenants::offline),
        Role::Keys(args) => llmgw_ctl::keys::run(&args, &tenants::offline),
        Role::SimEngine(args) => sim_engine::run(args),
    }
}
