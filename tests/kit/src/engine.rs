//! A simulated engine under test: where it listens, its switches, and what it saw.
//!
//! Either a process of the built binary or a thread of the test. Both are asked over their control routes, so that a
//! test reads the same whichever it uses. Unless told otherwise it serves the kit's model and answers at once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

pub use llmgw_engine_sim::EngineConfig;
use llmgw_engine_sim::Handle;
use llmgw_load::fleet::EngineProcess;
use llmgw_load::process::Process;
use llmgw_load::usage::monotonic_ns;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::raw::{self, Reply};
use crate::{gateway, wait_for_some};

/// A running simulated engine. Dropping it ends it.
#[derive(Debug)]
pub struct Engine {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Process(Box<EngineProcess>),
    Local { handle: Handle, addr: SocketAddr },
}

/// One request as the engine recorded it. Times are nanoseconds on the engine's clock, which `State::now_ns` shows.
#[derive(Debug, Clone, Deserialize)]
pub struct Recorded {
    pub seq: u64,
    /// Number of the connection it came on.
    pub connection: u64,
    pub method: String,
    pub target: String,
    pub version: String,
    pub headers: Vec<(String, String)>,
    pub body_bytes: u64,
    /// CRC-32 of the whole body, in hex.
    pub body_crc32: String,
    /// The body as far as it is kept, when that is UTF-8.
    pub body_text: Option<String>,
    pub received_at_ns: u64,
    pub first_byte_at_ns: Option<u64>,
    pub ended_at_ns: Option<u64>,
    /// When it saw that the client was gone before the end.
    pub client_closed_at_ns: Option<u64>,
    pub status: Option<u16>,
    pub bytes_written: u64,
    /// `open`, `complete`, `client_closed` or `cut`.
    pub outcome: String,
}

impl Recorded {
    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; panics with the body when it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.body_text.as_deref().unwrap_or("");
        match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => panic!("request {} has no JSON body ({error}): {text}", self.seq),
        }
    }
}

/// What an engine is doing.
#[derive(Debug, Clone, Deserialize)]
pub struct State {
    pub now_ns: u64,
    pub open_connections: u64,
    pub accepted_connections: u64,
    /// Requests between their head and the end of their reply; control routes are not counted.
    pub open_requests: u64,
    pub received_requests: u64,
    pub client_closed_requests: u64,
    /// Requests that were taken and get no answer, by a fault.
    pub blackholed_requests: u64,
    /// What was given to clients, by the model's name.
    pub served: BTreeMap<String, Served>,
}

/// What an engine gave to clients; of answers that broke off as much as went out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Served {
    /// Generated answers that began.
    pub answers: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

impl Engine {
    /// Starts a process that answers at once.
    #[must_use]
    #[track_caller]
    pub fn start(llmgw: &Path) -> Self {
        Self::start_with(llmgw, &["--model", gateway::MODEL, "--tokens-per-second", "0"])
    }

    /// Starts a process with flags of `llmgw sim-engine`; none are added but the port.
    #[must_use]
    #[track_caller]
    pub fn start_with(llmgw: &Path, flags: &[&str]) -> Self {
        match EngineProcess::start(llmgw, flags) {
            Ok(process) => Self { inner: Inner::Process(Box::new(process)) },
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts one on a thread of this process that answers at once.
    #[must_use]
    #[track_caller]
    pub fn local() -> Self {
        Self::local_with(|_| ())
    }

    /// As [`Engine::local`], with changes to its configuration.
    #[must_use]
    #[track_caller]
    pub fn local_with(change: impl FnOnce(&mut EngineConfig)) -> Self {
        Self::local_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), change)
    }

    /// As [`Engine::local_with`] on a given address: for an engine that comes back where it was.
    #[must_use]
    #[track_caller]
    pub fn local_at(addr: SocketAddr, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let mut cfg = EngineConfig::immediate();
        cfg.models = vec![gateway::MODEL.to_owned()];
        change(&mut cfg);
        match llmgw_engine_sim::Engine::start(cfg, addr) {
            Ok(handle) => Self { inner: Inner::Local { addr: handle.local_addr(), handle } },
            Err(error) => panic!("no engine on {addr}: {error}"),
        }
    }

    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        match &self.inner {
            Inner::Process(process) => process.addr,
            Inner::Local { addr, .. } => *addr,
        }
    }

    /// The root URL, without `/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Its process, when it has one of its own.
    pub fn process(&mut self) -> Option<&mut Process> {
        match &mut self.inner {
            Inner::Process(process) => Some(&mut process.process),
            Inner::Local { .. } => None,
        }
    }

    /// Ends it: the port is closed and every connection dropped when this returns.
    pub fn stop(self) {
        if let Inner::Local { handle, .. } = self.inner {
            handle.stop();
        }
    }

    /// What it has recorded, oldest first.
    #[must_use]
    #[track_caller]
    pub fn requests(&self) -> Vec<Recorded> {
        #[derive(Deserialize)]
        struct Answer {
            requests: Vec<Recorded>,
        }
        self.read::<Answer>("/sim/requests").requests
    }

    /// What it has recorded of inference: every `POST`, without probes and scrapes.
    #[must_use]
    #[track_caller]
    pub fn calls(&self) -> Vec<Recorded> {
        let mut requests = self.requests();
        requests.retain(|one| one.method == "POST" && !one.target.starts_with("/sim/"));
        requests
    }

    /// The one call it has recorded; panics when there is none or there are more.
    #[must_use]
    #[track_caller]
    pub fn only_call(&self) -> Recorded {
        let mut calls = self.calls();
        match (calls.pop(), calls.len()) {
            (Some(call), 0) => call,
            (last, rest) => panic!("one call was expected, found {}", rest + usize::from(last.is_some())),
        }
    }

    /// Waits until so many calls satisfy, and returns all calls.
    #[track_caller]
    pub fn wait_for_calls(
        &self,
        count: usize,
        within: Duration,
        satisfies: impl Fn(&Recorded) -> bool,
    ) -> Vec<Recorded> {
        wait_for_some(&format!("{count} such calls at the engine"), within, || {
            let calls = self.calls();
            (calls.iter().filter(|call| satisfies(call)).count() >= count).then_some(calls)
        })
    }

    #[must_use]
    #[track_caller]
    pub fn state(&self) -> State {
        self.read("/sim/state")
    }

    /// Nanoseconds to add to the engine's times to get the monotonic clock that [`monotonic_ns`] reads.
    ///
    /// Exact to half of one round trip, the quickest of ten.
    #[must_use]
    #[track_caller]
    pub fn clock_offset_ns(&self) -> i128 {
        let reading = |_| {
            let before = monotonic_ns();
            let now = self.state().now_ns;
            let after = monotonic_ns();
            (after - before, i128::from(before + (after - before) / 2) - i128::from(now))
        };
        (0..10).map(reading).min_by_key(|(trip, _)| *trip).map_or(0, |(_, offset)| offset)
    }

    /// Replaces the faults of every request from here on; `{}` makes it healthy.
    #[track_caller]
    pub fn set_faults(&self, faults: Value) {
        self.configure(&json!({ "faults": faults }));
    }

    /// Changes what `POST /sim/config` can change.
    #[track_caller]
    pub fn configure(&self, change: &Value) {
        self.command("/sim/config", change);
    }

    /// Forgets what it has recorded and cached.
    #[track_caller]
    pub fn reset(&self) {
        self.command("/sim/reset", &json!({}));
    }

    /// Ends every stall and blackhole that is under way.
    #[track_caller]
    pub fn release(&self) {
        self.command("/sim/release", &json!({}));
    }

    #[track_caller]
    fn command(&self, target: &str, body: &Value) {
        let reply = raw::post(self.addr(), target, body);
        assert_eq!(reply.status, 200, "{target} with {body}: {}", reply.text());
    }

    #[track_caller]
    fn read<T: DeserializeOwned>(&self, target: &str) -> T {
        let reply: Reply = raw::get(self.addr(), target);
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        match serde_json::from_slice(&reply.body) {
            Ok(value) => value,
            Err(error) => panic!("{target} is not what the kit knows ({error}): {}", reply.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat;
    use crate::raw::Connection;
    use crate::request::Request;

    const WITHIN: Duration = Duration::from_secs(10);
    const CHAT: &str = "/v1/chat/completions";

    #[test]
    fn a_call_is_answered_and_recorded_with_its_bytes() {
        let engine = Engine::local();
        let body = chat("hello").field("seed", 9_007_199_254_740_993u64).json();
        assert_eq!(raw::post(engine.addr(), CHAT, &body).status, 200);
        let call = engine.only_call();
        assert_eq!((call.target.as_str(), call.status, call.outcome.as_str()), (CHAT, Some(200), "complete"));
        assert_eq!(call.body_text, Some(body.to_string()));
        assert_eq!((call.json(), call.header("HOST")), (body, Some("llmgw.test")));
        engine.reset();
        assert!(engine.requests().is_empty());
    }

    #[test]
    fn faults_come_with_a_request_or_for_all() {
        let engine = Engine::local();
        let healthy = chat("hello").json();
        let refused = chat("hello").faults(json!({ "status": 503 })).json();
        assert_eq!(raw::post(engine.addr(), CHAT, &refused).status, 503);
        assert_eq!(raw::post(engine.addr(), CHAT, &healthy).status, 200);
        engine.set_faults(json!({ "status": 429 }));
        assert_eq!(raw::post(engine.addr(), CHAT, &healthy).status, 429);
        engine.set_faults(json!({}));
        assert_eq!(raw::post(engine.addr(), CHAT, &healthy).status, 200);
    }

    #[test]
    fn a_client_that_leaves_is_recorded_with_the_time() {
        let engine = Engine::local();
        let body = chat("hello").streamed().faults(json!({ "events": 9999, "delay_us": 1000 })).json();
        let mut connection = Connection::open(engine.addr()).expect("open");
        connection.send(&Request::new("POST", CHAT).json(&body).bytes()).expect("sent");
        let head = connection.head().expect("a head");
        assert_eq!(connection.body(&head).events(3).expect("a stream").len(), 3);
        let left_ns = i128::from(monotonic_ns());
        connection.leave();
        let calls = engine.wait_for_calls(1, WITHIN, |call| call.client_closed_at_ns.is_some());
        let seen_ns = i128::from(calls[0].client_closed_at_ns.expect("waited for")) + engine.clock_offset_ns();
        let late_ns = seen_ns - left_ns;
        assert!((-1_000_000..10_000_000_000).contains(&late_ns), "{late_ns}");
        assert_eq!(engine.state().open_requests, 0);
    }

    #[test]
    fn an_engine_that_stopped_can_come_back_where_it_was() {
        let engine = Engine::local();
        let addr = engine.addr();
        engine.stop();
        assert!(Connection::open(addr).is_err());
        let engine = Engine::local_at(addr, |cfg| cfg.output_tokens_max = 70);
        assert_eq!(raw::get(engine.addr(), "/v1/models").status, 200);
    }
}
