//! The clients as processes: the official Python packages, Node and curl. Called by the tests.

use std::path::Path;
use std::time::Duration;

use llmgw_test_kit::process::{Launch, Process};
use serde_json::Value;

use crate::compare::Results;
use crate::install;

/// The whole script, on a machine that is busy with other tests.
const SCRIPT: Duration = Duration::from_secs(240);

/// One run of the official client's script.
#[derive(Debug, Clone)]
pub(crate) struct Script<'a> {
    /// Root URL, without `/v1`.
    pub(crate) base: String,
    pub(crate) model: &'a str,
    /// Where and by which name embeddings are asked for, when not there.
    pub(crate) embeddings: Option<(String, &'a str)>,
    /// Fields added to every body.
    pub(crate) extra: Value,
    /// Cases that this engine cannot answer.
    pub(crate) skip: &'a [&'a str],
}

impl Script<'_> {
    /// Runs it; every case must have been answered one way or the other.
    #[track_caller]
    pub(crate) fn run(&self) -> Results {
        let mut launch = Launch::new(install::openai())
            .arg(install::scripts().join("clients/openai_script.py"))
            .args(["--base", &self.base, "--model", self.model, "--extra", &self.extra.to_string()])
            .args(["--skip", &self.skip.join(",")]);
        if let Some((base, model)) = &self.embeddings {
            launch = launch.args(["--embeddings-base", base, "--embeddings-model", model]);
        }
        results_of(launch, &self.base)
    }
}

/// One run of the `anthropic` client's script, with fields added to every message's body.
#[track_caller]
pub(crate) fn anthropic(base: &str, model: &str, extra: &Value) -> Results {
    let launch = Launch::new(install::anthropic()).arg(install::scripts().join("clients/anthropic_script.py")).args([
        "--base",
        base,
        "--model",
        model,
        "--extra",
        &extra.to_string(),
    ]);
    results_of(launch, base)
}

/// Runs a script to its end; what it wrote.
#[track_caller]
fn results_of(launch: Launch, base: &str) -> Results {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
    let out = folder.path().join("results.json");
    let mut process = start(launch.arg("--out").arg(&out));
    let status = process.wait(SCRIPT).unwrap_or_else(|error| panic!("the script at {base}: {error}"));
    assert!(status.success(), "the script at {base} ended with {status}:\n{}", said(&process));
    read(&out)
}

/// Starts a client that streams one chat and prints each event's data on a line as it arrives; the last line is `end`.
#[track_caller]
pub(crate) fn stream(client: Client, base: &str, body: &Value) -> Process {
    let launch = match client {
        Client::Curl => install::bash("clients/stream.sh"),
        Client::Node => Launch::new("node").arg(install::scripts().join("clients/stream.mjs")),
    };
    start(launch.arg(format!("{base}/v1/chat/completions")).arg(body.to_string()))
}

/// Who streams.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Client {
    Curl,
    Node,
}

/// What a process wrote, in one piece.
pub(crate) fn said(process: &Process) -> String {
    process.lines().iter().map(|line| format!("{}\n", line.text)).collect()
}

#[track_caller]
fn start(launch: Launch) -> Process {
    launch.start().unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn read(path: &Path) -> Results {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
