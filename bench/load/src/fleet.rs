//! Engines and a gateway as processes on ports of the system's choosing.
//!
//! Called by the scenarios and by the suites. Speaks to the `llmgw` binary only as a person would: flags, a
//! configuration file, and the lines it prints at its start. Never builds anything.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Launch, Process};

/// How long a start may take: generous, because a machine under test is a loaded machine.
const START: Duration = Duration::from_secs(20);

/// A simulated engine in a process of its own.
#[derive(Debug)]
pub struct EngineProcess {
    pub process: Process,
    pub addr: SocketAddr,
}

impl EngineProcess {
    /// Starts `llmgw sim-engine --port 0` with more flags behind it.
    pub fn start<A: AsRef<str>>(llmgw: &Path, flags: impl IntoIterator<Item = A>) -> io::Result<Self> {
        let launch = Launch::new(llmgw).args(["sim-engine", "--port", "0"]);
        let mut process = flags.into_iter().fold(launch, |launch, flag| launch.arg(flag.as_ref())).start()?;
        let addr = wait_for_addr(&mut process, "listening on")?;
        Ok(Self { process, addr })
    }

    /// The root URL, without `/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// A gateway in a process of its own, with the folder that holds its configuration.
#[derive(Debug)]
pub struct GatewayProcess {
    pub process: Process,
    pub addr: SocketAddr,
    pub admin_addr: SocketAddr,
    pub config_path: PathBuf,
    _dir: TempDir,
}

impl GatewayProcess {
    /// Writes the configuration into a folder of its own and starts `llmgw server --config FILE`.
    ///
    /// Expects both listeners on port 0 of 127.0.0.1 in the text (see [`config`]); learns the ports from the start-up
    /// lines.
    pub fn start(llmgw: &Path, config: &str) -> io::Result<Self> {
        Self::launch(llmgw, config, |launch| launch)
    }

    /// As [`GatewayProcess::start`], with more flags or variables.
    pub fn launch(llmgw: &Path, config: &str, more: impl FnOnce(Launch) -> Launch) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("llmgw-").tempdir()?;
        let config_path = dir.path().join("server.yaml");
        fs::write(&config_path, config)?;
        let launch = Launch::new(llmgw).arg("server").arg("--config").arg(&config_path);
        let mut process = more(launch).start()?;
        let addr = wait_for_addr(&mut process, "listening on")?;
        let admin_addr = wait_for_addr(&mut process, "admin on")?;
        Ok(Self { process, addr, admin_addr, config_path, _dir: dir })
    }
}

/// What every engine is said to run at once: what is measured is the gateway, not how it gets to know an engine.
const BATCH: u32 = 100_000;

/// A configuration with both listeners on ports of the system's choosing and one endpoint for each URL.
#[must_use]
pub fn config(endpoint_urls: &[String], model: &str) -> String {
    let mut text = String::from("listen: \"127.0.0.1:0\"\nadmin_listen: \"127.0.0.1:0\"\nendpoints:\n");
    for (idx, url) in endpoint_urls.iter().enumerate() {
        let keys = format!("model: \"{model}\", engine: sim, batch_capacity: {BATCH}");
        text.push_str(&format!("  - {{ name: engine-{idx}, url: \"{url}\", {keys} }}\n"));
    }
    text
}

/// Waits for a start-up line that says what it listens on, and reads the address from it.
pub fn wait_for_addr(process: &mut Process, words: &str) -> io::Result<SocketAddr> {
    process.wait_for_line(&format!("line with \"{words}\""), START, |line| addr_after(&line.text, words))
}

/// The first `IP:PORT` after the words, with or without a scheme, also inside a JSON log line.
fn addr_after(line: &str, words: &str) -> Option<SocketAddr> {
    let at = line.to_ascii_lowercase().find(words)? + words.len();
    let rest = line.get(at..)?;
    rest.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '(' | ')' | '}' | '/' | '='))
        .filter_map(|word| word.trim_end_matches(['.', ';']).parse().ok())
        .find(|addr: &SocketAddr| addr.port() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, words: &str, expect: Option<&str>) {
        assert_eq!(addr_after(line, words).map(|addr| addr.to_string()).as_deref(), expect, "{line}");
    }

    #[test]
    fn the_address_is_read_from_a_start_up_line_however_it_is_dressed() {
        check("listening on http://127.0.0.1:4711", "listening on", Some("127.0.0.1:4711"));
        check("sim-engine listening on 127.0.0.1:4711 (vllm)", "listening on", Some("127.0.0.1:4711"));
        check("  Listening on http://127.0.0.1:4711/v1, 3 of 3 ready", "listening on", Some("127.0.0.1:4711"));
        let json = r#"{"level":"INFO","message":"listening on","address":"127.0.0.1:9"}"#;
        check(json, "listening on", Some("127.0.0.1:9"));
        check("admin on http://[::1]:80.", "admin on", Some("[::1]:80"));
        check("listening on http://127.0.0.1:0", "listening on", None);
        check("admin on http://127.0.0.1:5", "listening on", None);
        check("listening on", "listening on", None);
    }

    #[test]
    fn every_url_becomes_an_endpoint_with_a_name_of_its_own() {
        let text = config(&["http://127.0.0.1:1".into(), "http://127.0.0.1:2".into()], "m");
        assert_eq!(text.matches("name: engine-").count(), 2);
        assert!(text.contains("url: \"http://127.0.0.1:2\", model: \"m\""));
    }
}
