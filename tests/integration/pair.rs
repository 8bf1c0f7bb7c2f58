//! One engine and one gateway, and the way from a reply to what the engine saw of it.
//!
//! A request is known on both sides by its `x-request-id`, so that tests can share a pair and still look only at their
//! own calls.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use llmgw_test_kit::engine::{EngineConfig, Recorded};
use llmgw_test_kit::gateway::Builder;
use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Engine, Gateway};
use serde_json::Value;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// The built binary.
pub(crate) fn llmgw() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_llmgw"))
}

/// Whether trials run with the times and sizes they were written for, in place of those that suit every push.
pub(crate) fn is_full() -> bool {
    std::env::var_os("LLMGW_FULL_TRIALS").is_some_and(|value| value == "1")
}

/// A gateway in front of one engine; the gateway ends first.
pub(crate) struct Pair {
    pub(crate) gateway: Gateway,
    pub(crate) engine: Engine,
}

impl Pair {
    /// A pair of the test's own, with changes to either side.
    #[track_caller]
    pub(crate) fn with(engine: impl FnOnce(&mut EngineConfig), gateway: impl FnOnce(Builder) -> Builder) -> Self {
        let engine = Engine::local_with(engine);
        // Nobody in front of it needs time to notice its end.
        let builder = Gateway::builder().engine(&engine).env("LLMGW__ROUTER__TIMEOUTS__SETTLE", "0s");
        let gateway = gateway(builder).start(llmgw());
        Self { gateway, engine }
    }

    #[track_caller]
    pub(crate) fn own() -> Self {
        Self::with(|_| (), |gateway| gateway)
    }

    /// The pair of all tests that change nothing about either side. It ends with the last test that holds it.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Pair>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let pair = Arc::new(Self::own());
            *shared = Arc::downgrade(&pair);
            pair
        })
    }

    #[track_caller]
    pub(crate) fn post(&self, target: &str, body: &Value) -> Reply {
        raw::post(self.gateway.addr(), target, body)
    }

    /// Posts these exact bytes as JSON.
    #[track_caller]
    pub(crate) fn post_text(&self, target: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send(Request::new("POST", target).header("Connection", "close").body("application/json", body))
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Reply {
        raw::get(self.gateway.addr(), target)
    }

    /// Sends one request on a connection of its own.
    #[track_caller]
    pub(crate) fn send(&self, request: Request) -> Reply {
        raw::call(self.gateway.addr(), &request.bytes())
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.gateway.addr()).expect("the gateway accepts a connection")
    }

    /// What the engine saw of the requests that this reply answers: more than one after a second try.
    #[track_caller]
    pub(crate) fn calls_of(&self, reply: &Reply) -> Vec<Recorded> {
        let id = reply.header("x-request-id").expect("every reply has an id");
        let mut calls = self.engine.calls();
        calls.retain(|call| call.header("x-request-id") == Some(id));
        calls
    }

    /// What the engine saw of the request that this reply answers, and of it alone.
    #[track_caller]
    pub(crate) fn call_of(&self, reply: &Reply) -> Recorded {
        let mut calls = self.calls_of(reply);
        assert_eq!(calls.len(), 1, "status {}: {}", reply.status, reply.text());
        calls.remove(0)
    }
}

/// An error in the shape clients know: its status, `code` and `param`.
#[track_caller]
pub(crate) fn error_of(reply: &Reply) -> (u16, Value, Value) {
    let body = reply.json();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    assert!(error["type"].is_string(), "{body}");
    (reply.status, error["code"].clone(), error["param"].clone())
}

/// CRC-32 as zlib counts it, which is how engines record bodies.
pub(crate) fn crc32(bytes: &[u8]) -> String {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    });
    let crc = bytes.iter().fold(!0u32, |crc, byte| (crc >> 8) ^ table[usize::from(crc as u8 ^ byte)]);
    format!("{:08x}", !crc)
}
