//! `llmgw`: reads which role to play and plays it.

use std::process::ExitCode;

use clap::Parser as _;

mod sim_engine;

/// The front door of a self-hosted LLM fleet.
#[derive(Debug, clap::Parser)]
#[command(name = "llmgw", version)]
enum Role {
    /// A simulated inference engine, for tests and demonstrations.
    SimEngine(sim_engine::Args),
}

fn main() -> ExitCode {
    match Role::parse() {
        Role::SimEngine(args) => sim_engine::run(args),
    }
}
