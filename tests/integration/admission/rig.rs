//! A gateway before one engine that runs so many requests, some of which it holds until they are released.

use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Chat, Engine, Gateway, chat, wait_for};
use serde_json::json;

use crate::pair::{CHAT, WITHIN, llmgw};

/// Both bands may fill the batch and no more.
pub(super) const TWO_BANDS: &str = "bands: [{ name: low, priority: 1, saturation_ceiling: 0 }, \
    { name: high, priority: 2, saturation_ceiling: 0 }]";

pub(super) struct Rig {
    pub(super) gateway: Gateway,
    pub(super) engine: Engine,
}

/// A request on a thread of its own.
pub(super) struct Call {
    thread: JoinHandle<Reply>,
}

impl Call {
    /// Its whole answer.
    #[track_caller]
    pub(super) fn reply(self) -> Reply {
        self.thread.join().expect("no panic")
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

pub(super) fn endpoint(name: &str, engine: &Engine, keys: &str) -> String {
    format!("{{ name: {name}, url: \"{}\", model: test-model, engine: sim, {keys} }}", engine.url())
}

impl Rig {
    /// One engine that runs `batch` requests; keys of `admission` as YAML.
    #[track_caller]
    pub(super) fn start(batch: u32, admission: &str) -> Self {
        let engine = Engine::local();
        let endpoint = endpoint("e", &engine, &format!("batch_capacity: {batch}"));
        let router = format!(
            "scrape_interval: 100ms\ncooldown_seconds: 0\ntimeouts: {{ settle: 0s }}\nadmission: {{ {admission} }}"
        );
        let gateway = Gateway::builder().endpoint(&endpoint).router(&router).start(llmgw());
        let rig = Self { gateway, engine };
        rig.wait_for_room();
        rig
    }

    /// Until the side runtime has said that there is room: a first request passes.
    pub(super) fn wait_for_room(&self) {
        wait_for("room", WITHIN, || {
            let before = self.count("llmgw_admission_admitted_total", &[("how", "passed")]);
            self.ask("high", &chat("are you there")).reply();
            self.count("llmgw_admission_admitted_total", &[("how", "passed")]) > before
        });
    }

    pub(super) fn ask(&self, band: &str, chat: &Chat) -> Call {
        self.send(request(band).json(&chat.json()))
    }

    pub(super) fn send(&self, request: Request) -> Call {
        let addr = self.gateway.addr();
        Call { thread: spawn(move || raw::call(addr, &request.bytes())) }
    }

    /// A connection with a request under way.
    #[track_caller]
    pub(super) fn open(&self, band: &str, chat: &Chat) -> Connection {
        let mut connection = Connection::open(self.gateway.addr()).expect("a connection").patience(WITHIN);
        connection.send(&request(band).json(&chat.json()).bytes()).expect("sent");
        connection
    }

    /// So many requests that the engine holds.
    #[track_caller]
    pub(super) fn hold(&self, count: u64) -> Vec<Call> {
        let before = self.engine.state().open_requests;
        let calls = (0..count).map(|_| self.ask("low", &stalled())).collect();
        wait_for("held by the engine", WITHIN, || self.engine.state().open_requests == before + count);
        calls
    }

    /// Requests that wait, of all bands.
    #[track_caller]
    pub(super) fn waiting(&self) -> u64 {
        self.count("llmgw_admission_queue_depth", &[])
    }

    #[track_caller]
    pub(super) fn wait_until_waiting(&self, count: u64) {
        wait_for("requests in the queue", WITHIN, || self.waiting() == count);
    }

    #[track_caller]
    pub(super) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.gateway.metrics().sum(name, labels).unwrap_or(0.0) as u64
    }

    pub(super) fn rejected(&self, reason: &str) -> u64 {
        self.count("llmgw_admission_rejected_total", &[("reason", reason)])
    }

    /// The prompts that reached the engine, in order, without those that ask for room.
    pub(super) fn prompts(&self) -> Vec<String> {
        let calls = self.engine.calls();
        let prompt = |body: serde_json::Value| body["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        let prompts = calls.iter().map(|call| prompt(call.json()));
        prompts.filter(|prompt| !prompt.contains("are you there") && !prompt.contains("held")).collect()
    }

    /// Everything is at rest: nobody waits, nothing runs, and the batch can be filled again to the last place.
    #[track_caller]
    pub(super) fn assert_at_rest(&self, batch: u64) {
        wait_for("rest", WITHIN, || self.waiting() == 0 && self.gateway.inflight() == 0.0);
        let passed = || self.count("llmgw_admission_admitted_total", &[("how", "passed")]);
        let before = passed();
        let held = self.hold(batch);
        assert_eq!((passed() - before, self.waiting()), (batch, 0), "every place is free");
        self.engine.release();
        held.into_iter().for_each(|call| assert_eq!(call.reply().status, 200));
    }
}

/// What the engine holds after its first event, until it is released.
pub(super) fn stalled() -> Chat {
    chat("held").streamed().faults(json!({ "events": 3, "stall_after_events": 1 }))
}

pub(super) fn request(band: &str) -> Request {
    Request::new("POST", CHAT).header("Connection", "close").header("x-llmgw-band", band)
}

/// Long enough for what must not happen to have happened.
pub(super) const A_WHILE: Duration = Duration::from_millis(50);
