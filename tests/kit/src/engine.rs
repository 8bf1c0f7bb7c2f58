//! A simulated engine under test: its process, its switches, and what it saw.

use std::net::SocketAddr;
use std::path::Path;

use llmgw_load::fleet::EngineProcess;
use llmgw_load::process::Process;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{gateway, raw};

/// A running simulated engine. Dropping it ends it.
#[derive(Debug)]
pub struct Engine {
    inner: EngineProcess,
}

impl Engine {
    /// Starts one that serves the kit's model.
    #[must_use]
    #[track_caller]
    pub fn start(llmgw: &Path) -> Self {
        Self::start_with(llmgw, &["--model", gateway::MODEL])
    }

    /// Starts one with flags of `llmgw sim-engine` (none are added but the listener).
    #[must_use]
    #[track_caller]
    pub fn start_with(llmgw: &Path, flags: &[&str]) -> Self {
        match EngineProcess::start(llmgw, flags) {
            Ok(inner) => Self { inner },
            Err(error) => panic!("{error}"),
        }
    }

    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr
    }

    /// The root URL, without `/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        self.inner.url()
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.inner.process
    }

    /// Changes its behaviour for the requests to come.
    #[track_caller]
    pub fn configure(&self, change: &Value) {
        let reply = raw::post(self.addr(), "/sim/config", change);
        assert_eq!(reply.status, 200, "the engine takes {change}: {}", reply.text());
    }

    /// Forgets what it has recorded.
    #[track_caller]
    pub fn reset(&self) {
        let reply = raw::post(self.addr(), "/sim/reset", &Value::Object(serde_json::Map::new()));
        assert_eq!(reply.status, 200, "the engine forgets: {}", reply.text());
    }

    /// What it is doing at this moment: running, waiting, cached.
    #[must_use]
    #[track_caller]
    pub fn state(&self) -> Value {
        self.control("/sim/state")
    }

    #[track_caller]
    fn control<T: DeserializeOwned>(&self, target: &str) -> T {
        let reply = raw::get(self.addr(), target);
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        match serde_json::from_slice(&reply.body) {
            Ok(value) => value,
            Err(error) => panic!("{target} is not what the kit knows ({error}): {}", reply.text()),
        }
    }
}
