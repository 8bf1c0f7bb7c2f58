//! The first minutes of somebody who has engines and has never seen the gateway: from an empty folder to a streamed
//! token.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use llmgw_test_kit::process::{Launch, Process};
use llmgw_test_kit::{Engine, raw};
use serde_json::json;

use crate::clients::{Client, said, stream};
use crate::engines::{LlamaCpp, MODEL};
use crate::llmgw;

const WITHIN: Duration = Duration::from_secs(20);

/// Runs `llmgw` with `words` in `folder` to its end and returns what it said.
#[track_caller]
fn run(folder: &Path, words: &[&str]) -> String {
    let launch = Launch::new(llmgw()).dir(folder).args(words);
    let mut process = launch.start().unwrap_or_else(|error| panic!("{error}"));
    let status = process.wait(WITHIN).unwrap_or_else(|error| panic!("llmgw {}: {error}", words.join(" ")));
    let text = said(&process);
    assert!(status.success(), "llmgw {} ended with {status}:\n{text}", words.join(" "));
    text
}

/// The address that the server says it listens on.
#[track_caller]
fn address(server: &mut Process) -> SocketAddr {
    let found = server.wait_for_line("its address", WITHIN, |line| {
        let (_, rest) = line.text.split_once("curl ")?;
        let (_, rest) = rest.split_once("http://")?;
        rest.split(['/', ' ', '"']).next()?.parse().ok()
    });
    found.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn from_an_empty_folder_to_the_first_streamed_token() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let sims = [Engine::start(llmgw()), Engine::start(llmgw())];
    let real = LlamaCpp::start(MODEL, &[]);
    let urls: Vec<String> = sims.iter().map(Engine::url).chain([real.url()]).collect();
    let words: Vec<&str> = ["init"].into_iter().chain(urls.iter().map(String::as_str)).collect();

    run(folder.path(), &words);
    assert!(folder.path().join("server.yaml").is_file(), "init writes server.yaml where it is called");

    let report = run(folder.path(), &["server", "--config", "server.yaml", "--check", "--probe"]);
    for url in &urls {
        let host = url.trim_start_matches("http://");
        assert!(report.contains(host), "--check --probe does not speak of {host}:\n{report}");
    }

    let launch = Launch::new(llmgw()).dir(folder.path()).args(["server", "--config", "server.yaml"]);
    let ports = [("LLMGW__LISTEN", "127.0.0.1:0"), ("LLMGW__ADMIN_LISTEN", "127.0.0.1:0")];
    let launch = ports.into_iter().fold(launch, |launch, (name, value)| launch.env(name, value));
    let mut server = launch.start().unwrap_or_else(|error| panic!("{error}"));
    let addr = address(&mut server);
    raw::wait_for_ok(addr, "/v1/models", WITHIN);

    for model in [MODEL, llmgw_test_kit::gateway::MODEL] {
        let body = json!({
            "model": model, "stream": true, "max_tokens": 5, "messages": [{ "role": "user", "content": "hello" }],
        });
        let mut curl = stream(Client::Curl, &format!("http://{addr}"), &body);
        let status = curl.wait(WITHIN).unwrap_or_else(|error| panic!("{error}"));
        let text = said(&curl);
        assert!(status.success() && text.ends_with("[DONE]\nend\n"), "{model}: {text}");
    }
}
