//! `llmgw ctl`: what an operator asks a running server over its admin API.
//!
//! Reading order: this file (the command line and what each command does), `keys` (`llmgw keys`, the same for who may
//! ask), `reach` (whom to ask), `api` (one question over HTTP), `reply` (what answers look like), `render`, `usage` and
//! `when` (answers as people read them). Called by the binary. Knows a server by its admin address alone: no
//! configuration file is read, nothing is kept. What answers on a store's file in place of a server, the binary brings.

mod api;
pub mod keys;
mod reach;
mod render;
mod reply;
mod usage;
mod when;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use llmgw_kit::clock::Wall;

use crate::api::{Failure, Method};
pub use crate::api::{Offline, OfflineAnswer, OfflineDesk};
use crate::reach::Reach;
use crate::reply::{Audit, Copied, Drained, Endpoints, Reloaded};

/// The command line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 when the server did what was asked, 1 when it refused or cannot be reached, 64 \
                        when the command cannot be understood")]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the engines and their state; drain one, or take it back
    Endpoints {
        #[command(subcommand)]
        act: Option<Act>,
    },
    /// Load the configuration file again: all of it, or nothing if anything in it is wrong
    Reload,
    /// Show who changed what of keys, limits and their levels, newest first
    Audit {
        /// Only what was done to this id
        #[arg(long, value_name = "ID")]
        target: Option<String>,
        /// Only what is older than this number
        #[arg(long, value_name = "SEQ")]
        before: Option<i64>,
        /// As many at most
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        limit: u32,
    },
    Usage(#[command(flatten)] usage::Usage),
    /// Copy the store, while it is in use, to a new file on the server's machine
    Backup {
        /// The new file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Send an endpoint no new requests; those it has run to their end. Lasts until undrain or a restart
    Drain {
        /// The endpoint's name, as the list shows it
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Send a drained endpoint requests again
    Undrain {
        /// The endpoint's name, as the list shows it
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Runs the command: the answer to standard output, what is wrong to standard error.
///
/// `offline` answers on a store's file, for `--store`.
pub fn run(args: &Args, offline: Offline<'_>) -> ExitCode {
    finish("ctl", answer(args, offline))
}

fn finish(role: &str, outcome: Result<String, Failure>) -> ExitCode {
    match outcome {
        Ok(text) => {
            // Nobody reads on; what was asked for is done all the same.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(io::stderr().lock(), "llmgw {role}: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn answer(args: &Args, offline: Offline<'_>) -> Result<String, Failure> {
    let api = args.reach.api(offline)?;
    let shown = |answer: String, render: fn(&str) -> Result<String, Failure>| {
        if args.reach.json { Ok(format!("{}\n", answer.trim_end())) } else { render(&answer) }
    };
    match &args.command {
        Command::Endpoints { act: None } => {
            let answer = api.ask(Method::Get, "/endpoints", None)?;
            shown(answer, |text| Ok(render::endpoints(&api::read::<Endpoints>(text)?)))
        }
        Command::Endpoints { act: Some(act) } => {
            let (name, word) = match act {
                Act::Drain { name } => (name, "drain"),
                Act::Undrain { name } => (name, "undrain"),
            };
            let path = format!("/endpoints/{}/{word}", api::encoded(name));
            let answer = api.ask(Method::Post, &path, None)?;
            shown(answer, |text| Ok(render::drained(&api::read::<Drained>(text)?)))
        }
        Command::Reload => {
            let answer = api.ask(Method::Post, "/reload", None)?;
            shown(answer, |text| Ok(render::reloaded(&api::read::<Reloaded>(text)?)))
        }
        Command::Audit { target, before, limit } => {
            let target = target.as_ref().map(|id| format!("&target={}", api::encoded(id))).unwrap_or_default();
            let before = before.map(|seq| format!("&before={seq}")).unwrap_or_default();
            let answer = api.ask(Method::Get, &format!("/audit?limit={limit}{target}{before}"), None)?;
            shown(answer, |text| Ok(render::events(&api::read::<Audit>(text)?)))
        }
        Command::Usage(usage) => {
            let answer = api.ask(Method::Get, &usage.path(Wall::now()), None)?;
            if args.reach.json { Ok(format!("{}\n", answer.trim_end())) } else { usage.shown(&answer) }
        }
        Command::Backup { file } => {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let answer = api.ask(Method::Post, "/backup", Some(&serde_json::json!({ "path": path })))?;
            shown(answer, |text| Ok(render::copied(&api::read::<Copied>(text)?)))
        }
    }
}
