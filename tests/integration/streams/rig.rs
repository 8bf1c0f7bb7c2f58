//! One gateway before one simulated engine, and what every trial of this folder asks of them.
//!
//! Started by each test for itself: a gateway is up in milliseconds, and its counters then speak of that test alone.

use std::path::Path;
use std::time::Duration;

use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, chat, gateway, wait_for};
use serde_json::{Value, json};

pub(crate) const CHAT: &str = "/v1/chat/completions";
/// For what must happen, and soon; a loaded machine may take its time.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);
/// What failed requests may leave in the log: a line each, and one when their engine is left alone.
const FAILED_REQUESTS: [&str; 2] = ["\"request_id\"", "the endpoint's breaker opens"];

/// The binary under test.
pub(crate) fn llmgw() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_llmgw"))
}

/// A gateway and its engine.
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) gateway: Gateway,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::with("", |builder| builder)
    }

    /// With keys of `router.timeouts`, as a flow mapping without its braces.
    pub(crate) fn with_timeouts(timeouts: &str) -> Self {
        Self::with(timeouts, |builder| builder)
    }

    pub(crate) fn on(driver: &str) -> Self {
        Self::with("", |builder| builder.arg("--driver").arg(driver))
    }

    pub(crate) fn with(timeouts: &str, change: impl FnOnce(gateway::Builder) -> gateway::Builder) -> Self {
        let engine = Engine::local();
        let gateway = change(builder(timeouts).engine(&engine)).start(llmgw());
        Self { engine, gateway }
    }

    /// Sends a chat and reads the whole reply.
    #[track_caller]
    pub(crate) fn ask(&self, chat: Chat) -> Reply {
        raw::post(self.gateway.addr(), CHAT, &chat.json())
    }

    /// Sends a chat and leaves its reply to be read.
    #[track_caller]
    pub(crate) fn send(&self, chat: Chat) -> Connection {
        let mut connection = Connection::open(self.gateway.addr()).expect("a connection");
        connection.send(&request(&chat)).expect("the request goes out");
        connection
    }

    /// Sends a chat whose stream begins, and returns after so many events.
    #[track_caller]
    pub(crate) fn stream(&self, chat: Chat, events: usize) -> Connection {
        let mut connection = self.send(chat.streamed());
        let head = connection.head().expect("a head");
        assert_eq!(head.status, 200);
        let seen = connection.body(&head).events(events).expect("events");
        assert_eq!(seen.len(), events, "{seen:?}");
        connection
    }

    /// The sum of a metric over the samples with these labels.
    #[track_caller]
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.gateway.metrics().sum(name, labels).unwrap_or(0.0) as u64
    }

    /// Prompt and completion tokens counted so far.
    #[track_caller]
    pub(crate) fn tokens(&self) -> (u64, u64) {
        let metrics = self.gateway.metrics();
        let of = |direction| metrics.sum("llmgw_tokens_total", &[("direction", direction)]).unwrap_or(0.0) as u64;
        (of("prompt"), of("completion"))
    }

    /// Answers without usage, and answers with absurd usage.
    #[track_caller]
    pub(crate) fn usage_absent(&self) -> (u64, u64) {
        let kind = |kind| self.count("llmgw_usage_absent_total", &[("kind", kind)]);
        (kind("missing"), kind("absurd"))
    }

    /// Waits until so many requests have ended and none is left anywhere.
    #[track_caller]
    pub(crate) fn wait_for_ended(&self, count: u64) {
        wait_for(&format!("{count} ended requests"), WITHIN, || self.count("llmgw_requests_total", &[]) >= count);
        self.wait_until_idle();
    }

    /// Waits until no request is in flight and no place at an engine is taken.
    #[track_caller]
    pub(crate) fn wait_until_idle(&self) {
        wait_until_idle(&self.gateway);
    }

    /// Ends the gateway: nothing may be left in flight, no request may have met a fault of the gateway, the log is
    /// quiet.
    #[track_caller]
    pub(crate) fn finish(self) {
        finish(self.gateway);
    }
}

/// The least configuration of these trials: one core, which makes every test one of a single core's turns.
pub(crate) fn builder(timeouts: &str) -> gateway::Builder {
    let timeouts = [timeouts, "settle: 0s"].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    let router = format!("scrape_interval: 100ms\ntimeouts: {{ {timeouts} }}");
    Gateway::builder().cores(1).router(&router)
}

/// See [`Rig::wait_until_idle`].
#[track_caller]
pub(crate) fn wait_until_idle(gateway: &Gateway) {
    wait_for("an idle gateway", WITHIN, || {
        gateway.inflight() == 0.0 && gateway.metrics().sum("llmgw_requests_in_flight", &[]) == Some(0.0)
    });
}

/// See [`Rig::finish`].
#[track_caller]
pub(crate) fn finish(gateway: Gateway) {
    finish_expecting(gateway, &[]);
}

/// As [`finish`], with texts that warnings may hold.
#[track_caller]
pub(crate) fn finish_expecting(gateway: Gateway, warnings: &[&str]) {
    wait_until_idle(&gateway);
    assert_eq!(gateway.metrics().sum("llmgw_panics_total", &[]), Some(0.0), "a request met a fault of the gateway");
    gateway.finish(&[&FAILED_REQUESTS, warnings].concat());
}

/// A chat as request bytes on a connection that stays.
pub(crate) fn request(chat: &Chat) -> Vec<u8> {
    Request::new("POST", CHAT).json(&chat.json()).bytes()
}

/// A streamed chat whose answer is exactly these pieces, in chunks.
pub(crate) fn scripted(pieces: &[&str]) -> Chat {
    scripted_as("chunked", json!(pieces))
}

/// A streamed chat whose answer is this script, laid out as the framing says.
pub(crate) fn scripted_as(framing: &str, script: Value) -> Chat {
    chat("scripted").streamed().faults(json!({ "script": script, "framing": framing }))
}

/// A content event.
pub(crate) fn event(text: &str) -> String {
    let text = json!(text);
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}}}}]}}\n\n"
    )
}

/// The event that carries usage alone.
pub(crate) fn usage_event(prompt: u64, completion: u64) -> String {
    let total = prompt + completion;
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\
         \"completion_tokens\":{completion},\"total_tokens\":{total}}}}}\n\n"
    )
}

pub(crate) const DONE: &str = "data: [DONE]\n\n";
