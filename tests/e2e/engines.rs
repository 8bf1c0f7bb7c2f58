//! A real llama.cpp under test. Called by the tests that want more than a simulated engine.

use std::net::SocketAddr;
use std::time::Duration;

use llmgw_test_kit::process::Process;
use llmgw_test_kit::{raw, wait_for};
use serde_json::Value;

use crate::install;

const START: Duration = Duration::from_secs(30);

/// The model that the recipe serves.
pub(crate) const MODEL: &str = "tiny";

/// A running llama.cpp server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct LlamaCpp {
    pub(crate) addr: SocketAddr,
    process: Process,
}

impl LlamaCpp {
    /// Starts one that serves `model` on a free port, with more flags of `llama-server`, and waits until it answers.
    #[track_caller]
    pub(crate) fn start(model: &str, flags: &[&str]) -> Self {
        install::llama_cpp();
        let launch = install::bash("engines/start-llama-cpp.sh").env("ALIAS", model).args(["0", "--"]).args(flags);
        let mut process = launch.start().unwrap_or_else(|error| panic!("llama.cpp does not start: {error}"));
        let addr = process.wait_for_line("its address", START, |line| {
            let (_, address) = line.text.split_once("listening on http://")?;
            address.trim().parse().ok()
        });
        let addr = addr.unwrap_or_else(|error| panic!("llama.cpp does not serve: {error}"));
        raw::wait_for_ok(addr, "/health", START);
        Self { addr, process }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Waits until no slot works.
    #[track_caller]
    pub(crate) fn wait_until_idle(&self, within: Duration) {
        wait_for("llama.cpp to be idle", within, || {
            let slots: Value = serde_json::from_slice(&raw::get(self.addr, "/slots").body).unwrap_or_default();
            let mut slots = slots.as_array().into_iter().flatten();
            slots.all(|slot| slot["is_processing"] == false)
        });
    }

    /// How many tokens each request had in its slot when it ended, prompt and answer together, oldest first.
    pub(crate) fn tokens_at_the_end(&self) -> Vec<u64> {
        let count = |text: &str| {
            let (_, rest) = text.split_once("stop processing: n_tokens = ")?;
            rest.split(',').next()?.parse().ok()
        };
        self.process.lines().iter().filter_map(|line| count(&line.text)).collect()
    }
}
