//! Whole scenarios: simulated engines and a gateway started, one command run against them, everything ended again.
//!
//! Called by the binary's `scenario` command. Needs the `llmgw` binary and nothing else.

use std::io;
use std::path::{Path, PathBuf};

use crate::fleet::{EngineProcess, GatewayProcess, config};
use crate::target::Target;

/// The model of every scenario.
pub const MODEL: &str = "test-model";

/// What to start.
#[derive(Debug, Clone)]
pub struct Setup {
    pub llmgw: PathBuf,
    pub engine_count: usize,
    /// More flags for each engine.
    pub engine_flags: Vec<String>,
    /// Keys put before the endpoints of the gateway's configuration, as YAML lines.
    pub more_config: String,
}

/// Engines and a gateway, running. Dropping it ends them, the gateway first.
#[derive(Debug)]
pub struct Fleet {
    pub gateway: GatewayProcess,
    pub engines: Vec<EngineProcess>,
}

impl Fleet {
    /// Starts it; see [`wait_until_ready`].
    ///
    /// Errors: a process does not start; the message holds what it wrote.
    pub fn start(setup: &Setup) -> io::Result<Self> {
        let engine = |_| engine(&setup.llmgw, &setup.engine_flags);
        let engines = (0..setup.engine_count).map(engine).collect::<io::Result<Vec<_>>>()?;
        let urls: Vec<String> = engines.iter().map(EngineProcess::url).collect();
        let text = format!("{}{}", setup.more_config, config(&urls, MODEL));
        let gateway = GatewayProcess::start(&setup.llmgw, &text)?;
        Ok(Self { gateway, engines })
    }

    /// The chat route through the gateway.
    ///
    /// Errors: none that an address of ours can give.
    pub fn via(&self) -> Result<Target, String> {
        Target::parse(&format!("http://{}", self.gateway.addr))
    }

    pub fn admin(&self) -> Result<Target, String> {
        Target::parse(&format!("http://{}/metrics", self.gateway.admin_addr))
    }

    /// The chat route of each engine.
    pub fn direct(&self) -> Result<Vec<Target>, String> {
        self.engines.iter().map(|engine| Target::parse(&engine.url())).collect()
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.gateway.process.pid()
    }
}

/// An engine that answers at once and does not keep large bodies: what is measured is the gateway.
fn engine(llmgw: &Path, flags: &[String]) -> io::Result<EngineProcess> {
    let own = ["--model", MODEL, "--tokens-per-second", "0", "--hold-body-bytes", "1000000"];
    EngineProcess::start(llmgw, own.into_iter().chain(flags.iter().map(String::as_str)))
}

/// Waits until the gateway answers 200 on `/readyz`.
pub async fn wait_until_ready(fleet: &Fleet) -> Result<(), String> {
    let admin = fleet.admin()?;
    let ask = async || Ok(crate::control::fetch(&admin, "/readyz").await);
    match crate::control::until(std::time::Duration::from_secs(20), ask, Result::is_ok).await? {
        (_, true) => Ok(()),
        (last, false) => Err(format!("the gateway did not become ready: {}", last.err().unwrap_or_default())),
    }
}
