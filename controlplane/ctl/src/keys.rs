//! `llmgw keys`: organisations, teams, projects, keys and limits, on a server that runs or on a store's file.
//!
//! What is here is the command line; `ask` turns a command into a question of the admin API, `show` its answer into
//! what people read. The same questions go to both, so the two cannot differ.

mod ask;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use crate::api::{Failure, Offline};
use crate::reach::Reach;
use crate::when;

/// The command line.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "KEY is an id, or the name of one key that works. ORG, ORG/TEAM and ORG/TEAM/PROJECT are names \
                        from the top, or ids. Exit codes: 0 done, 1 refused or not reached, 64 not understood"
)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key. It is shown this once and never again: only its hash is kept
    Create {
        /// What it is called
        name: String,
        /// Whose it is [default: default/default/default, which is made if it is not there]
        #[arg(long, value_name = "ORG/TEAM/PROJECT")]
        project: Option<String>,
        /// Its priority band [default: the project's]
        #[arg(long)]
        band: Option<String>,
        /// Its routing profile [default: the project's]
        #[arg(long)]
        profile: Option<String>,
        /// Let it name the replica that is to answer (x-llmgw-replica)
        #[arg(long)]
        may_pin: bool,
        /// How long it works: 12h, 90d [default: for good]
        #[arg(long, value_name = "SPAN", value_parser = when::seconds)]
        expires_in: Option<u64>,
    },
    /// List keys that work
    List {
        /// Those of one project
        #[arg(long, value_name = "ORG/TEAM/PROJECT")]
        project: Option<String>,
        /// Revoked and expired ones too
        #[arg(long)]
        all: bool,
    },
    /// Show a key, and what follows from its levels
    Show { key: String },
    /// Change what a key is called and what it may
    Change {
        key: String,
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        band: Option<String>,
        /// Take the project's band
        #[arg(long, conflicts_with = "band")]
        no_band: bool,
        #[arg(long)]
        profile: Option<String>,
        /// Take the project's profile
        #[arg(long, conflicts_with = "profile")]
        no_profile: bool,
        /// Whether it may name the replica that is to answer
        #[arg(long, value_name = "true|false")]
        may_pin: Option<bool>,
        /// Let it never expire
        #[arg(long)]
        no_expiry: bool,
    },
    /// Give a key a new secret, shown this once; the old one works on for a while
    Rotate {
        key: String,
        /// For how long: 12h, 7d; 0 ends every old one at once [default: 24h]
        #[arg(long, value_name = "SPAN", value_parser = when::seconds)]
        overlap: Option<u64>,
    },
    /// Let a key work no more, for good
    Revoke { key: String },
    /// Organisations
    Org {
        #[command(subcommand)]
        act: Level,
    },
    /// Teams
    Team {
        #[command(subcommand)]
        act: Level,
    },
    /// Projects
    Project {
        #[command(subcommand)]
        act: ProjectAct,
    },
    /// What a level is held to: requests and tokens a minute, requests at once, budgets, models
    Limits {
        #[command(subcommand)]
        act: LimitsAct,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Level {
    /// List them
    List,
    /// Make one: ORG, or ORG/TEAM
    Create {
        /// Its name, after the name of what it is made in
        path: String,
    },
    /// Call one by another name; its id stays
    Rename {
        /// ORG or ORG/TEAM, by name or id
        path: String,
        /// The new name, without what it is in
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectAct {
    /// List them
    List,
    /// Make one: ORG/TEAM/PROJECT
    Create {
        /// Its name, after the names of what it is made in
        path: String,
        /// The band of its keys that have none
        #[arg(long)]
        band: Option<String>,
        /// The routing profile of its keys that have none
        #[arg(long)]
        profile: Option<String>,
    },
    /// Change what a project is called, and what its keys get that say nothing themselves
    Change {
        /// ORG/TEAM/PROJECT, by name or id
        path: String,
        /// The new name, without what it is in
        #[arg(long)]
        name: Option<String>,
        /// The band of its keys that have none
        #[arg(long)]
        band: Option<String>,
        /// No band of its own
        #[arg(long, conflicts_with = "band")]
        no_band: bool,
        /// The routing profile of its keys that have none
        #[arg(long)]
        profile: Option<String>,
        /// No profile of its own
        #[arg(long, conflicts_with = "profile")]
        no_profile: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitsAct {
    /// List all limits
    List,
    /// Show the limits of one level
    Show {
        /// org, team, project or key
        level: String,
        /// Whose: ORG, ORG/TEAM, ORG/TEAM/PROJECT or KEY, by name or id
        scope: String,
    },
    /// Set the limits of a level, in place of all that it had for the same model
    Set(SetLimits),
    /// Take the limits of a level away: it holds nobody back any more
    Clear {
        /// org, team, project or key
        level: String,
        /// Whose: ORG, ORG/TEAM, ORG/TEAM/PROJECT or KEY, by name or id
        scope: String,
        /// Those for this model alone
        #[arg(long)]
        model: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetLimits {
    /// org, team, project or key
    level: String,
    /// Whose: ORG, ORG/TEAM, ORG/TEAM/PROJECT or KEY, by name or id
    scope: String,
    /// For this model alone
    #[arg(long)]
    model: Option<String>,
    /// Requests a minute; 0 lets none through
    #[arg(long)]
    rpm: Option<u64>,
    /// Tokens a minute
    #[arg(long)]
    tpm: Option<u64>,
    /// Requests at once
    #[arg(long)]
    parallel: Option<u64>,
    /// Millionths of a unit each period
    #[arg(long, value_name = "MICROS", requires = "period")]
    budget: Option<u64>,
    /// day or month
    #[arg(long, requires = "budget")]
    period: Option<String>,
    /// Whose calendar the period follows, as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "budget")]
    time_zone: Option<String>,
    /// A model that may be used, and no other; may be given again
    #[arg(long = "allow", value_name = "MODEL")]
    allowed: Vec<String>,
    /// No model may be used
    #[arg(long, conflicts_with = "allowed")]
    allow_none: bool,
}

/// Runs the command: the answer to standard output, what is wrong to standard error.
///
/// `offline` answers on a store's file, for `--store`.
pub fn run(args: &Args, offline: Offline<'_>) -> ExitCode {
    crate::finish("keys", answer(args, offline))
}

fn answer(args: &Args, offline: Offline<'_>) -> Result<String, Failure> {
    let api = args.reach.api(offline)?;
    let question = ask::question(&args.command)?;
    let answer = api.ask(question.method, &question.path, question.body.as_ref())?;
    if args.reach.json { Ok(format!("{}\n", answer.trim_end())) } else { show::answer(&args.command, &answer) }
}
