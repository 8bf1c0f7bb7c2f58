//! `llmgw ctl`: what an operator asks a running server over its admin API.
//!
//! Reading order: this file (the command line and what each command does), `api` (one question over HTTP), `reply`
//! (what answers look like), `render` (answers as people read them). Called by the binary. Knows a server by its admin
//! address alone: no configuration file is read, nothing is kept.

mod api;
mod render;
mod reply;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::api::{Api, Failure, Method};
use crate::reply::{Drained, Endpoints, Reloaded};

/// The variable that holds the admin token unless another is named.
const TOKEN_VARIABLE: &str = "LLMGW_ADMIN_TOKEN";

/// The command line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 when the server did what was asked, 1 when it refused or cannot be reached, 64 \
                        when the command cannot be understood")]
pub struct Args {
    /// The server's admin address (admin_listen in its configuration)
    #[arg(long, value_name = "URL", global = true, default_value = "http://127.0.0.1:9090")]
    admin: String,
    /// The environment variable that holds the admin token [default: LLMGW_ADMIN_TOKEN, if it is set]
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "token_file")]
    token_env: Option<String>,
    /// The file that holds the admin token
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// Print the server's answer as JSON
    #[arg(long, global = true)]
    json: bool,
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
pub fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(text) => {
            // Nobody reads on; what was asked for is done all the same.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(io::stderr().lock(), "llmgw ctl: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn answer(args: &Args) -> Result<String, Failure> {
    let api = Api::new(&args.admin, token(args)?)?;
    let shown = |answer: String, render: fn(&str) -> Result<String, Failure>| {
        if args.json { Ok(format!("{}\n", answer.trim_end())) } else { render(&answer) }
    };
    match &args.command {
        Command::Endpoints { act: None } => {
            shown(api.ask(Method::Get, "/endpoints")?, |text| Ok(render::endpoints(&api::read::<Endpoints>(text)?)))
        }
        Command::Endpoints { act: Some(act) } => {
            let (name, word) = match act {
                Act::Drain { name } => (name, "drain"),
                Act::Undrain { name } => (name, "undrain"),
            };
            let path = format!("/endpoints/{}/{word}", api::encoded(name));
            shown(api.ask(Method::Post, &path)?, |text| Ok(render::drained(&api::read::<Drained>(text)?)))
        }
        Command::Reload => {
            shown(api.ask(Method::Post, "/reload")?, |text| Ok(render::reloaded(&api::read::<Reloaded>(text)?)))
        }
    }
}

/// The admin token, if one is named or set.
fn token(args: &Args) -> Result<Option<String>, Failure> {
    let text = if let Some(path) = &args.token_file {
        let read = std::fs::read_to_string(path);
        read.map_err(|error| Failure::Usage(format!("--token-file {}: {error}", path.display())))?
    } else if let Some(name) = &args.token_env {
        let value = std::env::var(name);
        value.map_err(|_| Failure::Usage(format!("--token-env {name}: the variable is not set, or is not text")))?
    } else {
        match std::env::var(TOKEN_VARIABLE) {
            Ok(value) => value,
            Err(_) => return Ok(None),
        }
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::Usage("the admin token is empty or holds characters that cannot be sent".to_owned()));
    }
    Ok(Some(token.to_owned()))
}
