//! A gateway under test in one line: its configuration, its process, its ports, its metrics page.
//!
//! A builder writes the least configuration that serves; a test adds the keys it is about. Dropping the guard kills the
//! process, since a test that does not look at its end should not wait for it. `finish` is the orderly end that also
//! checks the log.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use llmgw_load::fleet::GatewayProcess;
pub use llmgw_load::metrics::Metrics;
use llmgw_load::process::{Launch, Process, Signal};

use crate::engine::Engine;
use crate::logs;
use crate::raw::{self, Reply};

/// The model every builder of this crate serves.
pub const MODEL: &str = "test-model";
const READY: Duration = Duration::from_secs(20);

/// The configuration of a gateway being built.
#[derive(Debug, Clone)]
pub struct Builder {
    endpoints: Vec<String>,
    top: String,
    router: String,
    launch: Vec<LaunchChange>,
    expected_ready: bool,
}

#[derive(Debug, Clone)]
enum LaunchChange {
    Arg(String),
    Env(String, String),
}

impl Default for Builder {
    fn default() -> Self {
        let (top, router) = ("cores: 2\n".to_owned(), String::new());
        Self { endpoints: Vec::new(), top, router, launch: Vec::new(), expected_ready: true }
    }
}

impl Builder {
    /// Adds a simulated engine under the name `engine-N`.
    #[must_use]
    pub fn engine(self, engine: &Engine) -> Self {
        self.url(&engine.url())
    }

    /// Adds an engine by its URL under the name `engine-N`.
    #[must_use]
    pub fn url(self, url: &str) -> Self {
        let idx = self.endpoints.len();
        self.endpoint(&format!("{{ name: engine-{idx}, url: \"{url}\", model: \"{MODEL}\", engine: sim }}"))
    }

    /// Adds an endpoint as one YAML flow mapping.
    #[must_use]
    pub fn endpoint(mut self, flow_mapping: &str) -> Self {
        self.endpoints.push(flow_mapping.to_owned());
        self
    }

    /// Adds a key below `router:`, as YAML lines without their indentation.
    #[must_use]
    pub fn router(mut self, lines: &str) -> Self {
        for line in lines.lines() {
            self.router.push_str(&format!("  {line}\n"));
        }
        self
    }

    /// Sets the number of data-plane threads; default 2.
    #[must_use]
    pub fn cores(mut self, count: usize) -> Self {
        self.top = self.top.replacen("cores: 2\n", &format!("cores: {count}\n"), 1);
        self
    }

    /// Adds keys at the top level, as YAML lines.
    #[must_use]
    pub fn top(mut self, lines: &str) -> Self {
        self.top.push_str(lines.trim_end());
        self.top.push('\n');
        self
    }

    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.launch.push(LaunchChange::Arg(arg.to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.launch.push(LaunchChange::Env(key.to_owned(), value.to_owned()));
        self
    }

    /// Does not wait for `/readyz`: for tests whose engines are down.
    #[must_use]
    pub fn not_ready(mut self) -> Self {
        self.expected_ready = false;
        self
    }

    /// The configuration file's text.
    #[must_use]
    pub fn yaml(&self) -> String {
        let mut text = String::from("listen: \"127.0.0.1:0\"\nadmin_listen: \"127.0.0.1:0\"\n");
        text.push_str(&self.top);
        if !self.endpoints.is_empty() {
            text.push_str("endpoints:\n");
        }
        for endpoint in &self.endpoints {
            text.push_str(&format!("  - {endpoint}\n"));
        }
        if !self.router.is_empty() {
            text.push_str("router:\n");
            text.push_str(&self.router);
        }
        text
    }

    /// Starts it and waits until it is ready.
    ///
    /// Panics with what the process wrote when it does not come up.
    #[track_caller]
    pub fn start(self, llmgw: &Path) -> Gateway {
        let changes = self.launch.clone();
        let change = |launch: Launch| {
            changes.into_iter().fold(launch, |launch, change| match change {
                LaunchChange::Arg(arg) => launch.arg(arg),
                LaunchChange::Env(key, value) => launch.env(key, value),
            })
        };
        let yaml = self.yaml();
        let inner = match GatewayProcess::launch(llmgw, &yaml, change) {
            Ok(inner) => inner,
            Err(error) => panic!("{error}\nwith the configuration:\n{yaml}"),
        };
        let gateway = Gateway { inner };
        if self.expected_ready {
            raw::wait_for_ok(gateway.admin_addr(), "/readyz", READY);
        }
        gateway
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    inner: GatewayProcess,
}

impl Gateway {
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr
    }

    /// Where `/metrics`, `/healthz` and `/readyz` are.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.inner.admin_addr
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.inner.addr)
    }

    #[must_use]
    pub fn config_path(&self) -> &Path {
        &self.inner.config_path
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.inner.process
    }

    /// One GET on the admin listener.
    #[must_use]
    #[track_caller]
    pub fn admin(&self, target: &str) -> Reply {
        raw::get(self.inner.admin_addr, target)
    }

    /// The metrics page at this moment.
    #[must_use]
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let page = self.admin("/metrics");
        assert_eq!(page.status, 200, "the metrics page: {}", page.text());
        Metrics::parse(&page.text())
    }

    /// Requests in flight over all engines, as the page says.
    #[must_use]
    #[track_caller]
    pub fn inflight(&self) -> f64 {
        self.metrics().sum("llmgw_endpoint_inflight", &[]).unwrap_or(0.0)
    }

    /// Stops it with SIGTERM, and panics when it does not end well or its log holds an unexpected warning.
    #[track_caller]
    pub fn finish(mut self, expected_warnings: &[&str]) {
        let ended = self.inner.process.signal(Signal::TERM).and_then(|()| self.inner.process.wait(READY));
        match ended {
            Ok(status) => assert!(status.success(), "the gateway ended with {status}"),
            Err(error) => panic!("{error}"),
        }
        logs::assert_quiet(&self.inner.process, expected_warnings);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Nothing happens when it has ended; a failure here is left to the guard within.
        let _ = self.inner.process.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_configuration_and_what_a_test_adds_to_it() {
        let yaml = Gateway::builder()
            .url("http://127.0.0.1:9")
            .endpoint("{ url: \"http://127.0.0.1:8\", model: other }")
            .cores(1)
            .top("auth: none")
            .router("retries: 1\ntimeouts: { connect: 1s }")
            .yaml();
        let expect = "listen: \"127.0.0.1:0\"\nadmin_listen: \"127.0.0.1:0\"\ncores: 1\nauth: none\nendpoints:\n  \
                      - { name: engine-0, url: \"http://127.0.0.1:9\", model: \"test-model\", engine: sim }\n  \
                      - { url: \"http://127.0.0.1:8\", model: other }\nrouter:\n  \
                      retries: 1\n  timeouts: { connect: 1s }\n";
        assert_eq!(yaml, expect);
    }

    #[test]
    #[should_panic(expected = "ended (exit status")]
    fn a_gateway_that_does_not_come_up_fails_with_how_it_ended() {
        let _ = Gateway::builder().url("http://127.0.0.1:9").start(Path::new("false"));
    }
}
